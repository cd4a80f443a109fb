"""Is a conclusion about two candidates never more than what was measured?"""

from __future__ import annotations

import pytest

from agentkernel.chat.figures import (
    against_module,
    bytes_words,
    compared,
    conclusion,
    fastest_words,
    roofline,
)
from agentkernel.chat.tree import Node, Tree, contenders
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import Measurement, Ratio
from tests.workflows import fakes


def node(number: int, *measured: Measurement, estimate_us: float = 2.5, right: bool = True) -> Node:
    candidate = Candidate(source=f"c{number}", coder="scripted", round=1, strategy=f"s{number}")
    return Node(
        number=number,
        step=1,
        candidate=candidate,
        verdict=fakes.verdict(candidate, None if right else fakes.mismatch()),
        profile=fakes.profile(candidate, *measured, estimate_us=estimate_us),
    )


def measured(value: float, half: float = 0.01) -> Measurement:
    eager = Ratio(value=value, low=value - half, high=value + half)
    return fakes.measurement(eager, candidate_us=20 / value)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            node(1, measured(1.0)),
            node(2, measured(2.0)),
            "c2 is faster than c1: 2.00x [1.97, 2.03], measured.",
        ),
        (
            node(1, measured(2.0)),
            node(2, measured(1.0)),
            "c2 is slower than c1: 0.50x [0.49, 0.51], measured.",
        ),
        (
            node(1, measured(2.0, 0.2)),
            node(2, measured(2.1, 0.2)),
            "No difference that can be told between c2 and c1: 1.05x [0.86, 1.28], measured.",
        ),
        (node(1, measured(2.0)), node(2), "Only c1 was measured"),
        (node(1), node(2, estimate_us=1.25), "c2 is estimated faster than c1: 2.00x. Nobody"),
        (node(1), node(2), "both are estimated alike"),
        (node(1, right=False), node(2), "c1 is not right"),
        (node(1, right=False), node(2, right=False), "Neither is right"),
        (node(1), node(1), "nothing to compare it with"),
    ],
)
def test_conclusions(first: Node, second: Node, said: str) -> None:
    assert said in conclusion(first, second)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((node(1, estimate_us=1.0), node(2)), "c1"),
        (
            (node(1), node(2), node(3, estimate_us=4.0)),
            "c1, c2, between which no difference can be told (estimated alike)",
        ),
        ((node(1, measured(1.0)), node(2, measured(2.0))), "c2"),
        (
            (node(1, measured(2.0, 0.2)), node(2, measured(2.1, 0.2))),
            "c1, c2, between which no difference can be told (by their measured intervals)",
        ),
        ((node(1, right=False),), ""),
    ],
)
def test_the_fastest_is_one_that_can_be_told_from_the_others(
    nodes: tuple[Node, ...], said: str
) -> None:
    assert fastest_words(contenders(Tree(nodes=nodes))) == said


def test_other_gpus_and_sizes_are_not_compared() -> None:
    other = measured(2.0)
    gpu = other.gpu.evolve(name="NVIDIA L4")
    moved = other.evolve(gpu=gpu)
    assert "cannot be compared" in conclusion(node(1, measured(1.0)), node(2, moved))
    larger = other.evolve(shapes="x float32[8, 8]")
    assert "other sizes" in conclusion(node(1, measured(1.0)), node(2, larger))


def test_another_precision_is_said() -> None:
    loose = node(2, measured(2.0))
    assert loose.verdict is not None
    verdict = loose.verdict.evolve(precision="tf32")
    said = conclusion(node(1, measured(1.0)), loose.evolve(verdict=verdict))
    assert said.endswith("They keep other precisions: c1 strict, c2 tf32.")


def test_where_eager_itself_was_allowed_more_the_times_decide() -> None:
    """1.82x of a slow eager is slower than 0.79x of a fast one."""
    strict = fakes.measurement(Ratio(value=1.8, low=1.79, high=1.81), candidate_us=1500.0)
    loose = fakes.measurement(Ratio(value=0.8, low=0.79, high=0.81), candidate_us=500.0)
    loose = loose.evolve(baselines_matmul="high")
    said = conclusion(node(1, strict), node(2, loose))
    assert said.startswith("c2 is faster than c1: 3.00x [2.9"), said
    said = conclusion(node(2, loose), node(1, strict))
    assert said.startswith("c1 is slower than c2: 0.33x"), said


def test_against_the_module() -> None:
    assert against_module(node(1, measured(2.0))).verdict.startswith("c1 is faster than the module")
    assert "2.00x the module in eager PyTorch, estimated" in against_module(node(1)).verdict
    assert "does not count" in against_module(node(1, right=False)).verdict


def test_rows_hold_one_value_a_candidate_and_no_empty_row() -> None:
    found = compared(node(1, measured(1.0)), node(2))
    assert all(len(cells) == 2 for _, cells in found.rows)
    names = [name for name, _ in found.rows]
    assert names[:2] == ["verdict", "strategy"]
    assert "against max-autotune" not in names
    assert dict(found.rows)["time"] == ("20 us [19.8, 20.2]", "2.5 us (estimated)")


def test_the_roofline_marks_what_was_measured() -> None:
    found = roofline((node(1), node(2, measured(2.0))), fakes.ANALYSIS)
    assert found is not None
    marks = {point.label: point.measured for point in found.points}
    assert marks == {"eager": True, "torch.compile": True, "c2": True}
    assert (found.target, found.note) == ("h200", "Not drawn: c1 (estimated for h100-sxm).")
    assert roofline((node(1, right=False),), fakes.ANALYSIS) is None


def test_bytes_in_words() -> None:
    assert bytes_words(512) == "512 B"
    assert bytes_words(3 * 2**20) == "3 MiB"
    assert bytes_words(2**42) == "4096 GiB"
