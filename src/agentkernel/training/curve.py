"""Curve of a training: a line of `training.jsonl` for each point, and the picture made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.plain_text import plain
from agentkernel.storage.files import append_line, write_atomic
from agentkernel.tools.charts.chart import Axis, Chart, joined, linear_axis
from agentkernel.tools.charts.svg import Frame, svg_file

FILE, PICTURE = "training.jsonl", "training.svg"
FRAME = Frame(760, 300, left=64)
LEAST = 1e-6
"""What 0 is drawn as where each line is a power of ten."""


class Panel(NamedTuple):
    """A chart over steps: for each field of a point what its line is called, and its colour.
    `powers`: a power of ten a tick, as most of a training happens far below its first loss."""

    name: str
    lines: dict[str, tuple[str, str]]
    powers: bool = False


class CurvePoint(Frozen):
    """What was reached at a step; what was not looked at then is None."""

    panels: ClassVar[tuple[Panel, ...]]

    step: int


class LossPoint(CurvePoint):
    """One line of a fine-tuning's curve."""

    panels = (
        Panel(
            "",
            {
                "loss": ("loss of completions", "c1"),
                "held_out_loss": ("loss on held-out rows", "c2"),
            },
            powers=True,
        ),
        Panel("pass@1 on held-out modules, by judging", {"pass_at_1": ("", "c3")}),
    )

    epoch: float
    tokens: int
    seconds: float
    loss: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    held_out_loss: float | None = None
    pass_at_1: float | None = None
    hack_rate: float | None = None
    problems: int | None = None


class RlPoint(CurvePoint):
    """One step of practice: the answers that it learned from, as they were before it.

    `turns` are this step's, `seconds` the whole training's until then. `first` and `solved` are
    shares of tries, right at the first turn or at any; the other shares are of turns. `speedup` is
    the mean of right kernels over eager, capped as it is paid. Where more modules were tried than
    are judged (`rl.oversample`), all of it is of the judged ones, which a model is least sure of.
    """

    panels = (
        Panel("reward a turn, mean", {"reward": ("", "c1")}),
        Panel("share of turns that are right", {"correct": ("", "c3")}),
        Panel("share of turns that cheat", {"hack_rate": ("", "c2")}),
        Panel("speedup of right kernels over eager, capped, mean", {"speedup": ("", "c4")}),
    )

    seconds: float
    turns: float
    reward: float
    first: float
    solved: float
    correct: float
    hack_rate: float
    no_file: float
    undecided: float
    speedup: float | None = None
    own_share: float | None = None
    rejected: float = 0.0
    learned: float = 0.0
    """Turns whose advantage is not 0."""
    tried: float | None = None
    """Modules that were tried, judged or not; None in older curves."""
    entropy: float | None = None
    gradient_norm: float | None = None
    loss: float | None = None
    answer_tokens: float = 0.0
    write_s: float | None = None
    judge_s: float | None = None


P = TypeVar("P", bound=CurvePoint)


def add_point(out: Path, point: CurvePoint) -> None:
    """Append it to `training.jsonl`. Raises OutputError."""
    append_line(out / FILE, point.model_dump_json(exclude_none=True))


def read_points(out: Path, kind: type[P]) -> tuple[P, ...]:
    """All whole lines; what a kill left of the last one is no point."""
    path = out / FILE
    if not path.is_file():
        return ()
    found: list[P] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(kind.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def drop_points_after(out: Path, step: int, kind: type[CurvePoint]) -> None:
    """Leave out what was reached after `step`, and what a kill left: it is done once more."""
    if (out / FILE).is_file():
        kept = [point for point in read_points(out, kind) if point.step <= step]
        lines = (f"{point.model_dump_json(exclude_none=True)}\n" for point in kept)
        write_atomic(out / FILE, "".join(lines))


def draw_curve(out: Path, title: str, kind: type[CurvePoint]) -> None:
    """Write the picture beside the points."""
    points = read_points(out, kind)
    write_atomic(out / PICTURE, plain(curve_svg(points, kind.panels, title)))


def curve_svg(points: Sequence[CurvePoint], panels: Sequence[Panel], title: str) -> str:
    """A stand-alone SVG: the panels one below the other."""
    last = max((point.step for point in points), default=1)
    steps = linear_axis(0, last, 5, "steps", whole=True)
    return svg_file(title, [_chart(points, panel, steps) for panel in panels], FRAME)


def _chart(points: Sequence[CurvePoint], panel: Panel, steps: Axis) -> Chart:
    lines = []
    for field, (name, colour) in panel.lines.items():
        known = [(point.step, getattr(point, field)) for point in points]
        values = [(step, float(value)) for step, value in known if value is not None]
        floor = LEAST if panel.powers else -math.inf
        if values:
            lines.append(joined(name, colour, [(step, max(y, floor)) for step, y in values]))
    heights = [y for line in lines for _, y in line.points]
    if panel.powers:
        low = math.floor(math.log10(min(heights, default=1.0)))
        high = max(math.ceil(math.log10(max(heights, default=1.0))), low + 1)
        up = Axis(10.0**low, 10.0**high)
    else:
        least, most = min([0.0, *heights]), max(heights, default=1.0)
        up = linear_axis(least, most * 1.05 if most > least else least + 1.0, 2)
    return Chart(panel.name, steps, up, tuple(lines), nothing="nothing known")
