"""Where do the regions of a night stand under the roofline?

Log-log, arithmetic intensity against rate (Williams, Waterman, Patterson, CACM 52(4), 2009).
Regions without a count of operations are drawn by their time against the roofline's instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from agentkernel.domain.night import Night, RegionRow
from agentkernel.domain.region import Basis, Kernel
from agentkernel.domain.target import Target
from agentkernel.errors import AgentKernelError
from agentkernel.tools.nights.drawing import Frame, LogAxis, figure, line, opened, path, words
from agentkernel.tools.nights.wording import dtypes_of, us
from agentkernel.tools.profile.picture import LEAST_INTENSITY
from agentkernel.tools.targets import find_target

WIDE, NARROW = Frame(600, 370), Frame(370, 340, left=50, right=10)
NUMBERED = 9
"""So many points carry their number in the table."""
PEAKS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
}


class Dot(NamedTuple):
    """One thing at `x`, now at `y`; at `before` as eager. `name` is its colour's class."""

    label: str
    x: float
    y: float
    before: float | None
    name: str
    href: str = ""
    number: int = 0


class Roof(NamedTuple):
    """A limit as corners (x, y), and its name."""

    name: str
    corners: tuple[tuple[float, float], ...]


class Plot(NamedTuple):
    """Dots under roofs. `left_out`: how many could not be drawn."""

    title: str
    x_title: str
    y_title: str
    dots: tuple[Dot, ...]
    roofs: tuple[Roof, ...]
    estimated: bool
    left_out: int = 0


def region_plot(
    night: Night, rows: Sequence[RegionRow], kernels: Mapping[str, Kernel], basis: Basis
) -> Plot | None:
    """The regions of one basis, numbered in the order of `rows`; None where there are none."""
    numbered = [(number, row) for number, row in enumerate(rows, 1) if row.basis == basis]
    counted = [(number, row, _work(row, kernels)) for number, row in numbered]
    known = [item for item in counted if item[2] is not None]
    if 2 * len(known) < len(counted) or not known:
        return _by_time([item for item in numbered if item[1].bound_us > 0], len(numbered), basis)
    dots = tuple(_dot(number, row, work) for number, row, work in known if work is not None)
    return Plot(
        title=f"Roofline of {len(dots)} regions ({basis})",
        x_title="FLOP per byte",
        y_title="TFLOP/s",
        dots=dots,
        roofs=_roofs(night.target, dtypes_of(row.shapes for _, row, _ in known), dots),
        estimated=basis == "estimated",
        left_out=len(counted) - len(dots),
    )


def plot_svg(plot: Plot, frame: Frame, name: str) -> str:
    """The plot in one size."""
    xs = [dot.x for dot in plot.dots]
    ys = [value for dot in plot.dots for value in (dot.y, dot.before) if value]
    tops = [corner[1] for roof in plot.roofs for corner in roof.corners[1:]]
    ridges = [roof.corners[1][0] for roof in plot.roofs if len(roof.corners) > 2]
    across = LogAxis(min([*xs, *ridges]) / 2, max([*xs, *ridges]) * 3, frame.across)
    up = LogAxis(min(ys) / 2, max([*ys, *tops]) * 1.6, frame.up)

    def place(x: float, y: float) -> tuple[float, float]:
        return frame.left + across.place(x), frame.height - frame.bottom - up.place(y)

    parts = [opened(frame, name, plot.title), *_grid(frame, across, up, plot)]
    for roof in plot.roofs:
        parts += _roof(roof, across, up, place(*roof.corners[-1]), frame)
    for dot in plot.dots:
        parts += _marks(dot, frame, across, up)
    return "".join([*parts, "</svg>"])


def best_us(row: RegionRow) -> float:
    """Microseconds of what is in use: the kernel where there is one, else eager."""
    return row.time_us if row.time_us else row.eager_us


def _work(row: RegionRow, kernels: Mapping[str, Kernel]) -> tuple[int, int] | None:
    """FLOPs and least bytes of one call, of the row or of its kernel's plan."""
    if row.flops is not None and row.bytes_min:
        return row.flops, row.bytes_min
    kernel = kernels.get(row.sha256 or "")
    plan = kernel.certificate.plan if kernel is not None else None
    if plan is None or not plan.analysis.bytes_min:
        return None
    return plan.analysis.flops, plan.analysis.bytes_min


def _dot(number: int, row: RegionRow, work: tuple[int, int]) -> Dot:
    flops, size = work
    intensity = max(flops / size, LEAST_INTENSITY)
    rate = intensity * size / 1e6
    return Dot(
        label=f"{number}. {row.name}: {us(best_us(row))}, eager {us(row.eager_us)}",
        x=intensity,
        y=rate / best_us(row),
        before=rate / row.eager_us if row.time_us else None,
        name="kernel" if row.time_us else "baseline",
        href=f"#region-{row.signature}",
        number=number,
    )


