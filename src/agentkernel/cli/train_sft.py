"""`agentkernel train sft`: how is a model fine-tuned on the rows of a data folder?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import AsJson, Overrides
from agentkernel.cli.train_options import DataFolder, ModelFolder, Training, print_line, tell

if TYPE_CHECKING:
    from agentkernel.workflows.training.sft import SftDone

Weights = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME_OR_PATH", help="Weights to begin with, in place of the config's."
    ),
]
Older = Annotated[
    Path | None,
    typer.Option("--older", metavar="DATA", help="Older data; sft.replay says how much of it."),
]
Gpu = Annotated[
    str | None, typer.Option("--target", help="GPU that held-out modules are asked for.")
]
Evaluations = Annotated[
    int,
    typer.Option(
        "--evaluations", min=1, help="How often held-out modules are judged, the end included."
    ),
]
JudgeSamples = Annotated[
    int, typer.Option("--samples", min=1, help="Answers to each held-out module.")
]


def sft(
    data: DataFolder,
    out: ModelFolder,
    training: Training = "small",
    model: Weights = None,
    older: Older = None,
    target: Gpu = None,
    evaluations: Evaluations = 1,
    samples: JudgeSamples = 4,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model, or make a new one, on judged kernels; the same call goes on after a
    kill."""
    from agentkernel.cli.knowledge_progress import shown
    from agentkernel.workflows.training.configuration import load_training
    from agentkernel.workflows.training.sft import Judging, train_sft

    settings = load_training(training, overrides or ())
    judging = Judging(target=target, samples=samples, times=evaluations)
    with shown("training", silent=as_json) as show:
        done = train_sft(
            data,
            settings,
            out,
            model=model,
            older=older,
            judging=judging,
            say=(lambda line: None) if as_json else print_line,
            show=show,
        )
    tell(done, done.record, done.record.ended, report_lines(done), as_json=as_json)


def report_lines(done: SftDone) -> list[str]:
    """What came out."""
    record = done.record
    loss = "-" if record.loss is None else f"{record.loss:.4f}"
    held = "" if record.held_out_loss is None else f", {record.held_out_loss:.4f} on held-out rows"
    lines = [
        f"{record.steps} of {record.planned_steps} steps, {record.epochs:g} passes over "
        f"{record.rows} rows, {record.tokens:,} tokens in {record.seconds:.0f} s on "
        f"{record.device}; loss {loss}{held}"
    ]
    if record.passed is not None:
        lines.append(record.passed.line())
    return lines


__all__ = ["sft"]
