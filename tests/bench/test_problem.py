"""Does a row say what the runs of a problem found, and is no finished run done twice?"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from agentkernel.agents.models.provider import ModelProvider
from agentkernel.bench import run as bench_run
from agentkernel.bench.answers import below
from agentkernel.bench.batch import Runner
from agentkernel.bench.run import ProblemTools, bench_problem
from agentkernel.bench.sample import kept_baseline
from agentkernel.bench.suite import BenchOptions, BenchTask, Row, Times, read_suite
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.profile import Profile, ProfileFailed, Ratio
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import ExecutionFailed, RunFailed, Verdict
from agentkernel.runtime.machine import LocalGpu
from agentkernel.storage.configuration import load_settings
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.targets import ResolvedTarget, load_targets
from agentkernel.workflows.deps import Deps
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.outcome import Baselines
from agentkernel.workflows.state import OptimizeRequest
from tests.workflows import fakes
from tests.workflows.fakes import FakeWorkshop, Script, mismatch

GPU = LocalGpu(0, "NVIDIA H100", "90", 80 * 2**30, "580", None, None, None, None, "a test")
TIMED = Baselines(eager_us=9.0, compiled_us=8.0, autotune_error="timeout: slow")
WRONG = Script("a", failure=mismatch(), repaired=False)
CHEAT = ExecutionFailed(rule="no-kernel", text="nothing was launched", case="primary")


@dataclass
class Room:
    """A problem, a scripted run factory, and whether a GPU is there."""

    folder: Path
    shop: FakeWorkshop
    gpu: LocalGpu | None = GPU
    measured: list[str] = field(default_factory=list)
    started: list[OptimizeRequest] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    def task(
        self, samples: int = 1, source: str = fakes.PROBLEM, max_autotune: bool = True
    ) -> BenchTask:
        path = self.folder / "suite" / "level1" / "plus.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        flags = {"target": "h100", "profile.max_autotune": max_autotune}
        asked = BenchOptions(settings=load_settings(None, (), flags), samples=samples)
        return BenchTask(
            problem=read_suite(self.folder / "suite")[0],
            asked=asked,
            out=str(self.folder / "out"),
            cache=str(self.folder / "cache"),
        )

    def bench(self, task: BenchTask) -> Row:
        def start(request: OptimizeRequest, on_event: object) -> object:
            self.started.append(request)
            return run(request, workshop=self.shop)

        def again(folder: str, on_event: object) -> object:
            self.resumed.append(folder)
            return resume(folder, workshop=self.shop)

        runner = Runner(start, again)  # type: ignore[arg-type]
        return bench_problem(task, ProblemTools(runner, self.resolve, self.measure))

    def resolve(self, target: str | None) -> ResolvedTarget:
        found = load_targets()["h100-sxm"]
        return ResolvedTarget(found, self.gpu, "a test", self.gpu is not None, found)

    def measure(
        self, loaded: LoadedProblem, resolved: ResolvedTarget, settings: Settings
    ) -> Times | None:
        self.measured.append(loaded.problem.name)
        return Times(eager_us=30.0, compiled_us=15.0)


@dataclass
class Tuning(FakeWorkshop):
    """Also measures max-autotune, or says why not, where it is not told to leave it out; the judge
    also answers KernelBench's rule, by strategy."""

    autotuned: float | None = None
    """Its time over eager's."""
    error: str | None = None
    kernelbench: dict[str, bool] = field(default_factory=dict)
    tune: bool = True

    def equip(
        self,
        loaded: LoadedProblem,
        settings: Settings,
        resolved: ResolvedTarget,
        desk: ModelProvider,
    ) -> AbstractContextManager[Deps]:
        self.tune = settings.profile.max_autotune
        return super().equip(loaded, settings, resolved, desk)

    def _judge(self, candidate: Candidate) -> Verdict:
        found = self.kernelbench.get(candidate.strategy)
        return super()._judge(candidate).evolve(kernelbench=found)

    def _profile(self, candidate: Candidate) -> Profile | ProfileFailed:
        found = super()._profile(candidate)
        if isinstance(found, ProfileFailed) or not found.measured:
            return found
        one = found.measurements[0]
        update: dict[str, object] = {"autotune_error": self.error if self.tune else "left out"}
        if self.tune and self.autotuned is not None:
            value = one.vs_eager.value * self.autotuned
            update = {
                "autotuned": fakes.timing(one.eager.median_us * self.autotuned),
                "vs_autotune": Ratio(value=value, low=value - 0.01, high=value + 0.01),
            }
        return found.evolve(measurements=(one.evolve(**update),))


