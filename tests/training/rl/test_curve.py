"""Is every step a point, also after a kill?"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from agentkernel.training.checkpoints import FILE
from agentkernel.training.rl.rollouts import (
    RlPoint,
    add_rl_point,
    drop_rl_points_after,
    read_rl_points,
    rl_curve_svg,
)


def point(step: int, **more: float) -> RlPoint:
    values = {"seconds": 1.0, "turns": 8.0, "reward": 0.1 * step, "first": 0.5, "solved": 0.5}
    rates = {"correct": 0.5, "hack_rate": 0.0, "no_file": 0.1, "undecided": 0.0}
    return RlPoint.model_validate({"step": step, **values, **rates, **more})


def test_points_are_kept_and_cut(tmp_path: Path) -> None:
    assert read_rl_points(tmp_path) == ()
    drop_rl_points_after(tmp_path, 0)
    for step in (1, 2, 3):
        add_rl_point(tmp_path, point(step, speedup=2.0))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": 4, "rew')
    assert [item.step for item in read_rl_points(tmp_path)] == [1, 2, 3]
    drop_rl_points_after(tmp_path, 2)
    add_rl_point(tmp_path, point(3))
    assert [item.speedup for item in read_rl_points(tmp_path)] == [2.0, 2.0, None]


def test_the_picture_has_a_panel_each_and_is_well_formed() -> None:
    text = rl_curve_svg([point(1), point(2, speedup=1.5), point(3, speedup=2.5)], "a <title>")
    tree = ElementTree.fromstring(text)
    assert len(tree.findall(".//{*}polyline")) == 4
    assert "nan" not in text
    empty = rl_curve_svg([], "nothing")
    assert empty.count("nothing known") == 4
    ElementTree.fromstring(empty)
