"""`agentkernel train cost`: memory and hours of a training, computed; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from agentkernel.agents.models.local_presets import parse_local
from agentkernel.cli.console import console
from agentkernel.cli.terminal import print_json
from agentkernel.cli.train.options import CostFlags
from agentkernel.cli.train.outcome import print_line
from agentkernel.domain.errors import TrainingError
from agentkernel.tools.targets import find_target
from agentkernel.training.cost import (
    METHODS,
    PARTS,
    Method,
    Range,
    RlCost,
    SftCost,
    machine_of,
    rl_cost,
    sft_cost,
)
from agentkernel.training.model_shape import PUBLISHED, ModelShape, new_shape, read_shape
from agentkernel.training.settings import (
    RlSettings,
    SftSettings,
    TrainingSettings,
    load_training,
    with_model,
)

BASIS = "computed, not measured"


def cost(flags: CostFlags) -> None:
    """`agentkernel train cost`."""
    settings = with_model(load_training(flags.training, flags.overrides or ()), flags.model)
    shape = shape_of(settings)
    machine = machine_of(find_target(flags.target).target, flags.gpus, flags.judges)
    chosen = [settings.sft.evolve(method=item) for item in methods(settings)]
    tuned = [
        sft_cost(shape, sft, machine, flags.rows, flags.tokens_a_row)
        for sft in chosen
        if flags.only != "rl"
    ]
    practised = [
        rl_cost(shape, sft, settings.rl, machine, flags.tokens_a_row)
        for sft in chosen
        if flags.only != "sft"
    ]
    if flags.as_json:
        print_json(
            {
                "basis": BASIS,
                "name": settings.name,
                "parameters": shape.parameters,
                "shape": shape.model_dump(mode="json"),
                "target": machine.name,
                "gpus": flags.gpus,
                "rows": flags.rows,
                "tokens_a_row": flags.tokens_a_row,
                "judges": flags.judges,
                "sft": [item.model_dump(mode="json") for item in tuned],
                "rl": [item.model_dump(mode="json") for item in practised],
            }
        )
        return
    print_line(
        f"{BASIS}: {settings.name}, {shape.parameters:,} weights, {flags.gpus} x {machine.name}"
    )
    if tuned:
        _print_sft(tuned, settings.sft, flags)
    if practised:
        _print_rl(practised, settings.rl, flags)


def shape_of(settings: TrainingSettings) -> ModelShape:
    """The shape of the model that `settings` names or makes. Raises TrainingError for one that is
    neither here nor known."""
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
    own = settings.sft.method
    if settings.model is None:
        return (own,)
    return (own, *(item for item in METHODS if item != own))


def _print_sft(costs: Sequence[SftCost], sft: SftSettings, flags: CostFlags) -> None:
    often = f"{sft.epochs:g} x" if sft.most_steps is None else f"{sft.most_steps:,} steps"
    print_line(
        f"\nsft: {flags.rows:,} rows of {flags.tokens_a_row:,} tokens, {often}; "
        f"{sft.batch} x {sft.window:,} tokens at once on each GPU"
    )
    rows = {
        "weights trained": [f"{item.trained:,}" for item in costs],
        "operations, 1e18": [f"{item.eflop:.2g}" for item in costs],
        "time": [between(item.hours) for item in costs],
    }
    if flags.gpus > 1:
        lies = ["a part" if item.sharded else "all of it" for item in costs]
        hours = [[item.hours.low * flags.gpus, item.hours.high * flags.gpus] for item in costs]
        spent = [f"{low:.0f} - {high:.0f}" for low, high in hours]
        rows = {"model on each GPU": lies, **rows, "GPU hours": spent}
    _print(costs, rows)


def _print_rl(costs: Sequence[RlCost], rl: RlSettings, flags: CostFlags) -> None:
    of = f" of {rl.tried}" if rl.oversample > 1 else ""
    print_line(
        f"\nrl on one GPU: {rl.steps} steps of {rl.problems}{of} modules x {rl.rollouts} tries x "
        f"{rl.turns} turns of {flags.tokens_a_row:,} tokens, {flags.judges} judges"
    )
    rates = [item.tokens_per_s for item in costs]
    rows = {
        "tokens/s written": [f"{rate.low:,.0f} - {rate.high:,.0f}" for rate in rates],
        "writing": [between(item.write_hours) for item in costs],
        "learning": [between(item.learn_hours) for item in costs],
        "judging": [between(item.judge_hours) for item in costs],
        "time": [between(item.hours) for item in costs],
    }
    _print(costs, rows)


def _print(costs: Sequence[SftCost] | Sequence[RlCost], more: Mapping[str, list[str]]) -> None:
    """Each part of memory by name, "-" where a method has none; then the sum, whether there is
    room, and `more`."""
    memories = [item.memory for item in costs]
    by_name = [{part.name: part.gib for part in item.parts} for item in memories]
    rows = {
        name: [_gib(found.get(name)) for found in by_name]
        for name in PARTS
        if any(name in found for found in by_name)
    }
    rows["in all"] = [_gib(item.total_gib) for item in memories]
    fits = ["fits" if item.fits else "does not fit" for item in memories]
    rows[f"of {memories[0].room_gib:.0f}"] = fits
    table = Table(box=None, pad_edge=False)
    table.add_column("GiB a GPU")
    for item in costs:
        table.add_column(item.method, justify="right")
    for name, values in {**rows, **more}.items():
        table.add_row(name, *values)
    console().print(table)


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
