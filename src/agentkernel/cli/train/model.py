"""`agentkernel train cost`, `sft` and `rl`: the cost of a training, and the training itself.

`cost` computes memory and hours and runs nothing. `sft` fine-tunes a model or makes a new one,
and `rl` continues with rewards from the judge; the same call continues after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentkernel.cli.options import AsJson, Overrides
from agentkernel.cli.train.options import (
    EXIT_INTERRUPTED,
    DataFolder,
    ModelFolder,
    Training,
    judging_device,
    line_printer,
    print_line,
    print_outcome,
)

if TYPE_CHECKING:
    from agentkernel.training.cost import Memory, Method, Range, RlCost, SftCost
    from agentkernel.training.model_shape import ModelShape
    from agentkernel.training.rl.train import RlResult
    from agentkernel.training.settings import RlSettings, SftSettings, TrainingSettings
    from agentkernel.training.sft.train import SftResult


BASIS = "computed, not measured"
CostedModel = Annotated[
    str | None,
    typer.Option("--model", metavar="PATH", help="A folder of weights, in place of the config's."),
]
MachineGpus = Annotated[int, typer.Option("--gpus", min=1, help="GPUs of one machine.")]
CostedTarget = Annotated[
    str | None, typer.Option("--target", help="The GPU; the local one, else h100.")
]
Rows = Annotated[int, typer.Option("--rows", min=1, help="Rows that are learned from.")]
Tokens = Annotated[
    int, typer.Option("--tokens-a-row", min=2, help="Of question and answer, on the average.")
]
Only = Annotated[
    Literal["sft", "rl"] | None, typer.Option("--only", help="One of the two trainings.")
]
Judges = Annotated[int, typer.Option("--judges", min=1, help="Processes that judge while rl runs.")]


def cost(
    training: Training = "qwen2.5-coder-3b",
    model: CostedModel = None,
    gpus: MachineGpus = 1,
    target: CostedTarget = None,
    rows: Rows = 30_000,
    tokens_a_row: Tokens = 1500,
    judges: Judges = 16,
    only: Only = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Compute the memory and hours that sft and rl need, by method; nothing is run."""
    from agentkernel.cli.terminal import print_json
    from agentkernel.tools.targets import find_target
    from agentkernel.training.cost import is_checkpointed, machine_of, rl_cost, sft_cost
    from agentkernel.training.settings import load_training, with_model

    settings = with_model(load_training(training, overrides or ()), model)
    shape = shape_of(settings)
    machine = machine_of(find_target(target).target, gpus, judges)
    chosen = [settings.sft.evolve(method=item) for item in methods(settings)]
    tuned = [sft_cost(shape, sft, machine, rows, tokens_a_row) for sft in chosen if only != "rl"]
    practised = [
        rl_cost(shape, sft, settings.rl, machine, tokens_a_row) for sft in chosen if only != "sft"
    ]
    if as_json:
        print_json(
            {
                "basis": BASIS,
                "name": settings.name,
                "parameters": shape.parameters,
                "shape": shape.model_dump(mode="json"),
                "target": machine.name,
                "gpus": gpus,
                "rows": rows,
                "tokens_a_row": tokens_a_row,
                "judges": judges,
                "sft": [item.model_dump(mode="json") for item in tuned],
                "rl": [item.model_dump(mode="json") for item in practised],
            }
        )
        return
    print_line(f"{BASIS}: {settings.name}, {shape.parameters:,} weights, {gpus} x {machine.name}")
    if not is_checkpointed(shape):
        print_line("Shares of the peak are those of larger models: this one takes longer.")
    if tuned:
        print_line(_sft_line(settings.sft, rows, tokens_a_row))
        _print_sft(tuned, gpus)
    if practised:
        print_line(_rl_line(settings.rl, tokens_a_row, judges))
        _print_rl(practised)


