"""A run keeps what won, and a run of the like starts from it; figures of a real pair are below."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agentkernel.agents.compiler_coder import GUESSES, NEIGHBOURS
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.retriever import as_retrieved, winner_of
from agentkernel.domain.errors import OutputError
from agentkernel.domain.knowledge import Entry, Score, Structure
from agentkernel.domain.plan import Retrieved
from agentkernel.domain.settings import Settings
from agentkernel.storage.configuration import load_settings
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.run_store import open_run
from agentkernel.tools.targets import ResolvedTarget
from agentkernel.workflows.deps import Deps, ExperienceStore
from agentkernel.workflows.events import CandidateDrafted, Event, Noted
from agentkernel.workflows.optimize import run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows.fakes import (
    FakeRetriever,
    FakeWorkshop,
    Script,
    mismatch,
    settings,
    small_problem,
)

PLUS = Structure(ops=("add",))


@dataclass
class LearningWorkshop(FakeWorkshop):
    """A run factory that remembers; `full`: there is no room for it."""

    kept: list[Entry] = field(default_factory=list)
    full: bool = False

    @contextmanager
    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> Iterator[Deps]:
        with super().equip(loaded, settings, resolved, desk) as (crew, tools):
            memory = ExperienceStore("hopper", lambda: PLUS, self._keep)
            yield Deps(crew, replace(tools, memory=memory))

    def _keep(self, entry: Entry) -> str:
        if self.full:
            raise OutputError(
                "Cannot write the knowledge: No space left on device. Next: free some."
            )
        self.kept.append(entry)
        return entry.id


@dataclass
class Done:
    """A finished run with what was said on the way."""

    result: Result
    events: list[Event]

    def drafted(self) -> list[tuple[str, str | None]]:
        """Strategy and origin of each candidate, in order."""
        found = (item for item in self.events if isinstance(item, CandidateDrafted))
        return [(item.strategy, item.origin) for item in found]

    def notes(self) -> list[str]:
        """What was noted."""
        return [item.text for item in self.events if isinstance(item, Noted)]


def optimise(folder: Path, shop: FakeWorkshop, *overrides: str) -> Done:
    said: list[Event] = []
    request = OptimizeRequest(small_problem(folder), settings(folder / "runs", *overrides))
    return Done(run(request, said.append, workshop=shop), said)


def learned(folder: Path, *scripts: Script) -> Retrieved:
    """What a run of these scripts leaves, as the next one finds it."""
    folder.mkdir()
    shop = LearningWorkshop(scripts)
    optimise(folder, shop)
    score = Score(structural=1.0, structural_rank=1, fused=0.2)
    return as_retrieved(shop.kept[-1], score, "hopper", "float32")


def test_the_answer_is_kept_with_what_failed_on_the_way(tmp_path: Path) -> None:
    wrong = Script("wrong", failure=mismatch(), repaired=False)
    shop = LearningWorkshop((wrong, Script("slow", speedup=1.6), Script("fast", speedup=4.0)))
    done = optimise(tmp_path, shop, "goals.speedup=9")
    (entry,) = shop.kept
    assert entry.kind == "experience"
    assert "class Model" in entry.problem
    assert "# inputs: x float32[4, 8]" in entry.problem
    assert "fast" in entry.answer
    assert (entry.gain.gpu, entry.gain.time_us, entry.gain.vs_eager) == ("NVIDIA H200", 5.0, 4.0)
    assert (entry.licence, entry.source) == ("not stated", f"run {done.result.run}")
    assert (entry.verified, entry.architectures) == ("interpreter", ("hopper",))
    assert entry.triton
    won = winner_of(entry)
    assert (won.strategy, won.measured, won.shapes) == ("fast", True, ((4, 8),))
    assert won.lost == {"slow": 2.5}
    assert any(line.startswith("wrong: refused") for line in entry.failures)
    assert any(line.startswith("slow: right, 12.5 us") for line in entry.failures)
    assert done.notes() == [f"experience kept: {entry.id}"]


def test_what_was_not_measured_has_no_gain(tmp_path: Path) -> None:
    shop = LearningWorkshop((Script("a"),))
    optimise(tmp_path, shop)
    (entry,) = shop.kept
    assert entry.gain is None
    assert "estimated" in entry.summary


def test_a_kept_baseline_teaches_nothing(tmp_path: Path) -> None:
    shop = LearningWorkshop((Script("a", speedup=0.5),))
    assert optimise(tmp_path, shop).result.status.startswith("kept")
    assert shop.kept == []


def test_a_full_disk_is_one_line_and_no_failure(tmp_path: Path) -> None:
    done = optimise(tmp_path, LearningWorkshop((Script("a"),), full=True))
    assert done.result.status == "verified"
    (line,) = done.notes()
    assert line.startswith("experience is not kept: Cannot write the knowledge")
    assert "\n" not in line


def test_the_next_run_starts_from_the_winner_and_skips_what_lost(tmp_path: Path) -> None:
    scripts = (Script("a", speedup=1.6), Script("b", speedup=1.7), Script("c", speedup=4.0))
    known = learned(tmp_path / "first", *(scripts[0], scripts[1], scripts[2]))
    shop = FakeWorkshop(scripts, retriever=FakeRetriever((known,)))
    done = optimise(tmp_path, shop)
    assert (done.drafted()[0][0], done.result.status, len(done.drafted())) == ("c", "met", 1)
    assert shop.coder.requests[0].hypothesis.because == known.id
    again = optimise(tmp_path, FakeWorkshop(scripts, retriever=FakeRetriever((known,))),
                     "goals.speedup=9")  # fmt: skip
    assert [name for name, _ in again.drafted()] == ["c"]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "now",
    [
        Script("c", failure=mismatch(), repaired=False),
        Script("c", speedup=1.2, compiled=1.5),
        Script("c", drafted=False),
    ],
)
@pytest.mark.parametrize("rounds", [3, 5])
def test_old_knowledge_never_costs_the_answer(tmp_path: Path, now: Script, rounds: int) -> None:
    """Where the start is refused, slow or cannot be drafted, all is tried that would have been."""
    others = (Script("a", speedup=1.6), Script("b", speedup=1.7))
    known = learned(tmp_path / "first", *others, Script("c", speedup=4.0))
    scripts = (*others, now)
    plain = optimise(tmp_path, FakeWorkshop(scripts), "goals.speedup=9", f"budget.rounds={rounds}")
    misled = optimise(
        tmp_path, FakeWorkshop(scripts, retriever=FakeRetriever((known,))),
        "goals.speedup=9", f"budget.rounds={rounds}",
    )  # fmt: skip
    assert misled.result.candidate_sha256 == plain.result.candidate_sha256
    assert misled.result.status == plain.result.status
    assert f"{known.id} does not hold here: everything is searched" in misled.notes()
    tried = [name for name, _ in misled.drafted()]
    assert [name for name in tried if name != "c"] == ["a", "b"]


MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, {name}):
        return torch.softmax({name}, dim=-1)


def get_inputs():
    return [torch.randn({rows}, {columns})]
"""
FAMILY_LIMIT = 1 + NEIGHBOURS + GUESSES


