"""The roofline chart of a candidate and its baselines, as SVG and as text.

Log-log, arithmetic intensity against rate (Williams, Waterman, Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import Profile

Axis = Callable[[float], float]
LEAST_INTENSITY = 2.0**-6
"""FLOP a byte at which a problem without arithmetic is drawn."""
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 92
COLOURS = {"candidate": "#0b6e4f", "eager": "#9a3412", "torch.compile": "#1d4ed8"}
OTHER_COLOUR = "#6b7280"
MARKS = {"candidate": "●", "eager": "▲", "torch.compile": "■"}
OTHER_MARK = "◆"
TEXT_COLUMNS, TEXT_ROWS = 68, 14
AXIS_COLUMNS = 9


class Roof(NamedTuple):
    """What the hardware allows: GB/s of the slope, TFLOP/s of the flat part."""

    title: str
    gb_per_s: float
    peak_tflops: float

    def tflops(self, intensity: float) -> float:
        """The most TFLOP/s at `intensity` FLOP a byte."""
        return min(self.peak_tflops, intensity * self.gb_per_s / 1e3)


class DrawnSide(NamedTuple):
    """One side: FLOP a byte, TFLOP/s, microseconds."""

    label: str
    intensity: float
    tflops: float
    time_us: float


class RooflineDrawing(NamedTuple):
    """A roof with the points under it. `estimated`: nobody measured the times."""

    roof: Roof
    points: tuple[DrawnSide, ...]
    estimated: bool


class DecadeAxis(NamedTuple):
    """An axis in powers of ten, from `low` to `high`."""

    low: int
    high: int

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        return (math.log10(value) - self.low) / (self.high - self.low)


def drawing_of(profile: Profile, analysis: Analysis) -> RooflineDrawing:
    """The primary shape set of `profile`. The roof is made of the measured copy ceiling, or of the
    target's bandwidth, and of the compute peak that `analysis` used."""
    measured = profile.measurements[0] if profile.measurements else None
    bandwidth = (
        measured.copy_gb_per_s if measured else analysis.bytes_min / analysis.memory_time_us / 1e3
    )
    peak = analysis.flops / analysis.compute_time_us / 1e6 if analysis.compute_time_us else 1.0
    if measured:
        times = {"candidate": measured.candidate.median_us, "eager": measured.eager.median_us}
        if measured.compiled:
            times["torch.compile"] = measured.compiled.median_us
    else:
        times = {"candidate": profile.estimate.time_us}
        # An eager forward of views alone takes no time on a GPU: it has no point.
        if profile.baseline_estimate and profile.baseline_estimate.time_us > 0:
            times["eager"] = profile.baseline_estimate.time_us
    roof = Roof(profile.measured_on or profile.target, bandwidth, peak)
    points = tuple(to_point(label, analysis, time_us) for label, time_us in times.items())
    return RooflineDrawing(roof, points, measured is None)


def to_point(label: str, analysis: Analysis, time_us: float) -> DrawnSide:
    """Where a time stands: the problem's least traffic and its arithmetic over that time."""
    intensity = max(analysis.flops / max(analysis.bytes_min, 1), LEAST_INTENSITY)
    return DrawnSide(label, intensity, intensity * analysis.bytes_min / time_us / 1e6, time_us)


def roofline_svg(picture: RooflineDrawing) -> str:
    """A stand-alone SVG of 640 x 400."""
    across, up = _spans(picture)

    def x(value: float) -> float:
        return LEFT + across.place(value) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - up.place(value) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(_title(picture))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14" fill="#111827">{escape(_title(picture))}</text>',
    ]
    for power in range(across.low, across.high + 1):
        here = x(10.0**power)
        parts.append(_line(here, TOP, here, HEIGHT - BOTTOM, "#e5e7eb"))
        parts.append(_text(here, HEIGHT - BOTTOM + 16, _power(power), "middle"))
    for power in range(up.low, up.high + 1):
        here = y(10.0**power)
        parts.append(_line(LEFT, here, WIDTH - RIGHT, here, "#e5e7eb"))
        parts.append(_text(LEFT - 6, here + 4, _power(power), "end"))
    parts.append(
        f'<polyline points="{_roof_path(picture.roof, across, up, x, y)}" fill="none" '
        'stroke="#111827" stroke-width="2"/>'
    )
    parts.append(_text(WIDTH / 2, HEIGHT - BOTTOM + 34, "FLOP per byte", "middle"))
    parts.append(
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        'text-anchor="middle" fill="#374151">TFLOP/s</text>'
    )
    for number, point in reversed(list(enumerate(picture.points))):
        parts += _svg_point(point, number, x(point.intensity), y(point.tflops), picture.roof)
    return "\n".join([*parts, "</svg>\n"])