def room(folder: Path, *scripts: Script, gpu: LocalGpu | None = GPU) -> Room:
    return Room(folder, FakeWorkshop(scripts), gpu)


def test_a_faster_candidate(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=2.0, compiled=1.25))
    row = place.bench(place.task())
    (sample,) = row.samples
    assert (row.name, row.level, row.gpu, row.error) == ("level1/plus", "level1", GPU.name, None)
    assert (sample.status, sample.correct, sample.kept) == ("met", True, None)
    assert {"draft", "judge", "profile"} <= {item.stage for item in sample.stages}
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


@pytest.mark.slow
def test_baselines_without_a_candidate_are_measured_once(tmp_path: Path) -> None:
    place = room(tmp_path, WRONG)
    row = place.bench(place.task())
    assert (row.samples[0].correct, row.samples[0].kept) == (False, "eager")
    assert (row.times.eager_us, row.times.compiled_us) == (30.0, 15.0)
    again = place.bench(place.task(samples=2))
    assert again.times.eager_us == 30.0
    assert place.measured == ["plus"], "the second time they come from the cache"


@pytest.mark.slow
def test_what_a_run_chose_by_is_what_the_row_shows(tmp_path: Path) -> None:
    """A baseline is kept by the times that the run took: others, taken later, may differ."""
    place = room(tmp_path, WRONG)
    place.shop.baselines = TIMED
    row = place.bench(place.task())
    assert (row.samples[0].status, row.samples[0].kept) == ("kept_compiled", "torch.compile")
    assert (row.times.eager_us, row.times.compiled_us, row.times.autotune_us) == (9.0, 8.0, None)
    assert row.times.autotune_note == "failed: timeout: slow"
    assert place.measured == []


@pytest.mark.slow
def test_baselines_that_cannot_be_timed_are_said_so(tmp_path: Path) -> None:
    place = room(tmp_path, WRONG)
    place.shop.baselines = ProfileFailed(side="eager", reason="out_of_memory")
    reason = place.bench(place.task()).samples[0].reason
    assert reason.endswith("; the baselines have no times: eager: out_of_memory")


@pytest.mark.slow
def test_drift_against_the_cache(tmp_path: Path) -> None:
    wrong = room(tmp_path, WRONG)
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


@pytest.mark.quick(1)
@pytest.mark.parametrize(("side", "correct"), [("candidate", False), ("gpu", True)])
def test_a_candidate_that_breaks_while_profiled_is_not_correct(
    tmp_path: Path, side: str, correct: bool
) -> None:
    failed = ProfileFailed(side=side, reason="compile", log="ptxas error")
    place = room(tmp_path, Script("a", unprofiled=failed))
    assert place.bench(place.task()).samples[0].correct == correct


@pytest.mark.slow
def test_one_that_was_too_late_to_be_timed_is_correct_though_a_baseline_is_kept(
    tmp_path: Path,
) -> None:
    failed = ProfileFailed(side="time limit", reason="the time limit was over")
    place = room(tmp_path, Script("a", unprofiled=failed, searched_us=20.0))
    place.shop.baselines = TIMED
    (sample,) = place.bench(place.task()).samples
    assert (sample.kept, sample.correct) == ("torch.compile", True)


@pytest.mark.slow
def test_samples_have_seeds_and_folders_of_their_own(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=2.0))
    row = place.bench(place.task(samples=3))
    assert [item.seed for item in row.samples] == [0, 1, 2]
    assert [item.settings.seed for item in place.started] == [0, 1, 2]
    assert len({item.settings.runs for item in place.started}) == 3


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_where_memory_ran_out_it_is_tried_once_more_alone(tmp_path: Path) -> None:
    short = RunFailed(reason="raised", log="torch.OutOfMemoryError: CUDA out of memory", case="x")
    for name, failure, runs in (("short", short, ["0", "0-alone"]), ("wrong", mismatch(), ["0"])):
        place = room(tmp_path / name, Script("a", failure=failure, repaired=False))
        (sample,) = place.bench(place.task()).samples
        assert not sample.correct
        assert [Path(request.settings.runs).name for request in place.started] == runs


