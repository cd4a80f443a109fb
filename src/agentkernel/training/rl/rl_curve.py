"""How did reward, right kernels, cheats and speedup change, step by step?

`training.jsonl` has a line a step; the picture is made from it and can be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.plain_text import plain
from agentkernel.storage.atomic import append_line, write_atomic
from agentkernel.training.curve import FILE, PICTURE

WIDTH, PANEL, TOP = 760, 150, 40
LEFT, RIGHT, GAP = 64, 24, 34


class RlPoint(Frozen):
    """One step: the answers that it learned from, as they were before it.

    `turns` are this step's, `seconds` the whole training's until then. `first` and `solved` are
    shares of tries, right at the first turn or at any; the other shares are of turns. `speedup` is
    the mean of right kernels over eager, capped as it is paid. Where more modules were tried than
    are judged (`rl.oversample`), all of it is of the judged ones, which a model is least sure of.
    """

    step: int
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


class _Panel(NamedTuple):
    name: str
    field: str
    colour: str


PANELS = (
    _Panel("reward a turn, mean", "reward", "#1d4ed8"),
    _Panel("share of turns that are right", "correct", "#0b6e4f"),
    _Panel("share of turns that cheat", "hack_rate", "#9a3412"),
    _Panel("speedup of right kernels over eager, capped, mean", "speedup", "#6d28d9"),
)


def add_rl_point(out: Path, point: RlPoint) -> None:
    """Append it to `training.jsonl`. Raises OutputError."""
    append_line(out / FILE, point.model_dump_json(exclude_none=True))


def read_rl_points(out: Path) -> tuple[RlPoint, ...]:
    """All whole lines; what a kill left of the last one is no point."""
    path = out / FILE
    if not path.is_file():
        return ()
    found: list[RlPoint] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(RlPoint.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def drop_rl_points_after(out: Path, step: int) -> None:
    """Leave out what was reached after `step`, and what a kill left: it is done once more."""
    if (out / FILE).is_file():
        kept = [point for point in read_rl_points(out) if point.step <= step]
        lines = (f"{point.model_dump_json(exclude_none=True)}\n" for point in kept)
        write_atomic(out / FILE, "".join(lines))


def draw_rl_curve(out: Path, title: str) -> None:
    """Write the picture beside the points."""
    write_atomic(out / PICTURE, plain(rl_curve_svg(read_rl_points(out), title)))


def rl_curve_svg(points: Sequence[RlPoint], title: str) -> str:
    """A stand-alone SVG: a panel each for reward, right kernels, cheats and speedup, over steps."""
    height = TOP + len(PANELS) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 22, title, "start"),
    ]
    last = max((point.step for point in points), default=1)
    for number, panel in enumerate(PANELS):
        parts += _panel(points, panel, TOP + number * (PANEL + GAP), last)
    return "\n".join([*parts, "</svg>\n"])


def _panel(points: Sequence[RlPoint], panel: _Panel, top: float, last: int) -> list[str]:
    values = [
        (point.step, float(value))
        for point in points
        if (value := getattr(point, panel.field)) is not None
    ]
    low = min(0.0, *(value for _, value in values)) if values else 0.0
    high = max((value for _, value in values), default=1.0)
    high = high * 1.05 if high > low else low + 1.0

    def place(step: int, value: float) -> str:
        x = LEFT + step / max(last, 1) * (WIDTH - LEFT - RIGHT)
        y = top + 16 + (1 - (value - low) / (high - low)) * (PANEL - 16)
        return f"{x:.1f},{y:.1f}"

    lines = [_text(LEFT, top + 10, panel.name, "start")]
    for value in (low, (low + high) / 2, high):
        left, y = place(0, value).split(",")
        lines += [
            f'<line x1="{left}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e5e7eb"/>',
            _text(LEFT - 6, float(y) + 4, f"{value:.3g}", "end"),
        ]
    for step in (0, last):
        x = float(place(step, low).split(",")[0])
        lines.append(_text(x, top + PANEL + 14, f"{step}", "middle"))
    joined = " ".join(place(step, value) for step, value in values)
    drawn = f'<polyline points="{joined}" fill="none" stroke="{panel.colour}" stroke-width="1.5"/>'
    nothing = _text(WIDTH / 2, top + PANEL / 2, "nothing known", "middle")
    return [*lines, drawn if values else nothing]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#374151">'
        f"{escape(words)}</text>"
    )


__all__ = [
    "RlPoint",
    "add_rl_point",
    "draw_rl_curve",
    "drop_rl_points_after",
    "read_rl_points",
    "rl_curve_svg",
]
