"""`agentkernel knowledge`: which commands look after what is known?"""

from __future__ import annotations

from collections.abc import Callable

import typer
from typer.core import TyperCommand

from agentkernel.cli.knowledge.knowledge_build import build, generate
from agentkernel.cli.knowledge.knowledge_doctor import check_knowledge
from agentkernel.cli.knowledge.knowledge_eval import evaluate_search
from agentkernel.cli.knowledge.knowledge_import import add, export_file, import_file
from agentkernel.cli.knowledge.knowledge_kernelbook import import_kernelbook
from agentkernel.cli.knowledge.knowledge_search import search
from agentkernel.cli.knowledge.knowledge_show import show_entry, stats

KNOWLEDGE_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("build", build),
    ("search", search),
    ("show", show_entry),
    ("stats", stats),
    ("add", add),
    ("import-kernelbook", import_kernelbook),
    ("generate", generate),
    ("eval", evaluate_search),
    ("export", export_file),
    ("import", import_file),
    ("doctor", check_knowledge),
)

knowledge = typer.Typer(
    name="knowledge",
    help="Search and look after what is known: pairs, kernels, notes, fixes, experience.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for name, command in KNOWLEDGE_COMMANDS:
    knowledge.command(name, cls=TyperCommand)(command)