@pytest.mark.slow
def test_a_bug_in_the_second_sample_keeps_the_first(tmp_path: Path) -> None:
    def crash(candidate: Candidate) -> None:
        if len(place.shop.judged) > 1:
            raise ZeroDivisionError("oops")

    place = Room(tmp_path, FakeWorkshop((Script("a", speedup=2.0),), on_judge=crash))
    row = place.bench(place.task(samples=2))
    assert (len(row.samples), row.planned) == (1, 2)
    assert re.fullmatch(
        r"ZeroDivisionError: oops \(bench/test_problem.py:\d+ in crash, "
        r"from workflows/\w+.py:\d+ in \w+\)",
        row.error or "",
    )


@pytest.mark.slow
def test_a_model_that_is_down_is_the_machines_matter(tmp_path: Path) -> None:
    def down(candidate: Candidate) -> None:
        raise ModelUnavailable("it does not answer")

    place = Room(tmp_path, FakeWorkshop((Script("a"),), on_judge=down))
    with pytest.raises(ModelUnavailable):
        place.bench(place.task())


def test_the_key_is_what_is_asked(tmp_path: Path) -> None:
    place = room(tmp_path)
    task = place.task()
    moved = task.evolve(out="elsewhere", cache="elsewhere")
    assert moved.key == task.key
    settings = task.asked.settings.evolve(runs="elsewhere")
    asked = task.asked.evolve(settings=settings)
    assert task.evolve(asked=asked).key == task.key, "nor where runs lie"
    assert len({task.key, place.task(2).key, place.task(max_autotune=False).key}) == 3
    assert "switched off" in place.task(max_autotune=False).asked.autotune_note


def test_a_setting_that_is_new_in_a_version_leaves_known_rows_known(tmp_path: Path) -> None:
    task = room(tmp_path).task()

    class Newer(Settings):
        fresh: int = 3

    class Wider(BenchOptions):
        settings: Newer

    class Later(BenchTask):
        asked: Wider

    def asked(**more: int) -> Later:
        settings = Newer.model_validate(task.asked.settings.model_dump() | more)
        return Later(problem=task.problem, asked=Wider(settings=settings), out="", cache="")

    assert asked().key == task.key
    assert asked(fresh=4).key != task.key


def tuning(folder: Path, *scripts: Script, **wishes: object) -> Room:
    return Room(folder, Tuning(scripts, **wishes))  # type: ignore[arg-type]


@pytest.mark.slow
def test_max_autotune_is_timed_beside_the_candidate(tmp_path: Path) -> None:
    place = tuning(tmp_path, Script("a", speedup=2.0), autotuned=0.4)
    row = place.bench(place.task())
    (sample,) = row.samples
    assert place.started[0].settings.profile.max_autotune
    assert sample.vs_autotune is not None
    assert sample.vs_autotune.value == pytest.approx(0.8)
    assert (row.times.autotune_us, row.times.autotune_note) == (pytest.approx(8.0), "")
    assert (sample.autotune_derived, row.times.autotune_derived) == (False, False)
    assert sample.kept == "max-autotune"
    assert not below(row, "max-autotune")
    assert not below(row, "torch.compile")


@pytest.mark.slow
def test_a_max_autotune_known_to_be_far_behind_is_not_timed_again(tmp_path: Path) -> None:
    tuning(tmp_path, Script("a", speedup=2.0), autotuned=1.7).bench(room(tmp_path).task())
    place = tuning(tmp_path / "later", Script("a", speedup=2.5), autotuned=7.0)
    task = place.task()
    task = task.evolve(cache=str(tmp_path / "cache"))
    row = place.bench(task)
    (sample,) = row.samples
    assert not place.started[0].settings.profile.max_autotune
    assert sample.vs_autotune is not None
    assert sample.vs_autotune.value == pytest.approx(2.5 * 1.7)
    assert sample.vs_autotune.low == pytest.approx(2.49 * 1.7)
    assert sample.autotune_derived
    assert row.times.autotune_us == pytest.approx(1.7 * (row.times.eager_us or 0.0))
    assert row.times.autotune_derived
    assert "cached" in row.times.autotune_note
    assert row.key == place.task().key, "the same question, whatever the cache has"


