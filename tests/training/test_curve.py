"""Is every step a point, also after a kill, and is the picture made of them?"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentkernel.training.curve import (
    FILE,
    PICTURE,
    CurvePoint,
    LossPoint,
    RlPoint,
    add_point,
    curve_svg,
    draw_curve,
    drop_points_after,
    read_points,
)


def loss(step: int, **more: float) -> LossPoint:
    return LossPoint.model_validate({"step": step, "epoch": 0.1, "tokens": 5, "seconds": 1, **more})


def practice(step: int, **more: float) -> RlPoint:
    values = {"seconds": 1.0, "turns": 8.0, "reward": 0.1 * step, "first": 0.5, "solved": 0.5}
    rates = {"correct": 0.5, "hack_rate": 0.0, "no_file": 0.1, "undecided": 0.0}
    return RlPoint.model_validate({"step": step, **values, **rates, **more})


@pytest.mark.parametrize("make", [loss, practice])
def test_points_are_kept_up_to_the_checkpoint_that_is_gone_on_from(
    make: type[CurvePoint], tmp_path: Path
) -> None:
    kind = type(make(step=1))
    assert read_points(tmp_path, kind) == ()
    drop_points_after(tmp_path, 0, kind)
    points = [make(step=step) for step in (1, 2, 3, 4)]
    for point in points:
        add_point(tmp_path, point)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": 5, "lo')
    assert read_points(tmp_path, kind) == tuple(points)
    drop_points_after(tmp_path, 2, kind)
    add_point(tmp_path, points[3])
    assert read_points(tmp_path, kind) == (points[0], points[1], points[3])


def test_the_picture_has_a_line_for_each_kind_of_point(tmp_path: Path) -> None:
    points = [loss(1, loss=3.0), loss(2, loss=0.0), loss(2, held_out_loss=2.5)]
    svg = curve_svg([*points, loss(2, pass_at_1=0.25)], LossPoint.panels, "small <1>")
    assert len(ElementTree.fromstring(svg).findall(".//{*}polyline")) == 3
    assert "small &lt;1&gt;" in svg
    assert "pass@1" in svg
    for point in points:
        add_point(tmp_path, point)
    draw_curve(tmp_path, "small", LossPoint)
    assert (tmp_path / PICTURE).read_text().count("<polyline") == 2


def test_practice_has_a_panel_each() -> None:
    points = [practice(1), practice(2, speedup=1.5), practice(3, speedup=2.5)]
    text = curve_svg(points, RlPoint.panels, "a <title>")
    assert len(ElementTree.fromstring(text).findall(".//{*}polyline")) == 4
    assert "nan" not in text


@pytest.mark.parametrize("kind", [LossPoint, RlPoint])
def test_without_a_step_the_picture_says_so(kind: type[CurvePoint]) -> None:
    empty = curve_svg([], kind.panels, "nothing")
    assert empty.count("nothing known") == len(kind.panels)
    ElementTree.fromstring(empty)
