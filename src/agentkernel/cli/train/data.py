"""`agentkernel train data`: rows of the three tasks, held-out modules and a data card.

The same call continues after a kill and then writes the same bytes.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from agentkernel.cli.console import progress_bar
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.cli.train.options import DataFlags
from agentkernel.domain.errors import SettingError
from agentkernel.domain.plain_text import plain_line
from agentkernel.training.data.card import Card, unreadable
from agentkernel.training.data.dataset import make_data
from agentkernel.training.data.sources import origin_of
from agentkernel.training.settings import load_training


def data(flags: DataFlags) -> None:
    """`agentkernel train data`."""
    if not flags.sources:
        raise SettingError(
            "data got no --from. Expected a file of pairs, or another source. Next: agentkernel "
            "train pairs --out pairs.jsonl.gz --count 1000 makes one."
        )
    settings = load_training(flags.training, flags.overrides or ()).data
    origins = [origin_of(item, flags.licence) for item in flags.sources]
    with progress_bar("data", silent=flags.as_json) as show:
        card = make_data(
            origins,
            settings,
            flags.out,
            command=command_line(
                flags.sources, flags.licence, flags.training, flags.overrides or (), flags.out
            ),
            show=show,
        )
    if flags.as_json:
        print_json({"out": str(flags.out), **card.model_dump(mode="json")})
    else:
        print_plain("\n".join(data_lines(card, flags.out)))


def command_line(
    sources: list[str],
    licence: str,
    training: str,
    overrides: list[str] | tuple[str, ...],
    out: Path,
) -> str:
    """The call, as it is typed again."""
    words = ["agentkernel", "train", "data"]
    for item in sources:
        words += ["--from", item]
    words += ["--licence", licence] if licence else []
    words += ["--config", training]
    for item in overrides:
        words += ["-c", item]
    return shlex.join([*words, "--out", str(out)])


def data_lines(card: Card, out: Path) -> list[str]:
    """What the folder holds, and what was asked for and is not there."""
    tasks = ", ".join(f"{rows} {task}" for task, rows in card.train.tasks.items())
    lines = [
        f"{card.train.rows} rows ({tasks}) on {card.train.problems} modules; "
        f"{card.held_out_modules} modules held out; {card.not_judged.rows} rows not judged, apart"
    ]
    lines += [f"not filled: {item}" for item in card.unfilled]
    ranked = sorted(card.left_out.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"left out: {count} x {reason}" for reason, count in ranked[:6]]
    lines += [f"unreadable: {count} x {why}" for why, count in unreadable(card.inputs)[:6]]
    lines.append(f"{out / 'card.md'} says more. Next: agentkernel train sft {out} --out MODEL")
    return [plain_line(line) for line in lines]
