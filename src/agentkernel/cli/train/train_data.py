"""`agentkernel train data`: how do judged kernels become what a model is taught with?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import AsJson, Overrides
from agentkernel.cli.output import print_plain

if TYPE_CHECKING:
    from agentkernel.training.data.card import Card

Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="PATH",
        help="Pairs, KernelBook's shards, a knowledge base, a folder of runs or a file of reviews; "
        "KIND:PATH says which. Repeat.",
    ),
]
Licence = Annotated[
    str, typer.Option("--licence", help="Of rows that name none, as of your own runs.")
]
DataFolder = Annotated[Path, typer.Option("--out", help="A new folder, or a finished one.")]
Training = Annotated[
    str,
    typer.Option("--config", metavar="NAME|FILE.yaml", help="Whose 'data:' holds; small."),
]


def data(
    out: DataFolder,
    sources: Sources = None,
    licence: Licence = "",
    training: Training = "small",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Write rows of the three tasks, held-out modules and a card; the same call after a kill comes
    to the same bytes."""
    from agentkernel.cli.knowledge_progress import progress_bar
    from agentkernel.cli.output import print_json
    from agentkernel.domain.errors import SettingError
    from agentkernel.training.configuration import load_training
    from agentkernel.training.data.data import make_data
    from agentkernel.training.data.sources import origin_of

    if not sources:
        raise SettingError(
            "data got no --from. Expected a file of pairs, or another source. Next: agentkernel "
            "train pairs --out pairs.jsonl.gz --count 1000 makes one."
        )
    settings = load_training(training, overrides or ()).data
    origins = [origin_of(item, licence) for item in sources]
    with progress_bar("data", silent=as_json) as show:
        card = make_data(
            origins,
            settings,
            out,
            command=command_line(sources, licence, training, overrides or (), out),
            show=show,
        )
    if as_json:
        print_json({"out": str(out), **card.model_dump(mode="json")})
    else:
        print_plain("\n".join(data_lines(card, out)))


def command_line(
    sources: list[str],
    licence: str,
    training: str,
    overrides: list[str] | tuple[str, ...],
    out: Path,
) -> str:
    """The call, as it is typed again."""
    import shlex

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
    from agentkernel.domain.plain_text import plain_line
    from agentkernel.training.data.card import unreadable

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


__all__ = ["data"]
