"""How is a suite run on several devices, so that neither a kill nor a problem costs the rest?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from agentkernel.bench.bench_problem import NOT_THE_PROBLEMS, gpu_name, run_problem
from agentkernel.bench.bench_task import BenchOptions, BenchTask
from agentkernel.bench.rows import Row, append_row, gather, in_order, rows_path
from agentkernel.bench.suite import Shard
from agentkernel.domain.errors import one_line
from agentkernel.runtime.bench_lanes import CPU
from agentkernel.runtime.workflows_lanes import JobResult, run_jobs
from agentkernel.storage.atomic import make_folder
from agentkernel.tools.targets import find_target

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
    lanes: int = 1,
) -> None:
    """Run the tasks that no row in `folder` answers yet, `lanes` at a time on each device; `say`
    hears each new row.

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

    most = (tuple(devices) * lanes)[: len(waiting())]
    if not most:
        return
    for ended in run_jobs(
        lambda: next(queue(), None),
        work,
        most,
        Path(tasks[0].cache) / "locks",
        limit_s=lambda task: limit(task.asked),
        keep=_keeps,
    ):
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
    settings = task.asked.settings
    resolved = find_target(settings.target)
    return Row(
        key=task.key,
        name=task.problem.name,
        level=task.problem.level,
        coder=settings.coder,
        target=resolved.target.name,
        planned=task.asked.samples,
        gpu=None if ended.device == CPU else gpu_name(resolved),
        error=why,
    )