def shape_of(settings: TrainingSettings) -> ModelShape:
    """The shape of the model that `settings` names or makes. Raises TrainingError for one that is
    neither here nor known."""
    from pathlib import Path

    from agentkernel.agents.models.local_presets import parse_local
    from agentkernel.domain.errors import TrainingError
    from agentkernel.training.model_shape import PUBLISHED, new_shape, read_shape

    if settings.model is None:
        assert settings.new is not None
        return new_shape(settings.new)
    name = parse_local(settings.model).model
    folder = Path(name).expanduser()
    if folder.is_dir():
        return read_shape(folder)
    if name in PUBLISHED:
        return PUBLISHED[name]
    raise TrainingError(
        f"Nobody here knows the shape of {name!r}. Expected a folder with a config.json, or one of "
        f"{', '.join(PUBLISHED)}. Next: --model FOLDER."
    )


def methods(settings: TrainingSettings) -> tuple[Method, ...]:
    """The configuration's own first; a new model has nothing to put an adapter on."""
    from agentkernel.training.cost import METHODS

    own = settings.sft.method
    if settings.model is None:
        return (own,)
    return (own, *(item for item in METHODS if item != own))


def _sft_line(sft: SftSettings, rows: int, tokens: int) -> str:
    often = f"{sft.epochs:g} x" if sft.most_steps is None else f"{sft.most_steps:,} steps"
    return (
        f"\nsft: {rows:,} rows of {tokens:,} tokens, {often}; "
        f"{sft.batch} x {sft.window:,} tokens at once on each GPU"
    )


def _rl_line(rl: RlSettings, tokens: int, judges: int) -> str:
    of = f" of {rl.tried}" if rl.oversample > 1 else ""
    return (
        f"\nrl on one GPU: {rl.steps} steps of {rl.problems}{of} modules x {rl.rollouts} tries x "
        f"{rl.turns} turns of {tokens:,} tokens, {judges} judges"
    )


def _print_sft(costs: Sequence[SftCost], gpus: int) -> None:
    rows = [
        ("weights trained", [f"{item.trained:,}" for item in costs]),
        ("operations, 1e18", [f"{item.eflop:.2g}" for item in costs]),
        ("time", [between(item.hours) for item in costs]),
    ]
    if gpus > 1:
        lies = ["a part" if item.sharded else "all of it" for item in costs]
        hours = [f"{item.hours.low * gpus:.0f} - {item.hours.high * gpus:.0f}" for item in costs]
        rows = [("model on each GPU", lies), *rows, ("GPU hours", hours)]
    _print([item.method for item in costs], [item.memory for item in costs], rows)


def _print_rl(costs: Sequence[RlCost]) -> None:
    rates = [item.tokens_per_s for item in costs]
    rows = [
        ("tokens/s written", [f"{rate.low:,.0f} - {rate.high:,.0f}" for rate in rates]),
        ("writing", [between(item.write_hours) for item in costs]),
        ("learning", [between(item.learn_hours) for item in costs]),
        ("judging", [between(item.judge_hours) for item in costs]),
        ("time", [between(item.hours) for item in costs]),
    ]
    _print([item.method for item in costs], [item.memory for item in costs], rows)


def _print(
    names: Sequence[str], memories: Sequence[Memory], more: Sequence[tuple[str, list[str]]]
) -> None:
    from rich.table import Table

    from agentkernel.cli.terminal import console

    table = Table(box=None, pad_edge=False)
    table.add_column("GiB a GPU")
    for name in names:
        table.add_column(name, justify="right")
    for name, values in (*memory_rows(memories), *more):
        table.add_row(name, *values)
    console().print(table)


