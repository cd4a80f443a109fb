"""The roofline chart of a candidate and its baselines.

Log-log, arithmetic intensity against rate (Williams, Waterman, Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import Profile
from agentkernel.tools.charts.chart import Axis, Chart, Limit, Series
from agentkernel.tools.charts.svg import Frame, svg_file

LEAST_INTENSITY = 2.0**-6
"""FLOP a byte at which a problem without arithmetic is drawn."""
DOT = 5.0
"""A dot's radius in pixels."""
FRAME = Frame(640, 340, left=64)
KINDS = {"candidate": "kernel", "eager": "eager", "torch.compile": "compiled"}


class Roof(NamedTuple):
    """What the hardware allows: GB/s of the slope, TFLOP/s of the flat part."""

    title: str
    gb_per_s: float
    peak_tflops: float

    @property
    def ridge(self) -> float:
        """FLOP a byte from which on computing, not memory, is the limit."""
        return self.peak_tflops * 1e3 / self.gb_per_s

    def tflops(self, intensity: float) -> float:
        """The most TFLOP/s at `intensity` FLOP a byte."""
        return min(self.peak_tflops, intensity * self.gb_per_s / 1e3)

    def limit(self, name: str, x: Axis, y: Axis) -> Limit:
        """Slope, from where it enters the chart, and ceiling, to its right end."""
        enter = max(x.low, y.low * 1e3 / self.gb_per_s)
        corners = (enter, max(self.ridge, enter), x.high)
        return Limit(name, tuple((value, self.tflops(value)) for value in corners))


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


def roofline_axes(
    points: Sequence[tuple[float, float]], roofs: Sequence[Roof]
) -> tuple[Axis, Axis]:
    """Logarithmic axes with every point and every ridge inside."""
    across = [*(x for x, _ in points), *(roof.ridge for roof in roofs)]
    up = [y for _, y in points]
    return (
        Axis(min(across) / 2, max(across) * 3, "FLOP per byte"),
        Axis(min(up) / 2, max([*up, *(roof.peak_tflops for roof in roofs)]) * 1.6, "TFLOP/s"),
    )


def roofline_chart(picture: RooflineDrawing) -> Chart:
    """The sides under their roof."""
    roof = picture.roof
    x, y = roofline_axes([(side.intensity, side.tflops) for side in picture.points], (roof,))
    series = [
        Series(
            f"{side.label}: {side.time_us:.1f} µs, "
            f"{side.tflops / roof.tflops(side.intensity):.0%} of the roof",
            KINDS.get(side.label, ""),
            ((side.intensity, side.tflops),),
            radius=DOT,
        )
        for side in picture.points
    ]
    basis = "estimated" if picture.estimated else "measured"
    name = f"{roof.gb_per_s:,.0f} GB/s, {roof.peak_tflops:.3g} TFLOP/s"
    title = f"Roofline of {roof.title} ({basis})"
    return Chart(title, x, y, tuple(series), (roof.limit(name, x, y),))


def roofline_svg(picture: RooflineDrawing) -> str:
    """The chart as a file of its own."""
    chart = roofline_chart(picture)
    return svg_file(chart.title, (chart,), FRAME)
