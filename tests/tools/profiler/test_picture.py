"""The roofline picture shows what was measured, and stays within its frame."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import Estimate, Profile
from agentkernel.tools.roofline.chart import (
    FRAME,
    DrawnSide,
    Roof,
    RooflineDrawing,
    drawing_of,
    roofline_svg,
    to_point,
)

H200 = Roof("NVIDIA H200", 4300.0, 66.9)
PICTURE = RooflineDrawing(
    H200,
    (DrawnSide("candidate", 1.0, 4.0, 130.2), DrawnSide("eager", 1.0, 1.6, 325.0)),
    estimated=False,
)


def analysis(bytes_min: int, flops: int) -> Analysis:
    return Analysis(
        bytes_min=bytes_min, flops=flops, op_counts={}, roofline="memory", memory_time_us=1.0,
        compute_time_us=1.0, bound_us=1.0, patterns=(),
    )  # fmt: skip


def test_a_point_on_the_slope_reaches_the_roofs_share() -> None:
    point = to_point("candidate", analysis(430_000_000, 430_000_000), 200.0)
    assert abs(point.tflops / H200.tflops(point.intensity) - 0.5) < 1e-9


def test_a_problem_without_arithmetic_still_has_its_share() -> None:
    point = to_point("candidate", analysis(430_000_000, 0), 125.0)
    assert abs(point.tflops / H200.tflops(point.intensity) - 0.8) < 1e-9


def test_an_eager_forward_of_views_has_no_point() -> None:
    candidate, eager = (
        Estimate(target="h200", time_us=time_us, bytes_moved=8, flops=0, bound="memory")
        for time_us in (5.0, 0.0)
    )
    made = Profile(
        candidate="a", target="h200", report=None, estimate=candidate, baseline_estimate=eager
    )
    picture = drawing_of(made, analysis(8, 0))
    assert [point.label for point in picture.points] == ["candidate"]


def test_the_picture_names_every_side_and_says_measured_or_estimated() -> None:
    text = roofline_svg(PICTURE)
    assert "candidate: 130.2 µs, 93% of the roof" in text
    assert "eager: 325.0 µs, 37% of the roof" in text
    assert "Roofline of NVIDIA H200 (measured)" in text
    assert "4,300 GB/s, 66.9 TFLOP/s" in text
    assert "(estimated)" in roofline_svg(PICTURE._replace(estimated=True))


def test_the_faster_side_stands_higher() -> None:
    places = re.findall(r'class="dot (\w+)" cx="[\d.]+" cy="([\d.]+)" r="5"', roofline_svg(PICTURE))
    heights = {kind: float(y) for kind, y in places}
    assert heights["kernel"] < heights["eager"]


def test_a_name_cannot_break_the_svg() -> None:
    hostile = PICTURE._replace(roof=H200._replace(title='<b>&"x"'))
    assert "<b>" not in roofline_svg(hostile)
    ElementTree.fromstring(roofline_svg(hostile))


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-2, 1e5),
    st.floats(1e-4, 1.2),
    st.floats(100, 9000),
    st.floats(1, 5000),
)
def test_everything_lies_inside_the_frame(
    intensity: float, share: float, gb_per_s: float, peak: float
) -> None:
    roof = Roof("gpu", gb_per_s, peak)
    point = DrawnSide("candidate", intensity, roof.tflops(intensity) * share, 10.0)
    picture = RooflineDrawing(roof, (point,), estimated=True)
    svg = roofline_svg(picture)
    path = re.search(r'points="([^"]+)"', svg)
    places = [tuple(map(float, pair.split(","))) for pair in path[1].split()]
    circle = re.search(r'cx="([\d.-]+)" cy="([\d.-]+)"', svg)
    places.append((float(circle[1]), float(circle[2])))
    assert all(0 <= x <= FRAME.width and 0 <= y <= FRAME.height for x, y in places)