def memory_rows(memories: Sequence[Memory]) -> list[tuple[str, list[str]]]:
    """Each part by name, "-" where a method has none; then the sum, and whether there is room."""
    from agentkernel.training.cost import PARTS

    by_name = [{part.name: part.gib for part in item.parts} for item in memories]
    rows = [
        (name, [_gib(found.get(name)) for found in by_name])
        for name in PARTS
        if any(name in found for found in by_name)
    ]
    rows.append(("in all", [_gib(item.total_gib) for item in memories]))
    room = f"of {memories[0].room_gib:.0f}"
    rows.append((room, ["fits" if item.fits else "does not fit" for item in memories]))
    return rows


def _gib(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 0.05 else "< 0.1"


def between(hours: Range) -> str:
    """Both ends in hours, or in minutes where the longer is no hour."""
    times, unit = (1, "h") if hours.high >= 1 else (60, "min")
    return f"{_digits(hours.low * times)} - {_digits(hours.high * times)} {unit}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


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
    from agentkernel.cli.terminal import progress_bar
    from agentkernel.training.settings import load_training

    settings = load_training(training, overrides or ())
    if gpus != "1":
        _launch_ranks(context, gpus)
    from agentkernel.training.distributed import current_ranks
    from agentkernel.training.sft.train import HeldOutJudging, train_sft

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
    from agentkernel.training.distributed import command_of, current_ranks, gpus_of, launch

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


PolicyWeights = Annotated[
    str,
    typer.Option(
        "--model", metavar="NAME_OR_PATH", help="Weights to begin with, as of 'train sft'."
    ),
]
SpeedupTarget = Annotated[
    str | None, typer.Option("--target", help="GPU that speedups are of; the local one, else h100.")
]
Device = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option("--device", help="Where answers are judged; cpu is the interpreter."),
]
SpeedBy = Annotated[
    Literal["measured", "estimated", "none"] | None,
    typer.Option("--speed", help="How fast right kernels are; measured where a GPU is."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes that judge; one a processor.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Judge on a Ray cluster: auto, local, ray://HOST:10001."
    ),
]


def rl(
    data: DataFolder,
    model: PolicyWeights,
    out: ModelFolder,
    training: Training = "small",
    target: SpeedupTarget = None,
    device: Device = None,
    speed: SpeedBy = None,
    jobs: Jobs = None,
    ray: RayAddress = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Let a model practise on the training modules, several turns each, rewarded by the judge; the
    same call goes on after a kill."""
    from agentkernel.cli.terminal import progress_bar
    from agentkernel.tools.targets import find_target
    from agentkernel.training.rl.judge_pool import RlJudging
    from agentkernel.training.rl.train import train_rl
    from agentkernel.training.settings import load_training

    settings = load_training(training, overrides or ())
    if device is not None and ray is None:  # a cluster's workers have GPUs of their own
        resolved = find_target(target)
        judging_device(device, measurable=resolved.measurable, target=resolved.target.name)
    rl_judging = RlJudging(target=target, device=device, speed=speed, jobs=jobs, ray=ray)
    with progress_bar("practice", silent=as_json) as show:
        done = train_rl(
            data,
            settings,
            out,
            model=model,
            rl_judging=rl_judging,
            say=line_printer(as_json),
            show=show,
        )
    print_outcome(done, done.record, done.record.ended, rl_lines(done), as_json=as_json)


def rl_lines(done: RlResult) -> list[str]:
    """What came out."""
    record = done.record
    lines = [
        f"{record.steps} of {record.planned_steps} steps, {record.turns:,} answers to "
        f"{record.problems:,} modules judged in {record.seconds:.0f} s on {record.device}"
    ]
    if record.begin is not None and record.end is not None:
        first, last = record.begin, record.end
        faster = "" if last.speedup is None else f", speedup {last.speedup:.2f} ({record.speed})"
        lines.append(
            f"reward {first.reward:.3f} -> {last.reward:.3f}, right at once {first.first:.1%} -> "
            f"{last.first:.1%}, cheats {first.hack_rate:.1%} -> {last.hack_rate:.1%}{faster} "
            f"(means of {first.steps} steps)"
        )
    return lines