def _by_time(rows: Sequence[tuple[int, RegionRow]], total: int, basis: Basis) -> Plot | None:
    """Rate as a share of the roof cannot be drawn: calls a second against the roofline's."""
    if not rows:
        return None
    dots = tuple(
        Dot(
            label=f"{number}. {row.name}: {us(best_us(row))}, bound {us(row.bound_us)}",
            x=1e3 / row.bound_us,
            y=1e3 / best_us(row),
            before=1e3 / row.eager_us if row.time_us else None,
            name="kernel" if row.time_us else "baseline",
            href=f"#region-{row.signature}",
            number=number,
        )
        for number, row in rows
    )
    ends = min(dot.x for dot in dots) / 2, max(dot.x for dot in dots) * 3
    roof = Roof("the roofline's own", tuple((end, end) for end in ends))
    title = f"{len(dots)} regions against their roofline bound ({basis})"
    across, up = "calls a ms at the roofline's bound", "calls a ms"
    return Plot(title, across, up, dots, (roof,), basis == "estimated", total - len(rows))


def _roofs(target: str, dtypes: Sequence[str], dots: Sequence[Dot]) -> tuple[Roof, ...]:
    """Slope and ceiling for each dtype, of the target's description; none for an unknown one."""
    try:
        found: Target = find_target(target).target
    except AgentKernelError:
        return ()
    copy = found.copy_gb_per_s or found.dram_gb_per_s
    slope = copy.value / 1e3
    peaks: dict[float, list[str]] = {}
    for name in dtypes:
        key = PEAKS.get(name, "")
        if key in found.peak_tflops:
            peaks.setdefault(found.peak_tflops[key].value, []).append(key)
    low = min(dot.x for dot in dots) / 2
    return tuple(
        Roof(
            f"{' and '.join(names)} {figure(peak)} TFLOP/s",
            ((low, low * slope), (peak / slope, peak), (max(peak / slope, low) * 1e4, peak)),
        )
        for peak, names in sorted(peaks.items())
    )


def _grid(frame: Frame, across: LogAxis, up: LogAxis, plot: Plot) -> list[str]:
    low, left, right = frame.height - frame.bottom, frame.left, frame.width - frame.right
    parts = []
    for value in across.ticks():
        x = left + across.place(value)
        parts += [line(x, frame.top, x, low, "grid"), words(x, low + 16, figure(value))]
    for value in up.ticks():
        y = low - up.place(value)
        parts += [
            line(left, y, right, y, "grid"),
            words(left - 6, y + 4, figure(value), anchor="end"),
        ]
    middle = frame.top + frame.up / 2
    parts.append(words(left + frame.across / 2, low + 35, plot.x_title, "title"))
    parts.append(
        f'<text class="title" transform="translate(12 {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle">{escape(plot.y_title)}</text>'
    )
    return parts


def _roof(
    roof: Roof, across: LogAxis, up: LogAxis, end: tuple[float, float], frame: Frame
) -> list[str]:
    """Slope from where it enters the drawing, ceiling to its right end."""
    low = frame.height - frame.bottom
    first_x, first_y = roof.corners[0]
    rate = first_y / first_x
    enter = max(across.low, up.low / rate)
    corners = [(enter, enter * rate), *roof.corners[1:]]
    if len(roof.corners) == 2:
        corners = [(enter, enter), (min(across.high, up.high), min(across.high, up.high))]
    drawn = [(frame.left + across.place(x), low - up.place(y)) for x, y in corners]
    label_x = frame.width - frame.right - 4
    return [path(drawn, "roof"), words(label_x, drawn[-1][1] - 6, roof.name, "roofname", "end")]


def _marks(dot: Dot, frame: Frame, across: LogAxis, up: LogAxis) -> list[str]:
    low = frame.height - frame.bottom
    x, y = frame.left + across.place(dot.x), low - up.place(dot.y)
    parts = [f'<a href="{dot.href}">' if dot.href else "<g>"]
    parts.append(f"<title>{escape(dot.label)}</title>")
    if dot.before is not None:
        y0 = low - up.place(dot.before)
        parts += [
            line(x, y0, x, y, "step"),
            f'<circle class="before" cx="{x:.1f}" cy="{y0:.1f}" r="3"/>',
        ]
    parts.append(f'<circle class="dot {dot.name}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
    if 0 < dot.number <= NUMBERED:
        parts.append(words(x + 8, y + 4, str(dot.number), "number", "start"))
    return [*parts, "</a>" if dot.href else "</g>"]
