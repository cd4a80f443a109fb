"""How is a suite run on several devices, so that neither a kill nor a problem costs the rest?"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path

from agentkernel.errors import one_line
from agentkernel.tools import gate
from agentkernel.tools.atomic import make_folder
from agentkernel.tools.bench.lanes import CPU, exclusive, joined
from agentkernel.tools.bench.rows import Row, append_row, gather, in_order, rows_path
from agentkernel.tools.bench.suite import Shard
from agentkernel.tools.targets import find_target
from agentkernel.workflows.bench_problem import (
    NOT_THE_PROBLEMS,
    Asked,
    Task,
    gpu_name,
    run_problem,
)

Work = Callable[[Task], Row]
Say = Callable[[Row], None]
SLACK, GRACE_S = 3.0, 600.0
"""A problem may take so many budgets, and so many seconds, a sample: what hangs past that is ended.
The loop itself keeps to its budget between steps."""


@dataclass(frozen=True)
class Place:
    """Where a lane works: a device, and the folder of the gate that all lanes of it share.

    `gate` is None on the CPU; `locks` is the folder that tells benches of one machine apart.
    """

    device: str
    gate: str | None
    locks: Path


@dataclass
class Lane:
    """One process on a device, which works on one problem at a time."""

    place: Place
    executor: ProcessPoolExecutor


def hang_limit_s(asked: Asked) -> float | None:
    """After how many seconds a problem's process is ended; None where there is no budget."""
    budget = asked.settings.budget.time_s
    return None if budget is None else asked.samples * (SLACK * budget + GRACE_S)


def run_bench(
    tasks: Sequence[Task],
    devices: Sequence[str],
    folder: Path,
    shard: Shard,
    say: Say,
    work: Work = run_problem,
    limit: Callable[[Asked], float | None] = hang_limit_s,
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

    def waiting() -> list[Task]:
        done = gather(folder)
        return [task for task in tasks if task.key not in done]

    for row in _spread(waiting, tuple(devices) * lanes, work, limit):
        append_row(path, row)
        say(row)


def finished_rows(tasks: Sequence[Task], folder: Path) -> tuple[Row, ...]:
    """The rows of `tasks` in their order, from all shards in `folder`."""
    return in_order(gather(folder).values(), [task.key for task in tasks])


def _spread(
    left: Callable[[], Sequence[Task]],
    devices: Sequence[str],
    work: Work,
    limit: Callable[[Asked], float | None],
) -> Iterator[Row]:
    """Each row as it comes, one lane an entry of `devices`. A process that ends takes only its own
    problem with it, and none outlives an error, which may have cost it the GPU. What is `left` is
    asked again with the devices in hand: the bench that had them before may have been the same
    one."""
    tasks = left()
    running: dict[Future[Row], tuple[Lane, Task]] = {}
    with _lanes(devices[: len(tasks)], tasks) as idle:
        waiting = list(reversed(left()))
        while waiting or running:
            while idle and waiting:
                lane, task = idle.pop(), waiting.pop()
                future = lane.executor.submit(_guarded, work, task, limit(task.asked))
                running[future] = (lane, task)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                lane, task = running.pop(future)
                row = _row(future, task, lane.place.device)
                if row.error is not None:
                    lane.executor.shutdown(wait=False, cancel_futures=True)
                    lane.executor = _executor(lane.place)
                idle.append(lane)
                yield row


def _row(future: Future[Row], task: Task, device: str) -> Row:
    """The future's row; one with the reason where the process ended or raised."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, (*NOT_THE_PROBLEMS, KeyboardInterrupt)):
        raise error
    if isinstance(error, BrokenProcessPool):
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
        gpu=None if device == CPU else gpu_name(resolved),
        error=why,
    )


@contextmanager
def _lanes(devices: Sequence[str], tasks: Sequence[Task]) -> Iterator[list[Lane]]:
    """The lanes, the first device's first one last, while this bench holds the devices."""
    if not tasks:
        yield []
        return
    locks = Path(tasks[0].cache) / "locks"
    with ExitStack() as held:
        held.enter_context(exclusive(locks, devices))
        gates = {device: held.enter_context(_gate(device)) for device in dict.fromkeys(devices)}
        places = [Place(device, gates[device], locks) for device in devices]
        lanes = [Lane(place, _executor(place)) for place in reversed(places)]
        try:
            yield list(lanes)
        except BaseException:
            # Interrupted, or the machine lacks something: nobody waits for a problem half done.
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        finally:
            for lane in lanes:
                lane.executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _gate(device: str) -> Iterator[str | None]:
    """The folder of a device's gate; None on the CPU, where nobody times."""
    if device == CPU:
        yield None
        return
    with tempfile.TemporaryDirectory(
        prefix="agentkernel-gate-", ignore_cleanup_errors=True
    ) as folder:
        yield folder


def _executor(place: Place) -> ProcessPoolExecutor:
    """A process of its own, forked from one that has the imports behind it and no CUDA yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch"])
    return ProcessPoolExecutor(1, context, initializer=_prepare, initargs=(place,))


_held = ExitStack()
"""What this process keeps until it ends, once it is a lane: its place among a device's lanes."""


def _prepare(place: Place) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if place.device == CPU else place.device
    if place.gate is None:
        os.environ.pop(gate.FOLDER, None)
    else:
        os.environ[gate.FOLDER] = place.gate
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _held.enter_context(joined(place.locks, place.device))


def _end_with_parent() -> None:
    """A lane whose bench was killed must not go on beside the next call's."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _guarded(work: Work, task: Task, limit_s: float | None) -> Row:
    """`work`, in a process that ends itself where the problem hangs."""
    if limit_s is None:
        return work(task)
    timer = threading.Timer(limit_s, os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        return work(task)
    finally:
        timer.cancel()
