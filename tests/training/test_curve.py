from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from agentkernel.training.checkpoints import (
    FILE,
    PICTURE,
    LossPoint,
    add_point,
    curve_svg,
    draw_curve,
    drop_points_after,
    read_points,
)


def _point(step: int, **more: float) -> LossPoint:
    return LossPoint.model_validate({"step": step, "epoch": 0.1, "tokens": 5, "seconds": 1, **more})


def test_points_are_kept_up_to_the_checkpoint_that_is_gone_on_from(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        add_point(tmp_path, _point(step, loss=5.0 - step))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": 5, "lo')
    drop_points_after(tmp_path, 2)
    add_point(tmp_path, _point(3, loss=1.0))
    assert [(point.step, point.loss) for point in read_points(tmp_path)] == [
        (1, 4.0),
        (2, 3.0),
        (3, 1.0),
    ]


def test_the_picture_has_a_line_for_each_kind_of_point(tmp_path: Path) -> None:
    points = [_point(1, loss=3.0), _point(2, loss=2.0), _point(2, held_out_loss=2.5)]
    svg = curve_svg([*points, _point(2, pass_at_1=0.25)], "small <1>")
    root = ElementTree.fromstring(svg)
    names = [item.tag.rpartition("}")[2] for item in root.iter()]
    assert names.count("polyline") == 3
    assert "small &lt;1&gt;" in svg
    assert "pass@1" in svg
    for point in points:
        add_point(tmp_path, point)
    draw_curve(tmp_path, "small")
    assert (tmp_path / PICTURE).read_text().count("<polyline") == 2


def test_without_a_step_the_picture_says_so() -> None:
    assert "no step yet" in curve_svg([], "none")
