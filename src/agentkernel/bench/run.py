"""A suite run on several devices; each problem becomes a row, whatever happens to it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from agentkernel.bench.batch import Runner
from agentkernel.bench.sample import (
    BaselineKey,
    autotune_note,
    autotuned_of,
    baseline_key,
    cached_times,
    keep_times,
    times_of,
    to_sample,
    with_drift,
)
from agentkernel.bench.suite import (
    BenchOptions,
    BenchTask,
    Row,
    Sample,
    Shard,
    Times,
    append_row,
    gather,
    in_order,
    rows_path,
)
from agentkernel.domain.errors import (
    AgentKernelError,
    EnvironmentFailure,
    OutputError,
    SettingError,
    UnknownTarget,
    one_line,
    raised_at,
)
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.settings import Settings
from agentkernel.runtime.machine import CPU, installed_versions, release_cached_memory
from agentkernel.runtime.pool import JobResult, run_jobs
from agentkernel.storage.files import make_folder
from agentkernel.tools.judge.memory_count import ran_out, reserved, wanted_bytes
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler import measure_baselines
from agentkernel.tools.targets import ResolvedTarget, find_target
from agentkernel.workflows.events import ignore
from agentkernel.workflows.optimize import resume, resume_newest, run
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.run_factory import profile_settings
from agentkernel.workflows.state import OptimizeRequest

Measure = Callable[[LoadedProblem, ResolvedTarget, Settings], Times | None]
FAR = 1.1
"""A cached baseline this many times slower than another is not the one to beat."""
NOT_THE_PROBLEMS = (EnvironmentFailure, OutputError, SettingError, UnknownTarget)
"""What the next problem would meet as well: it ends the bench, and the same call goes on."""


@dataclass(frozen=True)
class ProblemTools:
    """What a problem is worked on with: this machine's, or a test's."""

    runner: Runner
    resolve: Callable[[str | None], ResolvedTarget]
    measure: Measure


@dataclass(frozen=True)
class CachedBaselines:
    """What the cache has of a problem's baselines, and under which key."""

    key: BaselineKey
    times: Times | None


def run_problem(task: BenchTask) -> Row:
    """The row of one problem by this machine's coder, judge and profiler, in a process that works
    beside others."""
    torch.set_num_threads(1)
    runner = Runner(run, lambda folder, on_event: resume(folder, on_event))
    return bench_problem(task, ProblemTools(runner, find_target, measure_here))


def bench_problem(task: BenchTask, hands: ProblemTools) -> Row:
    """Every sample of a problem, then its baselines. What breaks stands in the row's `error`.

    On a GPU that others use too it waits until what it holds is free; where memory ran out all the
    same it is tried once more with the device to itself. Raises what is the machine's or the
    caller's, and KeyboardInterrupt where a run was interrupted.
    """
    resolved = hands.resolve(task.asked.settings.target)
    gpu = resolved.local if resolved.measurable else None
    if gpu is None:
        return _problem_row(task, hands, resolved)
    with _room_for(_wanted_bytes(task), gpu.memory_bytes):
        row = _problem_row(task, hands, resolved)
    if _short(row):
        alone = task.evolve(alone=True)
        with _room_for(gpu.memory_bytes, gpu.memory_bytes):
            row = _problem_row(alone, hands, resolved)
    return row


def _short(row: Row) -> bool:
    """Whether memory ran out, in the row's making or where a run of it kept what was there."""
    return ran_out(row.error) or any(
        ran_out(sample.reason) and not sample.correct for sample in row.samples
    )


@contextmanager
def _room_for(nbytes: int, capacity: int) -> Iterator[None]:
    """Device memory for one problem; what this process keeps of it afterwards is given back."""
    with reserved(nbytes, capacity):
        try:
            yield
        finally:
            gc.collect()
            release_cached_memory("cuda")


def _wanted_bytes(task: BenchTask) -> int:
    """Nothing where the problem cannot be loaded, which its row says."""
    try:
        return wanted_bytes(load_problem(task.problem.path))
    except AgentKernelError:
        return 0