@pytest.mark.slow
def test_one_that_may_be_the_fastest_is_always_timed_beside_the_candidate(tmp_path: Path) -> None:
    tuning(tmp_path, Script("a", speedup=2.0), autotuned=0.4).bench(room(tmp_path).task())
    place = tuning(tmp_path / "later", Script("a", speedup=2.0), autotuned=0.4)
    task = place.task()
    row = place.bench(task.evolve(cache=str(tmp_path / "cache")))
    assert place.started[0].settings.profile.max_autotune
    assert row.samples[0].kept == "max-autotune"
    assert not row.samples[0].autotune_derived


@pytest.mark.slow
def test_what_max_autotune_cost_a_failure_is_said(tmp_path: Path) -> None:
    place = tuning(tmp_path, Script("a", speedup=2.0), error="120 s were not enough")
    row = place.bench(place.task())
    assert row.samples[0].vs_autotune is None
    assert row.times.autotune_us is None
    assert row.times.autotune_note == "failed: 120 s were not enough"


@pytest.mark.slow
def test_switched_off_no_cache_fills_it_in(tmp_path: Path) -> None:
    place = tuning(tmp_path, Script("a", speedup=2.0), autotuned=0.4)
    place.bench(place.task())
    row = place.bench(place.task(max_autotune=False))
    assert row.samples[0].vs_autotune is None
    assert (row.times.autotune_us, row.times.autotune_derived) == (None, False)
    assert row.times.autotune_note == "not run: switched off"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("script", "told", "expected"),
    [
        (Script("a", speedup=2.0), True, True),
        (Script("a", speedup=2.0), False, False),
        (WRONG, True, True),
        (WRONG, False, False),
        (Script("a", speedup=2.0), None, None),
    ],
)
def test_kernelbenchs_rule(
    tmp_path: Path, script: Script, told: bool | None, expected: bool | None
) -> None:
    known = {} if told is None else {"a": told}
    (sample,) = (place := tuning(tmp_path, script, kernelbench=known)).bench(place.task()).samples
    assert sample.kernelbench_correct is expected


@pytest.mark.quick(1)
@pytest.mark.parametrize(("asked", "expected"), [(True, False), (False, None)])
def test_without_a_candidate_nothing_passes(
    tmp_path: Path, asked: bool, expected: bool | None
) -> None:
    place = tuning(tmp_path)
    task = place.task()
    judge = task.asked.settings.judge.evolve(kernelbench=asked)
    settings = task.asked.settings.evolve(judge=judge)
    asked_so = task.asked.evolve(settings=settings)
    (sample,) = place.bench(task.evolve(asked=asked_so)).samples
    assert (sample.candidates, sample.kernelbench_correct) == (0, expected)


@pytest.mark.slow
def test_of_an_accepted_candidate_the_others_marks_do_not_count(tmp_path: Path) -> None:
    scripts = (WRONG, Script("b", speedup=2.0))
    place = tuning(tmp_path, *scripts, kernelbench={"a": True, "b": False})
    assert place.bench(place.task()).samples[0].kernelbench_correct is False


def test_the_baseline_that_is_named_is_the_one_kept(tmp_path: Path) -> None:
    place = room(tmp_path, Script("a", speedup=1.2, compiled=1.5))
    runner = run(
        OptimizeRequest(
            load_problem(place.task().problem.path),
            load_settings(None, (), {"runs": str(tmp_path / "runs")}),
            None,
            ("a", "test"),
        ),
        workshop=place.shop,
    )
    assert kept_baseline(runner) == "torch.compile"
    named = runner.evolve(baseline="max-autotune")
    assert kept_baseline(named) == "max-autotune"
    handed_over = {"status": "met", "baseline": None}
    assert kept_baseline(runner.evolve(**handed_over)) is None


def test_a_lane_works_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others threads that wait for one another cost more than they bring."""
    seen: list[int] = []
    monkeypatch.setattr(
        bench_run, "bench_problem", lambda task, tools: seen.append(torch.get_num_threads())
    )
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        bench_run.run_problem(None)  # type: ignore[arg-type]
        assert seen == [1]
    finally:
        torch.set_num_threads(before)
