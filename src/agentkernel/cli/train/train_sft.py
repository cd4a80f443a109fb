"""`agentkernel train sft`: how is a model fine-tuned on the rows of a data folder?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import AsJson, Overrides
from agentkernel.cli.train.train_options import (
    EXIT_INTERRUPTED,
    DataFolder,
    ModelFolder,
    Training,
    line_printer,
    print_outcome,
)

if TYPE_CHECKING:
    from agentkernel.training.sft.sft import SftResult

InitialWeights = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME_OR_PATH", help="Weights to begin with, in place of the config's."
    ),
]
Older = Annotated[
    Path | None,
    typer.Option("--older", metavar="DATA", help="Older data; sft.replay says how much of it."),
]
HeldOutTarget = Annotated[
    str | None, typer.Option("--target", help="GPU that held-out modules are asked for.")
]
Evaluations = Annotated[
    int,
    typer.Option(
        "--evaluations", min=1, help="How often held-out modules are judged, the end included."
    ),
]
TrainingGpus = Annotated[
    str,
    typer.Option(
        "--gpus",
        metavar="N|auto",
        help="GPUs to train on together, each with its own batches; auto: all that are here.",
    ),
]
JudgeSamples = Annotated[
    int, typer.Option("--samples", min=1, help="Answers to each held-out module.")
]


def sft(
    context: typer.Context,
    data: DataFolder,
    out: ModelFolder,
    training: Training = "small",
    model: InitialWeights = None,
    older: Older = None,
    target: HeldOutTarget = None,
    evaluations: Evaluations = 1,
    samples: JudgeSamples = 4,
    gpus: TrainingGpus = "1",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model, or make a new one, on judged kernels; the same call goes on after a
    kill."""
    from agentkernel.cli.knowledge_progress import progress_bar
    from agentkernel.training.configuration import load_training

    settings = load_training(training, overrides or ())
    if gpus != "1":
        _launch_ranks(context, gpus)
    from agentkernel.training.ranks import current_ranks
    from agentkernel.training.sft.sft import HeldOutJudging, train_sft

    judging = HeldOutJudging(target=target, samples=samples, times=evaluations)
    with progress_bar("training", silent=as_json or not current_ranks().first) as show:
        done = train_sft(
            data,
            settings,
            out,
            model=model,
            older=older,
            judging=judging,
            say=line_printer(as_json),
            show=show,
        )
    if current_ranks().first:
        print_outcome(done, done.record, done.record.ended, sft_lines(done), as_json=as_json)
    elif done.record.ended == "signal":
        raise typer.Exit(EXIT_INTERRUPTED)


def _launch_ranks(context: typer.Context, gpus: str) -> None:
    """Do the same in a process for each GPU and raise typer.Exit, unless this is one of them
    already, or one is all there are."""
    from agentkernel.training.launch import command_of, gpus_of, launch
    from agentkernel.training.ranks import current_ranks

    count = gpus_of(gpus)
    if count > 1 and current_ranks().count == 1:
        raise typer.Exit(launch(command_of(command_words(context)), count))


def command_words(context: typer.Context) -> list[str]:
    """The words of this call, `--gpus` left out."""
    flags: list[str] = ["--debug"] if context.find_root().obj is True else []
    arguments: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name == "gpus" or value is None or value is False:
            continue
        if parameter.param_type_name == "argument":
            arguments.append(str(value))
        elif value is True:
            flags.append(parameter.opts[0])
        else:
            several = value if isinstance(value, list | tuple) else [value]
            flags += [word for item in several for word in (parameter.opts[0], str(item))]
    return ["train", "sft", *flags, "--", *arguments]


def sft_lines(done: SftResult) -> list[str]:
    """What came out."""
    record = done.record
    loss = "-" if record.loss is None else f"{record.loss:.4f}"
    held = "" if record.held_out_loss is None else f", {record.held_out_loss:.4f} on held-out rows"
    several = f" x {record.ranks}" if record.ranks > 1 else ""
    lines = [
        f"{record.steps} of {record.planned_steps} steps, {record.epochs:g} passes over "
        f"{record.rows} rows, {record.tokens:,} tokens in {record.seconds:.0f} s on "
        f"{record.device}{several}; loss {loss}{held}"
    ]
    if record.passed is not None:
        lines.append(record.passed.line())
    return lines


__all__ = ["sft"]
