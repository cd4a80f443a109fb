"""`agentkernel train cost`: what will a training need in memory and hours, before it is begun?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentkernel.cli.options import AsJson, Overrides
from agentkernel.cli.train.train_options import Training, print_line

if TYPE_CHECKING:
    from agentkernel.training.cost import Range, RlCost, SftCost
    from agentkernel.training.memory import Memory, Method
    from agentkernel.training.shapes import ModelShape
    from agentkernel.training.training import RlSettings, SftSettings, TrainingSettings

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
    from agentkernel.cli.output import print_json
    from agentkernel.tools.targets import find_target
    from agentkernel.training.configuration import load_training, with_model
    from agentkernel.training.cost import machine_of, rl_cost, sft_cost
    from agentkernel.training.memory import is_checkpointed

    settings = with_model(load_training(training, overrides or ()), model)
    shape = shape_of(settings)
    machine = machine_of(find_target(target).target, gpus, judges)
    chosen = [settings.sft.model_copy(update={"method": item}) for item in methods(settings)]
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
    from agentkernel.training.shapes import PUBLISHED, new_shape, read_shape

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
    from agentkernel.training.memory import METHODS

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

    from agentkernel.cli.output import console

    table = Table(box=None, pad_edge=False)
    table.add_column("GiB a GPU")
    for name in names:
        table.add_column(name, justify="right")
    for name, values in (*memory_rows(memories), *more):
        table.add_row(name, *values)
    console().print(table)


def memory_rows(memories: Sequence[Memory]) -> list[tuple[str, list[str]]]:
    """Each part by name, "-" where a method has none; then the sum, and whether there is room."""
    from agentkernel.training.memory import PARTS

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


__all__ = ["between", "cost", "memory_rows", "methods", "shape_of"]
