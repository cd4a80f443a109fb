"""Does a row say what the runs of a problem found, and is no finished run done twice?"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import fakes
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import ExecutionFailed
from agentkernel.errors import ModelUnavailable
from agentkernel.tools.bench.rows import Row, Times
from agentkernel.tools.bench.suite import read_suite
from agentkernel.tools.devices import LocalGpu
from agentkernel.tools.problems import LoadedProblem
from agentkernel.tools.settings import load_settings
from agentkernel.tools.targets import ResolvedTarget, load_targets
from agentkernel.workflows.batch import Runner
from agentkernel.workflows.bench_problem import Asked, Hands, Task, bench_problem
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.state import OptimizeRequest
from fakes import FakeWorkshop, Script, mismatch

GPU = LocalGpu(0, "NVIDIA H100", "90", 80 * 2**30, "580", None, None, None, None, "a test")
CHEAT = ExecutionFailed(rule="no-kernel", text="nothing was launched", case="primary")


@dataclass
class Room:
    """A problem, a scripted workshop, and whether a GPU is there."""

    folder: Path
    shop: FakeWorkshop
    gpu: LocalGpu | None = GPU
    measured: list[str] = field(default_factory=list)
    started: list[OptimizeRequest] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    def task(
        self, samples: int = 1, source: str = fakes.PROBLEM, max_autotune: bool = True
    ) -> Task:
        path = self.folder / "suite" / "level1" / "plus.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        asked = Asked(
            settings=load_settings(None, (), {"target": "h100"}),
            samples=samples,
            max_autotune=max_autotune,
        )
        return Task(
            problem=read_suite(self.folder / "suite")[0],
            asked=asked,
            out=str(self.folder / "out"),
            cache=str(self.folder / "cache"),
        )

    def bench(self, task: Task) -> Row:
        def start(request: OptimizeRequest, on_event: object) -> object:
            self.started.append(request)
            return run(request, workshop=self.shop)

        def again(folder: str, on_event: object) -> object:
            self.resumed.append(folder)
            return resume(folder, workshop=self.shop)

        runner = Runner(start, again)  # type: ignore[arg-type]
        return bench_problem(task, Hands(runner, self.resolve, self.measure))

    def resolve(self, target: str | None) -> ResolvedTarget:
        found = load_targets()["h100-sxm"]
        return ResolvedTarget(found, self.gpu, "a test", self.gpu is not None, found)

    def measure(
        self, loaded: LoadedProblem, resolved: ResolvedTarget, settings: Settings
    ) -> Times | None:
        self.measured.append(loaded.problem.name)
        return Times(eager_us=30.0, compiled_us=15.0)


def room(folder: Path, *scripts: Script, gpu: LocalGpu | None = GPU) -> Room:
    return Room(folder, FakeWorkshop(scripts), gpu)


def test_a_faster_candidate(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=2.0, compiled=1.25))
    row = place.bench(place.task())
    (sample,) = row.samples
    assert (row.name, row.level, row.gpu, row.error) == ("level1/plus", "level1", GPU.name, None)
    assert (sample.status, sample.correct, sample.kept) == ("met", True, None)
    assert sample.vs_eager is not None
    assert sample.vs_compile is not None
    assert (sample.vs_eager.value, sample.vs_compile.value) == (2.0, 1.6)
    assert (sample.energy_mj, sample.eager_energy_mj, sample.roofline_fraction) == (3.0, 5.0, 0.8)
    assert (row.times.eager_us, sample.candidates, sample.hacks) == (20.0, 1, ())
    assert row.times.autotune_note.startswith("not run")
    assert row.seconds == sample.seconds > 0
    assert place.measured == [], "the baselines were timed beside the candidate"


def test_slower_than_torch_compile_is_correct_and_kept(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=1.2, compiled=1.5))
    (sample,) = place.bench(place.task()).samples
    assert (sample.status, sample.correct, sample.kept) == ("kept_compiled", True, "torch.compile")
    assert sample.vs_compile is not None
    assert sample.vs_compile.value == pytest.approx(0.8)


def test_baselines_without_a_candidate_are_measured_once(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", failure=mismatch(), repaired=False))
    row = place.bench(place.task())
    assert (row.samples[0].correct, row.samples[0].kept) == (False, "eager")
    assert (row.times.eager_us, row.times.compiled_us) == (30.0, 15.0)
    again = place.bench(place.task(samples=2))
    assert again.times.eager_us == 30.0
    assert place.measured == ["plus"], "the second time they come from the cache"


def test_drift_against_the_cache(tmp_path: Path) -> None:
    wrong = room(tmp_path, Script("a", failure=mismatch(), repaired=False))
    wrong.bench(wrong.task())
    place = room(tmp_path, Script("a", speedup=2.0))
    row = place.bench(place.task(samples=2))
    assert (row.times.eager_us, row.times.eager_drift) == (20.0, pytest.approx(20.0 / 30.0))


def test_without_a_gpu_only_estimates(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a"), gpu=None)
    row = place.bench(place.task())
    (sample,) = row.samples
    assert (row.gpu, row.times.eager_us, sample.status) == (None, None, "verified")
    assert (sample.correct, sample.interpreted) == (True, True)
    assert (sample.vs_eager, sample.time_us) == (None, None)
    assert sample.estimated_time_us == 2.5
    assert place.measured == []


def test_a_cheat_is_named(tmp_path: Path) -> None:
    lost = ProfileFailed(side="candidate", reason="stale_output")
    scripts = (Script("a", failure=CHEAT, repaired=False), Script("b", unprofiled=lost))
    row = room(tmp_path, *scripts).bench(room(tmp_path).task())
    (sample,) = row.samples
    assert set(sample.hacks) == {"execution:no-kernel", "profile:stale_output"}
    assert not sample.correct


@pytest.mark.parametrize(("side", "correct"), [("candidate", False), ("gpu", True)])
def test_a_candidate_that_breaks_while_profiled_is_not_correct(
    tmp_path: Path, side: str, correct: bool
) -> None:
    failed = ProfileFailed(side=side, reason="compile", log="ptxas error")
    place = room(tmp_path, Script("a", unprofiled=failed))
    assert place.bench(place.task()).samples[0].correct == correct


def test_samples_have_seeds_and_folders_of_their_own(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=2.0))
    row = place.bench(place.task(samples=3))
    assert [item.seed for item in row.samples] == [0, 1, 2]
    assert [item.settings.seed for item in place.started] == [0, 1, 2]
    assert len({item.settings.runs for item in place.started}) == 3


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=2.0))
    first = place.bench(place.task())
    assert place.bench(place.task()).samples == first.samples
    assert (len(place.started), len(place.resumed), len(place.shop.judged)) == (1, 1, 1)


def test_an_interrupted_run_is_gone_on_with(tmp_path: Path) -> None:
    def stop(candidate: Candidate) -> None:
        if len(place.shop.judged) > 1:
            raise KeyboardInterrupt

    scripts = (Script("a", speedup=1.4, compiled=1.3), Script("b", speedup=1.5, compiled=1.3))
    place = Room(tmp_path, FakeWorkshop(scripts, on_judge=stop))
    with pytest.raises(KeyboardInterrupt):
        place.bench(place.task())
    place.shop = FakeWorkshop(scripts)
    (sample,) = place.bench(place.task()).samples
    assert sample.vs_eager is not None
    assert sample.vs_eager.value == 1.5
    assert (len(place.started), len(place.resumed), len(place.shop.judged)) == (1, 1, 1)


def test_a_run_that_cannot_be_read_is_begun_anew(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=2.0))
    place.bench(place.task())
    manifest = next((tmp_path / "out" / "runs").rglob("run.json"))
    manifest.write_text("{")
    assert place.bench(place.task()).error is None
    assert len(place.started) == 2


def test_what_a_problem_breaks_stands_in_its_row(tmp_path: Path) -> None:
    place = room(tmp_path)
    row = place.bench(place.task(source="raise ValueError('no luck')"))
    assert "no luck" in (row.error or "")
    assert (row.samples, row.planned, row.status) == ((), 1, "failed")


def test_a_bug_in_the_second_sample_keeps_the_first(tmp_path: Path) -> None:
    def crash(candidate: Candidate) -> None:
        if len(place.shop.judged) > 1:
            raise ZeroDivisionError("oops")

    place = Room(tmp_path, FakeWorkshop((Script("a", speedup=2.0),), on_judge=crash))
    row = place.bench(place.task(samples=2))
    assert (len(row.samples), row.planned, row.error) == (1, 2, "ZeroDivisionError: oops")


def test_a_model_that_is_down_is_the_machines_matter(tmp_path: Path) -> None:
    def down(candidate: Candidate) -> None:
        raise ModelUnavailable("it does not answer")

    place = Room(tmp_path, FakeWorkshop((Script("a"),), on_judge=down))
    with pytest.raises(ModelUnavailable):
        place.bench(place.task())


def test_the_key_is_what_is_asked(tmp_path: Path) -> None:
    place = room(tmp_path)
    task = place.task()
    moved = task.model_copy(update={"out": "elsewhere", "cache": "elsewhere"})
    assert moved.key == task.key
    settings = task.asked.settings.model_copy(update={"runs": "elsewhere"})
    asked = task.asked.model_copy(update={"settings": settings})
    assert task.model_copy(update={"asked": asked}).key == task.key, "nor where runs lie"
    assert len({task.key, place.task(2).key, place.task(max_autotune=False).key}) == 3
    assert "switched off" in place.task(max_autotune=False).asked.autotune_note