def softmax_of(folder: Path, name: str, rows: int, columns: int) -> LoadedProblem:
    path = folder / f"{name}.py"
    path.write_text(MODULE.format(name=name, rows=rows, columns=columns))
    return load_problem(str(path))


def searched(events: Sequence[Event]) -> tuple[int, str | None]:
    """Schedules that were compiled, and where the first candidate came from."""
    drafts = [item for item in events if isinstance(item, CandidateDrafted)]
    return sum(1 + item.searched for item in drafts), drafts[0].origin


def really(folder: Path, problem: LoadedProblem, *overrides: str) -> tuple[Result, list[Event]]:
    empty = folder / "empty.yaml"
    empty.write_text("")
    chosen = load_settings(empty, (f"runs={folder / 'runs'}", "target=h100", *overrides))
    said: list[Event] = []
    return run(OptimizeRequest(problem, chosen), said.append), said


@pytest.mark.slow
def test_a_second_run_of_the_like_compiles_fewer_candidates(tmp_path: Path) -> None:
    assert str(tmp_path.parent) in os.environ["XDG_DATA_HOME"]
    quick = ("judge.seeds=1", "judge.budget_s=0")
    _, first = really(tmp_path, softmax_of(tmp_path, "scores", 4096, 8192), *quick)
    again, second = really(tmp_path, softmax_of(tmp_path, "logits", 2048, 4096), *quick)
    many, nowhere = searched(first)
    few, origin = searched(second)
    assert nowhere is None
    assert origin.startswith("experience/")
    assert few <= FAMILY_LIMIT < many
    assert again.status == "verified"
    assert f"(from {origin})" in Path(again.report or "").read_text()
    store = open_run(tmp_path / "runs", again.run)
    try:
        drafts = store.records.drafts()
    finally:
        store.close()
    assert drafts[0].candidate.origin == origin