def _problem_row(task: BenchTask, hands: ProblemTools, resolved: ResolvedTarget) -> Row:
    settings = task.asked.settings
    samples: list[Sample] = []
    times, error = Times(autotune_note=task.asked.autotune_note), None
    try:
        loaded = load_problem(task.problem.path)
        known = _known(task, loaded, resolved)
        cached = known.times if known is not None else None
        results: list[Result] = []
        for index in range(task.asked.samples):
            results.append(_run(task, index, loaded, hands.runner, cached))
            own = settings.evolve(seed=settings.seed + index)
            samples.append(to_sample(own, results[-1], task.runs(index), cached))
        times = _times(task, loaded, resolved, results, hands.measure, known)
    except NOT_THE_PROBLEMS:
        raise
    except AgentKernelError as failed:
        error = str(failed)
    except Exception as failed:  # noqa: BLE001 - one problem's bug must not cost the others
        error = f"{type(failed).__name__}: {one_line(failed)} ({raised_at(failed)})"
    return _bare_row(task, resolved).evolve(
        gpu=gpu_name(resolved),
        versions=installed_versions(),
        samples=tuple(samples),
        times=times,
        error=error,
        seconds=round(sum(item.seconds for item in samples), 3),
    )


def _bare_row(task: BenchTask, resolved: ResolvedTarget) -> Row:
    """What is known of a problem's row before anything is run."""
    return Row(
        key=task.key,
        name=task.problem.name,
        level=task.problem.level,
        coder=task.asked.settings.coder,
        target=resolved.target.name,
        planned=task.asked.samples,
    )


def _known(
    task: BenchTask, loaded: LoadedProblem, resolved: ResolvedTarget
) -> CachedBaselines | None:
    """None where nothing is measured. Max-autotune's time is left out where nobody asks for it."""
    gpu = gpu_name(resolved)
    if gpu is None:
        return None
    key = baseline_key(loaded.problem.sha256, gpu, installed_versions())
    times = cached_times(Path(task.cache), key)
    if times is not None and not task.asked.settings.profile.max_autotune:
        times = times.evolve(autotune_us=None)
    return CachedBaselines(key, times)


def _run(
    task: BenchTask, index: int, loaded: LoadedProblem, runner: Runner, cached: Times | None
) -> Result:
    """Go on with the run that a kill left, answer from a finished one, or start: without
    max-autotune, which may take minutes to build, where its time is known."""
    folder = task.runs(index)
    make_folder(folder)
    left = resume_newest(folder, lambda run: runner.resume(run, ignore))
    if left is not None:
        return _finished(left)
    settings = task.asked.settings
    settings = settings.evolve(runs=str(folder), seed=settings.seed + index)
    if cached is not None and far_behind(cached):
        settings = settings.evolve(profile=settings.profile.evolve(max_autotune=False))
    request = OptimizeRequest(loaded, settings, None, ("bench", task.problem.path))
    return _finished(runner.start(request, ignore))


def far_behind(cached: Times) -> bool:
    """True where max-autotune is known, and so much slower than another baseline that it needs no
    second look: where it may be the one to beat it is always timed beside the candidate."""
    others = [item for item in (cached.eager_us, cached.compiled_us) if item is not None]
    if cached.autotune_us is None or not others:
        return False
    return cached.autotune_us > FAR * min(others)


def _finished(result: Result) -> Result:
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def _times(
    task: BenchTask,
    loaded: LoadedProblem,
    resolved: ResolvedTarget,
    results: list[Result],
    measure: Measure,
    known: CachedBaselines | None,
) -> Times:
    """From the runs, where a candidate was timed between them; else from the cache or measured."""
    note = task.asked.autotune_note
    if known is None:
        return Times(autotune_note=note)
    now = times_of(results)
    if now is None and known.times is None:
        now = measure(loaded, resolved, task.asked.settings)
    if now is not None:
        keep_times(Path(task.cache), known.key, now)
    found = with_drift(now, known.times)
    if task.asked.settings.profile.max_autotune:
        return found
    return found.evolve(autotune_note=note)


