"""Modules become judged kernels once each, whatever is killed; poisoned ones never."""

from __future__ import annotations

import fcntl
import gzip
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import pytest

from agentkernel.domain.errors import OutputError, RunBusy, SettingError, TrainingError
from agentkernel.runtime.worker import WorkerFailed
from agentkernel.training.data import pairs
from agentkernel.training.data.generator import GeneratedProblem
from agentkernel.training.data.pair_worker import Missed, PairRequest, PairSettings, ProblemResult
from agentkernel.training.data.pairs import (
    generated,
    make_pairs,
    missed_file,
    read_pairs,
)
from agentkernel.training.settings import JudgedKernel

PLAIN = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Scaled sum of two."""

    def forward(self, x, y):
        return x + 0.5 * y


def get_inputs():
    return [torch.randn(6, 40), torch.randn(6, 40)]


def get_init_inputs():
    return []
'''


def read_missed(path: Path) -> list[Missed]:
    """What came to nothing beside the rows of `path`."""
    with gzip.open(missed_file(path), "rt", encoding="utf-8") as file:
        return [Missed.model_validate_json(line) for line in file]


class ScriptedLane:
    """Two rows a problem, a miss for every third; nothing is run."""

    asked: ClassVar[list[str]] = []

    def __init__(self, module: str, arguments: Sequence[str], told: object) -> None:
        self.settings = PairSettings.model_validate_json(arguments[0])

    def ask(self, question: PairRequest, timeout_s: float) -> ProblemResult | WorkerFailed:
        problem = question.problem
        self.asked.append(problem.sha256)
        assert problem.seed is not None
        if problem.seed % 3 == 0:
            return WorkerFailed(reason="the process ended with -9: ")
        return ProblemResult(rows=(judged(problem, "a"), judged(problem, "b")))

    def kill(self) -> None: ...

    def close(self) -> None: ...


def judged(problem: GeneratedProblem, kernel: str) -> JudgedKernel:
    return JudgedKernel(
        problem=problem.text,
        kernel=kernel,
        coder="compiler",
        source="generated",
        licence="Apache-2.0",
        label="interpreter",
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "pairs.jsonl.gz"


def some(count: int) -> list[GeneratedProblem]:
    source = generated()
    return [next(source) for _ in range(count)]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedLane]:
    ScriptedLane.asked.clear()
    monkeypatch.setattr(pairs, "Worker", ScriptedLane)
    monkeypatch.setattr(ScriptedLane, "__class_getitem__", lambda _: ScriptedLane, raising=False)
    return ScriptedLane


def test_a_file_cut_off_anywhere_is_completed_and_nothing_comes_twice(
    scripted: type[ScriptedLane], tmp_path: Path
) -> None:
    whole = tmp_path / "whole.jsonl.gz"
    make_pairs(some(7), whole, jobs=2)
    rows, missed = whole.read_bytes(), missed_file(whole).read_bytes()
    expected = sorted((row.problem_sha256, row.kernel) for row in read_pairs(whole))
    assert len(expected) == 8
    first = 1 + rows.index(rows[:10], 1)
    for cut in [0, *range(first, len(rows), 97), len(rows) - 1, len(rows)]:
        torn = tmp_path / f"cut{cut}.jsonl.gz"
        torn.write_bytes(rows[:cut])
        missed_file(torn).write_bytes(missed[: max(0, len(missed) - cut % 90)])
        make_pairs(some(7), torn, jobs=2)
        assert sorted((row.problem_sha256, row.kernel) for row in read_pairs(torn)) == expected
        assert len({item.problem_sha256 for item in read_missed(torn)}) == 3
        scripted.asked.clear()
        report = make_pairs(some(7), torn)
        assert (report.known, report.rows, scripted.asked) == (7, 0, [])


@pytest.fixture
def theirs(scripted: type[ScriptedLane], tmp_path: Path) -> dict[str, bytes]:
    """What may not be touched, by what is wrong with it."""
    made = tmp_path / "made.jsonl.gz"
    make_pairs(some(7), made)
    rows = made.read_bytes()
    second = rows.index(rows[:10], 1)
    spoiled = bytearray(rows)
    spoiled[second + 40] ^= 255
    return {
        "text": b"my notes\n",
        "one byte": b"\x1f",
        "cut": gzip.compress(gzip.decompress(rows))[:-9],
        "first rows cut": rows[: second - 1],
        "spoiled within": bytes(spoiled),
        "text behind": rows + b"my notes\n",
        "other rows": gzip.compress(b'{"a": 1}\n'),
        "no JSON": gzip.compress(b"my notes\n"),
        "no text": gzip.compress(b"\xff\xfe\n"),
        "other rows behind": rows + gzip.compress(b'{"a": 1}\n') + rows[:30],
    }


def test_a_file_of_somebody_elses_or_a_broken_one_is_refused_and_left_as_it_is(
    scripted: type[ScriptedLane], theirs: dict[str, bytes], tmp_path: Path
) -> None:
    scripted.asked.clear()
    for number, (name, data) in enumerate(theirs.items()):
        for beside in (False, True):
            out = tmp_path / f"{number}{beside}.jsonl.gz"
            path = missed_file(out) if beside else out
            path.write_bytes(data)
            with pytest.raises(TrainingError, match="Expected a new file") as caught:
                make_pairs(some(7), out)
            told = str(caught.value)
            assert str(path) in told, name
            assert "\n" not in told, name
            assert len(told) < 200 + len(str(path)), name
            assert path.read_bytes() == data, name
    assert not scripted.asked


def test_a_torn_file_is_not_cut_where_the_one_beside_it_is_refused(
    scripted: type[ScriptedLane], out: Path
) -> None:
    make_pairs(some(7), out)
    torn = out.read_bytes()[:-5]
    out.write_bytes(torn)
    missed_file(out).write_bytes(b"my notes\n")
    with pytest.raises(TrainingError, match="missed"):
        make_pairs(some(7), out)
    assert out.read_bytes() == torn


def test_the_first_rows_are_there_whole_or_not_at_all(
    scripted: type[ScriptedLane], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(pairs, "write_atomic", lambda path, data: seen.append(path.name))
    make_pairs(some(2)[1:], tmp_path / "pairs.jsonl.gz")
    assert seen == ["pairs.jsonl.gz"]


def test_a_text_with_other_ends_of_a_line_is_read_again(out: Path) -> None:
    row = judged(some(1)[0], "a\u2028b\x85c")
    out.write_bytes(gzip.compress(row.model_dump_json().encode() + b"\n"))
    assert list(read_pairs(out)) == [row]
    assert make_pairs([], out).known == 1


def test_one_process_at_a_time_writes_a_file(
    scripted: type[ScriptedLane], tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "BUSY_S", 0.0)
    told: list[str] = []

    def meanwhile(line: str) -> None:
        with pytest.raises(RunBusy, match="Another process writes") as caught:
            make_pairs(some(7), out)
        told.append(str(caught.value))

    make_pairs(some(2), out, say=meanwhile)
    assert len(told) == 2
    assert make_pairs(some(2), out).known == 2
    with (tmp_path / ".pairs.jsonl.gz.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RunBusy, match="choose another --out"):
            make_pairs(some(2), out)


def test_where_nothing_can_be_written_it_is_said_before_a_kernel_is_made(
    scripted: type[ScriptedLane], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.jsonl.gz").mkdir()
    for out in ("file/pairs.jsonl.gz", "file/deeper/pairs.jsonl.gz", "folder.jsonl.gz"):
        with pytest.raises(OutputError, match="Cannot write"):
            make_pairs(some(2), tmp_path / out)
    assert not scripted.asked
    assert make_pairs(some(2), tmp_path / "new" / "deeper" / "pairs.jsonl.gz").rows == 2


def test_of_kinds_one_module_each_comes_in_turn_and_the_same_ones_again() -> None:
    found = list(islice(generated(3, ("pool", "loss", "pool")), 6))
    assert [item.kind for item in found] == ["pool", "loss"] * 3
    assert len({item.sha256 for item in found}) == 6
    assert found == list(islice(generated(3, ("pool", "loss")), 6))
    assert found[0] == next(item for item in generated(3) if item.kind == "pool")


def test_it_stops_at_so_many_rows_of_problems_without_end(
    scripted: type[ScriptedLane], out: Path
) -> None:
    report = make_pairs(generated(), out, most=5, jobs=2)
    assert report.rows == 6
    assert make_pairs(generated(), out, most=5).problems == 0
    assert make_pairs(generated(), out, most=9).rows == 4


def test_a_process_that_dies_costs_its_problem_and_says_so(
    scripted: type[ScriptedLane], out: Path
) -> None:
    told: list[str] = []
    report = make_pairs(some(1), out, say=told.append)
    assert (report.rows, report.stages) == (0, {"load": 1})
    assert "ended with -9" in told[0]


def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="jobs is 0"):
        make_pairs([], tmp_path / "pairs.jsonl.gz", jobs=0)
    with pytest.raises(SettingError, match=r"pairs\.csv"):
        make_pairs([], tmp_path / "pairs.csv")


@pytest.mark.slow
def test_right_and_broken_kernels_are_judged_and_poison_is_never_run(
    tmp_path: Path, out: Path
) -> None:
    spoiled = tmp_path / "spoiled"
    poison = {
        "import": f"import os\nos.system('touch {spoiled}')\n{PLAIN}",
        "exec": f"exec(\"open('{spoiled}', 'w')\")\n{PLAIN}",
        "network": PLAIN.replace("return x", "torch.hub.load('http://a', 'b'); return x"),
        "attribute": PLAIN.replace("x + 0.5", f"torch.save(x, '{spoiled}') or x + 0.5"),
    }
    problems = [GeneratedProblem(text=text, name=name) for name, text in poison.items()]
    problems += [
        GeneratedProblem(text=f"# copyleft\n{PLAIN}", name="licence", licence="GPL-3.0"),
        GeneratedProblem(text=PLAIN, name="plain"),
    ]
    make_pairs(problems, out, PairSettings(estimate=True))
    missed: dict[str, Missed] = {item.name: item for item in read_missed(out)}
    for name in (*poison, "licence"):
        assert missed[name].stage == "read"
    assert "GPL-3.0" in missed["licence"].reason
    assert not spoiled.exists()
    rows = list(read_pairs(out))
    assert {row.problem for row in rows} == {PLAIN}
    right = [row for row in rows if row.label == "interpreter"]
    refused = [row for row in rows if row.label == "refused"]
    assert right
    assert refused
    assert all(row.verdict is not None and row.verdict.accepted for row in right)
    assert all(row.verdict is not None and row.verdict.failure is not None for row in refused)
    assert all(row.parent == right[0].sha256 and row.change for row in refused)
    assert {row.structure for row in rows} == {right[0].structure} != {""}
    assert {row.facts["inputs"] for row in rows} == {"x float32[6, 40], y float32[6, 40]"}
    assert {row.facts["bytes"] for row in rows} == {str(3 * 6 * 40 * 4)}
    assert all(row.estimated_us and "estimated" in row.facts["time"] for row in right)
    assert all(row.estimated_us is None and "time" not in row.facts for row in refused)


class FailingLane(ScriptedLane):
    def ask(self, question: PairRequest, timeout_s: float) -> ProblemResult | WorkerFailed:
        return WorkerFailed(reason="TypeError: two values for one name")


def test_where_nothing_works_it_does_not_go_on_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: type[ScriptedLane]
) -> None:
    monkeypatch.setattr(scripted, "ask", FailingLane.ask)
    with pytest.raises(TrainingError, match="two values for one name"):
        make_pairs(generated(), tmp_path / "rows.jsonl.gz")
