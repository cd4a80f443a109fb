"""How did the loss fall, and what did the held-out modules say, step by step?

`training.jsonl` has a line a point; the picture is made from it and can be made again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.plain_text import plain
from agentkernel.storage.atomic import append_line, write_atomic

FILE, PICTURE = "training.jsonl", "training.svg"
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 56, 40, 72
LOSS, HELD_OUT, PASS = "#1d4ed8", "#9a3412", "#0b6e4f"
TICKS = 5
"""Of the axis of steps."""
LEAST_LOSS = 1e-6
"""What a loss of 0 is drawn as."""


class LossPoint(Frozen):
    """One line of the curve; what was not looked at then is None."""

    step: int
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


def add_point(out: Path, point: LossPoint) -> None:
    """Append it to `training.jsonl`. Raises OutputError."""
    append_line(out / FILE, point.model_dump_json(exclude_none=True))


def read_points(out: Path) -> tuple[LossPoint, ...]:
    """All whole lines; what a kill left of the last one is no point."""
    path = out / FILE
    if not path.is_file():
        return ()
    found: list[LossPoint] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(LossPoint.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def drop_points_after(out: Path, step: int) -> None:
    """Leave out what was reached after `step`: it is trained once more."""
    points = read_points(out)
    kept = [point for point in points if point.step <= step]
    if len(kept) < len(points):
        lines = "".join(f"{point.model_dump_json(exclude_none=True)}\n" for point in kept)
        write_atomic(out / FILE, lines)


def draw_curve(out: Path, title: str) -> None:
    """Write the picture beside the points."""
    write_atomic(out / PICTURE, plain(curve_svg(read_points(out), title)))


def curve_svg(points: Sequence[LossPoint], title: str) -> str:
    """A stand-alone SVG: losses on the left axis, a power of ten a line, as most of a training
    happens far below its first loss; pass@1 on the right one."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 22, title, "start"),
    ]
    losses = [
        value
        for point in points
        for value in (point.loss, point.held_out_loss)
        if value is not None
    ]
    if not losses:
        return "\n".join(
            [*parts, _text(WIDTH / 2, HEIGHT / 2, "no step yet", "middle"), "</svg>\n"]
        )
    last, decades = max(point.step for point in points), _decades(losses)
    parts += _grid(last, decades)
    trained = [
        (point.step, _part(point.loss, decades)) for point in points if point.loss is not None
    ]
    held = [
        (point.step, _part(point.held_out_loss, decades))
        for point in points
        if point.held_out_loss is not None
    ]
    passed = [(point.step, point.pass_at_1) for point in points if point.pass_at_1 is not None]
    kinds = (
        (trained, LOSS, "loss of completions"),
        (held, HELD_OUT, "loss on held-out rows"),
        (passed, PASS, "pass@1 on held-out modules, by judging (right axis)"),
    )
    for number, (places, colour, name) in enumerate(item for item in kinds if item[0]):
        parts += _line(places, last, colour)
        parts += _legend(number, colour, name)
    if passed:
        parts += [
            _text(WIDTH - RIGHT + 6, _y(share / 4) + 4, f"{share / 4:.2f}", "start")
            for share in range(5)
        ]
    return "\n".join([*parts, "</svg>\n"])


def _decades(losses: Sequence[float]) -> tuple[int, int]:
    """The powers of ten below and above all of them."""
    low = math.floor(math.log10(max(min(losses), LEAST_LOSS)))
    return low, max(math.ceil(math.log10(max(*losses, LEAST_LOSS))), low + 1)


def _part(loss: float, decades: tuple[int, int]) -> float:
    """How far up the left axis it is, 0 to 1."""
    low, high = decades
    return (math.log10(max(loss, LEAST_LOSS)) - low) / (high - low)


def _grid(last: int, decades: tuple[int, int]) -> list[str]:
    lines: list[str] = []
    low, high = decades
    for power in range(low, high + 1):
        y = _y(_part(10.0**power, decades))
        lines.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e7eb"/>'
        )
        lines.append(_text(LEFT - 6, y + 4, f"{10.0**power:g}", "end"))
    for tick in range(TICKS + 1):
        x = _x(tick / TICKS)
        lines.append(_text(x, HEIGHT - BOTTOM + 18, f"{round(last * tick / TICKS)}", "middle"))
    lines.append(
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, "optimizer steps", "middle")
    )
    return lines


def _line(places: Sequence[tuple[int, float]], last: int, colour: str) -> list[str]:
    drawn = [(_x(step / max(last, 1)), _y(part)) for step, part in places]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
    line = f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    dots = drawn if len(drawn) <= 40 else ()
    return [
        line,
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in dots),
    ]


def _legend(number: int, colour: str, name: str) -> list[str]:
    left, base = LEFT + 220 * number, HEIGHT - 12
    dot = f'<circle cx="{left + 5}" cy="{base - 4}" r="4" fill="{colour}"/>'
    return [dot, _text(left + 16, base, name, "start")]


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(part: float) -> float:
    return HEIGHT - BOTTOM - min(max(part, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#374151">'
        f"{escape(words)}</text>"
    )


__all__ = [
    "FILE",
    "PICTURE",
    "LossPoint",
    "add_point",
    "curve_svg",
    "draw_curve",
    "drop_points_after",
    "read_points",
]