def measure_here(
    loaded: LoadedProblem, resolved: ResolvedTarget, settings: Settings
) -> Times | None:
    """The baselines on the primary shapes; None where they cannot be timed."""
    found = measure_baselines(loaded, resolved, profile_settings(settings))
    if isinstance(found, ProfileFailed):
        return None
    compiled, autotuned = found.compiled, autotuned_of(found)
    return Times(
        eager_us=found.eager.median_us,
        compiled_us=compiled.median_us if compiled is not None else None,
        autotune_us=autotuned.time_us,
        autotune_note=autotune_note(*autotuned),
    )


def gpu_name(resolved: ResolvedTarget) -> str | None:
    """The GPU that measures here, None where nothing is measured."""
    return resolved.local.name if resolved.local is not None and resolved.measurable else None


Work = Callable[[BenchTask], Row]
Say = Callable[[Row], None]
SLACK, GRACE_S = 3.0, 600.0
"""A problem may take so many budgets, and so many seconds, a sample: what hangs past that is ended.
The loop itself keeps to its budget between steps."""


def hang_limit_s(asked: BenchOptions) -> float | None:
    """After how many seconds a problem's process is ended; None where there is no budget."""
    budget = asked.settings.budget.time_s
    return None if budget is None else asked.samples * (SLACK * budget + GRACE_S)


def run_bench(
    tasks: Sequence[BenchTask],
    devices: Sequence[str],
    folder: Path,
    shard: Shard,
    say: Say,
    work: Work = run_problem,
    limit: Callable[[BenchOptions], float | None] = hang_limit_s,
) -> None:
    """Run the tasks that no row in `folder` answers yet, one at a time for each mention of a
    device; `say` hears each new row.

    Tasks begin in their order; a row is on the disk as soon as it is known. Raises
    NOT_THE_PROBLEMS where the machine lacks something, KeyboardInterrupt where a run was
    interrupted; the same call goes on.
    """
    make_folder(folder)
    path = rows_path(folder, shard)

    def waiting() -> list[BenchTask]:
        done = gather(folder)
        return [task for task in tasks if task.key not in done]

    @cache
    def queue() -> Iterator[BenchTask]:
        """What is left once the devices are held: the bench that had them before may have been
        the same one."""
        return iter(waiting())

    most = devices[: len(waiting())]
    if not most:
        return
    jobs = run_jobs(
        lambda: next(queue(), None),
        work,
        most,
        Path(tasks[0].cache) / "locks",
        limit_s=lambda task: limit(task.asked),
        keep=_keeps,
    )
    with closing(jobs) as rows:
        for ended in rows:
            row = _row(ended)
            append_row(path, row)
            say(row)


def finished_rows(tasks: Sequence[BenchTask], folder: Path) -> tuple[Row, ...]:
    """The rows of `tasks` in their order, from all shards in `folder`."""
    return in_order(gather(folder).values(), [task.key for task in tasks])


def _keeps(ended: JobResult[BenchTask, Row]) -> bool:
    """No process outlives an error, which may have cost it the GPU."""
    return ended.answer is not None and ended.answer.error is None


def _row(ended: JobResult[BenchTask, Row]) -> Row:
    """The job's row; one with the reason where the process ended or raised."""
    error, task = ended.error, ended.job
    if ended.answer is not None:
        return ended.answer
    if isinstance(error, (*NOT_THE_PROBLEMS, KeyboardInterrupt)):
        raise error
    if ended.died:
        why = "its process ended: it crashed, ran out of memory, or hung far past the budget"
    else:
        why = f"{type(error).__name__}: {one_line(error)}"
    resolved = find_target(task.asked.settings.target)
    gpu = None if ended.device == CPU else gpu_name(resolved)
    return _bare_row(task, resolved).evolve(gpu=gpu, error=why)
