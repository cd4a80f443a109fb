"""`agentkernel train`: which commands make a small model, from its data on?"""

from __future__ import annotations

from collections.abc import Callable

import typer
from typer.core import TyperCommand

from agentkernel.cli.train.train_cost import cost
from agentkernel.cli.train.train_data import data
from agentkernel.cli.train.train_evaluate import evaluate_model
from agentkernel.cli.train.train_pairs import pairs, problems
from agentkernel.cli.train.train_reviews import reviews
from agentkernel.cli.train.train_rl import rl
from agentkernel.cli.train.train_sft import sft

TRAIN_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("problems", problems),
    ("pairs", pairs),
    ("reviews", reviews),
    ("data", data),
    ("sft", sft),
    ("rl", rl),
    ("evaluate", evaluate_model),
    ("cost", cost),
)

train = typer.Typer(
    name="train",
    help="Make a small model that writes kernels: its data, its training.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for name, command in TRAIN_COMMANDS:
    train.command(name, cls=TyperCommand)(command)
