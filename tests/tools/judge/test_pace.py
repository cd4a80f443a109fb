"""Cases that would take minutes in the interpreter are left out, and said to be."""

import pytest

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.domain.verdict import NOT_JUDGED
from agentkernel.tools.judge import judge as judge_module
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.pace import Pace


def shape(*sizes: int) -> CaseShape:
    spec = TensorSpec(name="x", shape=sizes, dtype="float32")
    return CaseShape(ShapeSet(inputs=(spec,)), "odd", 0)


def test_a_time_follows_rows_or_elements_whichever_it_did_before() -> None:
    by_rows, by_elements = Pace(), Pace()
    for sizes in ((128, 512), (2000, 7), (33, 1000)):
        by_rows.note(shape(*sizes), 0.003 * sizes[0])
        by_elements.note(shape(*sizes), 1e-5 * sizes[0] * sizes[1])
    assert by_rows.predicted_s(shape(32768, 2)) == pytest.approx(98.3, rel=0.01)
    assert by_elements.predicted_s(shape(32768, 2)) == pytest.approx(0.66, rel=0.01)


def test_one_shape_says_nothing_and_the_quickest_call_of_each_counts() -> None:
    pace = Pace()
    pace.note(shape(100, 8), 9.0)
    assert pace.predicted_s(shape(200, 8)) is None
    pace.note(shape(50, 8), 0.5)
    pace.note(shape(100, 8), 1.0)
    assert pace.predicted_s(shape(200, 8)) == pytest.approx(2.0)


SIZE = "        n = x.shape[-1]"


def test_a_large_case_of_many_seconds_is_left_out_and_named(judged, sources, monkeypatch):
    source = sources.NORM.replace(SIZE, f"{SIZE}\n        assert x.shape[0] != 9000")
    assert source != sources.NORM
    monkeypatch.setattr(judge_module, "LONGEST_S", 1.0)
    few_columns = sources.NORM_PROBLEM.replace("512, 96", "256, 4").replace("[96]", "[4]")
    verdict = judged(few_columns, source)
    assert verdict.accepted, verdict.failure
    notes = [note for note in verdict.notes if note.startswith("not asked here: ")]
    assert any("[9000, 4]" in note and "in the interpreter" in note for note in notes), notes


def test_what_is_slow_on_purpose_gets_no_ordinary_case_left_out(judged, sources, monkeypatch):
    source = sources.NORM.replace(SIZE, f"{SIZE}\n        assert x.shape[0] != 257")
    monkeypatch.setattr(judge_module, "LONGEST_S", 0.0)
    verdict = judged(sources.NORM_PROBLEM, source)
    assert not verdict.accepted
    assert not verdict.undecided
    assert "AssertionError" in str(verdict.failure)


def test_an_endless_loop_is_neither_accepted_nor_said_to_be_wrong(judged, sources):
    source = sources.NORM.replace(SIZE, f"        while True:\n            pass\n{SIZE}")
    verdict = judged(sources.NORM_PROBLEM, source, time_limit_s=2.0)
    assert not verdict.accepted
    assert verdict.gate == "run"
    assert verdict.undecided == f"{NOT_JUDGED}: the interpreter gave no answer within 4 s a call"
    assert verdict.answer == verdict.undecided
