"""Does a folder of modules become pairs, whatever single modules do?"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

from agentkernel.domain.errors import ProblemError, SettingError, UnknownTarget
from agentkernel.domain.knowledge import Entry
from agentkernel.domain.verdict import Failure, LoadFailed, Mismatch, RunFailed
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.pairs import ProblemFile, problem_files
from agentkernel.runtime.worker import WorkerFailed
from agentkernel.tools.targets import find_target
from agentkernel.training import worker_pool
from agentkernel.training.data import knowledge_pairs
from agentkernel.training.data.knowledge_pairs import Report, fresh_problems, generate_pairs
from agentkernel.training.judged_problems import Verification
from agentkernel.training.worker_pool import JudgeFinding, WorkerRequest, WrittenCode
from tests.training.lent_answerers import Lender, lender, lent

__all__ = ["lender", "lent"]
pytestmark = pytest.mark.xdist_group("pairs")
H100 = find_target("h100").target.model_dump_json()

MODULE = '''"""{title}"""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(6, 40)]


def get_init_inputs():
    return []
'''


def put_module(folder: Path, name: str, body: str, title: str = "Something.") -> Path:
    path = folder / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MODULE.format(title=title, body=body), encoding="utf-8")
    return path


class Run:
    """What `generate_pairs` handed over and said."""

    def __init__(
        self,
        folder: Path,
        known: Container[str] = frozenset(),
        limit: int | None = None,
        **options: Any,
    ) -> None:
        self.entries: list[Entry] = []
        self.lines: list[str] = []
        self.report: Report = generate_pairs(
            fresh_problems(folder, known, limit),
            self.entries.append,
            say=self.lines.append,
            **options,
        )


@pytest.mark.slow
@pytest.mark.usefixtures("lent")
def test_modules_become_pairs_and_a_bad_one_costs_itself(tmp_path: Path) -> None:
    put_module(tmp_path, "a_dies", "import os; os._exit(7)")
    put_module(tmp_path, "b_raises", "raise RuntimeError('no such luck')")
    put_module(tmp_path / "deeper", "c_softmax", "return torch.softmax(x * 0.5, -1)", "Rows.")
    run = Run(tmp_path, verify=False, licence="MIT")
    report = run.report
    assert (report.found, report.made, report.unverified, report.known) == (3, 1, 1, 0)
    assert [miss.file for miss in report.failed] == ["a_dies.py", "b_raises.py"]
    assert "ended with 7" in report.failed[0].reason
    assert "no such luck" in report.failed[1].reason
    assert len(run.lines) == 3
    (entry,) = run.entries
    assert entry.id.startswith("generated/")
    assert len(entry.id) == len("generated/") + 12
    assert (entry.title, entry.source, entry.licence) == ("Rows.", "deeper/c_softmax.py", "MIT")
    assert (entry.verified, entry.triton, entry.structure) == (
        "no",
        None,
        structure_of_code(entry.problem),
    )
    assert "class ModelNew" in entry.answer
    assert "@triton.jit" in entry.answer
    assert entry.problem == (tmp_path / "deeper" / "c_softmax.py").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("lent")
def test_the_judge_says_where_a_pair_was_verified(tmp_path: Path) -> None:
    put_module(tmp_path, "small", "return torch.relu(x) + 1")
    run = Run(tmp_path)
    (entry,) = run.entries
    assert entry.verified in ("interpreter", "gpu"), run.lines
    assert entry.triton
    assert run.report.verified_gpu + run.report.verified_interpreter == 1


@pytest.mark.slow
def test_what_the_judge_rejects_is_wrong_code(tmp_path: Path, lender: Lender) -> None:
    path = put_module(tmp_path, "one", "return torch.relu(x) + 1")
    written = lender.lend("write", H100).ask(WorkerRequest(path=str(path)), 120)
    assert isinstance(written, WrittenCode)
    other = put_module(tmp_path, "two", "return torch.relu(x) + 2")
    large = put_module(tmp_path, "large", "return torch.relu(x) + 1")
    large.write_text(large.read_text(encoding="utf-8").replace("6, 40", "600, 4000"))
    judge = lender.lend("judge", Verification().model_dump_json())
    right = judge.ask(WorkerRequest(path=str(path), answer=written.answer), 120)
    wrong = judge.ask(WorkerRequest(path=str(other), answer=written.answer), 120)
    unknown = judge.ask(WorkerRequest(path=str(large), answer=written.answer), 120)
    assert isinstance(right, JudgeFinding)
    assert right.accepted
    assert isinstance(wrong, JudgeFinding)
    assert wrong.accepted is False
    assert wrong.reason.startswith("correctness: ")
    assert isinstance(unknown, JudgeFinding)
    assert unknown.accepted is None
    assert "too many to interpret" in unknown.reason


@pytest.mark.slow
def test_a_module_that_hangs_is_given_up(tmp_path: Path, lender: Lender) -> None:
    hangs = put_module(tmp_path, "hangs", "import time; time.sleep(600)")
    fine = put_module(tmp_path, "fine", "return x.sum(-1)")
    writer = lender.lend("write", H100)
    answer = writer.ask(WorkerRequest(path=str(hangs)), 2)
    assert answer == WorkerFailed(reason="no answer within 2 s")
    assert isinstance(writer.ask(WorkerRequest(path=str(fine)), 120), WrittenCode)


class FakeLane:
    """Judges by the name of the file."""

    def __init__(self, target: object, verification: object) -> None:
        self.killed = self.closed = False
        LANES.append(self)

    def make(self, file: ProblemFile) -> knowledge_pairs.Outcome:
        if "wrong" in file.name:
            return knowledge_pairs.UnpairedModule(
                file=file.name, stage="judge", reason="correctness: off"
            )
        written = WrittenCode(answer=f"# {file.name}", kernels=("k",), variant="default")
        if "slow" in file.name:
            return knowledge_pairs.MadePair(written, "no", "no answer within 60 s")
        return knowledge_pairs.MadePair(written, "gpu" if "gpu" in file.name else "interpreter")

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.closed = True


LANES: list[FakeLane] = []


@pytest.fixture
def judged_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    LANES.clear()
    monkeypatch.setattr(knowledge_pairs, "WriterAndJudge", FakeLane)
    for place, name in enumerate(("gpu", "plain", "slow", "wrong")):
        put_module(tmp_path, name, f"return x * {place}")
    put_module(tmp_path, "zz_copy", "return x * 0")
    put_module(tmp_path, ".hidden", "return x * 9")
    (tmp_path / "setup.py").write_text("raise SystemExit('never run')")
    return tmp_path


def test_every_pair_is_counted_by_where_it_was_verified(judged_folder: Path) -> None:
    run = Run(judged_folder, jobs=3)
    report = run.report
    assert (report.found, report.made) == (4, 3)
    assert (report.verified_gpu, report.verified_interpreter, report.unverified) == (1, 1, 1)
    assert [(miss.file, miss.stage) for miss in report.failed] == [("wrong.py", "judge")]
    assert {entry.source: entry.verified for entry in run.entries} == {
        "gpu.py": "gpu",
        "plain.py": "interpreter",
        "slow.py": "no",
    }
    assert [bool(entry.triton) for entry in sorted(run.entries, key=lambda e: e.source)] == [
        True,
        True,
        False,
    ]
    assert any(line.endswith("wrong.py: rejected: correctness: off") for line in run.lines)
    assert len(LANES) == 3
    assert all(lane.closed for lane in LANES)


def test_what_is_known_is_left_out_and_the_limit_holds_for_the_rest(judged_folder: Path) -> None:
    first = Run(judged_folder, limit=2)
    assert first.report.made == 2
    from agentkernel.domain.base import sha256_text

    kept = {sha256_text(entry.problem) for entry in first.entries}
    second = Run(judged_folder, known=kept)
    assert (second.report.found, second.report.known, second.report.made) == (4, 2, 1)
    assert {entry.id for entry in first.entries}.isdisjoint(item.id for item in second.entries)
    everything = Run(judged_folder, known={file.sha256 for file in problem_files(judged_folder)})
    assert (everything.report.known, everything.report.made, everything.lines) == (4, 0, [])


def test_an_interruption_ends_the_processes(judged_folder: Path) -> None:
    def put(entry: Entry) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_pairs(fresh_problems(judged_folder), put, jobs=2)
    assert LANES
    assert all(lane.killed and lane.closed for lane in LANES)


def test_a_users_mistake_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="No such folder"):
        Run(tmp_path / "none")
    with pytest.raises(ProblemError, match="No problem in"):
        Run(tmp_path)
    put_module(tmp_path, "a", "return x")
    with pytest.raises(SettingError, match="jobs is 0"):
        Run(tmp_path, jobs=0)
    with pytest.raises(SettingError, match="limit is -1"):
        Run(tmp_path, limit=-1)
    with pytest.raises(UnknownTarget):
        Run(tmp_path, target="h1000")


def test_time_that_ran_out_is_no_rejection() -> None:
    wrong = Mismatch(
        case="", output=0, norm_error=1, norm_allowed=0, element_error=1, element_allowed=0,
        first_index=(0,), expected=0, found=1, wrong_share=1, pattern="all",
    )  # fmt: skip
    told: dict[Failure, bool] = {
        RunFailed(reason="timeout", log="", case=""): True,
        RunFailed(reason="memory", log="", case=""): True,
        RunFailed(reason="raised", log="", case=""): False,
        LoadFailed(log="timeout: 20 s"): True,
        LoadFailed(log="NameError"): False,
        wrong: False,
    }
    for failure, undecided in told.items():
        assert worker_pool.is_undecided(failure) is undecided, failure