def roofline_text(picture: RooflineDrawing) -> str:
    """The same in 80 columns of Unicode text."""
    across, up = _spans(picture)
    grid = [[" "] * TEXT_COLUMNS for _ in range(TEXT_ROWS)]

    def row_of(tflops: float) -> int:
        return TEXT_ROWS - 1 - round(up.place(tflops) * (TEXT_ROWS - 1))

    for column in range(TEXT_COLUMNS):
        power = across.low + column / (TEXT_COLUMNS - 1) * (across.high - across.low)
        limit = picture.roof.tflops(10.0**power)
        if limit >= 10.0**up.low:
            flat = limit >= picture.roof.peak_tflops
            grid[row_of(limit)][column] = "─" if flat else "╱"
    for point in reversed(picture.points):
        column = round(across.place(point.intensity) * (TEXT_COLUMNS - 1))
        grid[row_of(point.tflops)][column] = MARKS.get(point.label, OTHER_MARK)
    ticks = {row_of(10.0**power): _power(power) for power in range(up.low, up.high + 1)}
    lines = [_title(picture), "TFLOP/s over FLOP per byte"]
    lines += [
        f"{ticks.get(number, ''):>{AXIS_COLUMNS - 1}} │{''.join(cells).rstrip()}"
        for number, cells in enumerate(grid)
    ]
    lines += [f"{'':>{AXIS_COLUMNS}}└{'─' * TEXT_COLUMNS}", _text_ticks(across)]
    lines += [
        f"  {MARKS.get(point.label, OTHER_MARK)} {_legend(point, picture.roof)}"
        for point in picture.points
    ]
    return "\n".join(lines) + "\n"


def _text_ticks(across: DecadeAxis) -> str:
    cells = [" "] * (AXIS_COLUMNS + 1 + TEXT_COLUMNS)
    for power in range(across.low, across.high + 1):
        label = _power(power)
        begin = AXIS_COLUMNS + 1 + round(across.place(10.0**power) * (TEXT_COLUMNS - 1))
        begin = min(begin, len(cells) - len(label))
        cells[begin : begin + len(label)] = label
    return "".join(cells).rstrip()


def _spans(picture: RooflineDrawing) -> tuple[DecadeAxis, DecadeAxis]:
    """Both axes in whole decades, with the ridge and every point inside."""
    roof = picture.roof
    ridge = roof.peak_tflops * 1e3 / roof.gb_per_s
    intensities = [ridge, *(point.intensity for point in picture.points)]
    across = DecadeAxis(
        math.floor(math.log10(min(intensities) / 2)), math.ceil(math.log10(max(intensities) * 3))
    )
    rates = [roof.peak_tflops * 1.2, *(point.tflops for point in picture.points)]
    up = DecadeAxis(math.floor(math.log10(min(rates) / 2)), math.ceil(math.log10(max(rates))))
    return across, up


def _roof_path(roof: Roof, across: DecadeAxis, up: DecadeAxis, x: Axis, y: Axis) -> str:
    """Slope and ceiling, cut off where the slope leaves the picture below."""
    ridge = roof.peak_tflops * 1e3 / roof.gb_per_s
    first = max(10.0**across.low, 10.0**up.low * 1e3 / roof.gb_per_s)
    corners = (first, ridge, 10.0**across.high)
    return " ".join(f"{x(value):.1f},{y(roof.tflops(value)):.1f}" for value in corners)


def _svg_point(point: DrawnSide, number: int, x: float, y: float, roof: Roof) -> Sequence[str]:
    colour = COLOURS.get(point.label, OTHER_COLOUR)
    legend_y = HEIGHT - BOTTOM + 54 + 15 * number
    return [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}" stroke="#ffffff"/>',
        f'<circle cx="{LEFT + 5}" cy="{legend_y - 4}" r="4" fill="{colour}"/>',
        _text(LEFT + 16, legend_y, _legend(point, roof), "start"),
    ]


def _legend(point: DrawnSide, roof: Roof) -> str:
    share = point.tflops / roof.tflops(point.intensity)
    return f"{point.label}: {point.time_us:.1f} µs, {share:.0%} of the roof"


def _title(picture: RooflineDrawing) -> str:
    roof = picture.roof
    basis = "estimated" if picture.estimated else "measured"
    return f"{roof.title} ({basis}): {roof.gb_per_s:.0f} GB/s, {roof.peak_tflops:.3g} TFLOP/s"


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -4 <= power <= 4 else f"1e{power}"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#374151">'
        f"{escape(words)}</text>"
    )
