"""A compiler in the baselines' process lets others time, but for its own benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from agentkernel.runtime import gpu_lock
from agentkernel.runtime.pool import BASELINE_NICE, may_raise_priority
from agentkernel.runtime.timed_cpus import LANES
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.profiler.comparison import Comparison, ComparisonResult
from agentkernel.tools.profiler.compile_workers import (
    CompilerLocks,
    Deadline,
    compile_threads,
    wrap,
)
from agentkernel.tools.profiler.rounds import Pace, ProfileSettings, Rounds, Side, SideFailed
from agentkernel.tools.sandbox.watchdog import descendants, readable
from tests.tools.profiler.simulated_gpu import SimulatedGauge

OTHER = """
import sys
from pathlib import Path
from agentkernel.runtime.gpu_lock import GpuLock
with GpuLock(Path(sys.argv[1])).hold(sys.argv[2]):
    print("in", flush=True)
    sys.stdin.readline()
"""
BUSY = """
import sys, time
from pathlib import Path
from agentkernel.runtime.gpu_lock import GpuLock
place = GpuLock(Path(sys.argv[1]))
while True:
    with place.hold("working"):
        time.sleep(0.05)
    with place.hold("timing"):
        time.sleep(0.05)
    time.sleep(0.01)
"""
COMPILED = """
import torch
import torch._inductor.compile_fx as compile_fx
import torch._inductor.runtime.benchmarking as benchmarking
from agentkernel.runtime import gpu_lock
from agentkernel.tools.profiler.compile_workers import Deadline, CompilerLocks, patch_compiler

held = lambda: gpu_lock._current_lock()._held
inner = compile_fx.compile_fx

def compiler(*args, **kwargs):
    print("compiler", held())
    benchmarking.TritonBenchmarker().benchmark_gpu(None)
    print("compiler", held())
    return inner(*args, **kwargs)

def tuner(self, call):
    print("tuner", held())

compile_fx.compile_fx = compiler
benchmarking.TritonBenchmarker.benchmark_gpu = tuner
doors = CompilerLocks(Deadline())
patch_compiler(doors)
with doors.opened(), doors.working():
    torch.compile(lambda x: x + 1.0)(torch.ones(4))
    benchmarking.TritonBenchmarker().benchmark_gpu(None)
    print("request", held())
benchmarking.TritonBenchmarker().benchmark_gpu(None)
print("after", held())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gate that this process and those that it starts go through."""
    monkeypatch.setenv(gpu_lock.FOLDER, str(tmp_path))
    return tmp_path


@contextmanager
def other(folder: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(folder), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def inside(process: subprocess.Popen[str], within_s: float) -> bool:
    return bool(readable((process.stdout.fileno(),), within_s))


def leave(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=20)


@pytest.mark.slow
def test_others_time_while_the_compiler_works_and_not_while_it_benchmarks(folder: Path) -> None:
    locks = CompilerLocks(Deadline())
    with other(folder, "timing") as timer:
        with locks.opened(), locks.working():
            started = inside(timer, 0.0)
        assert not started
        with locks.opened(), locks.working(), locks.without_gpu():
            assert inside(timer, 20.0)
            leave(timer)
    with other(folder, "working") as worker:
        assert inside(worker, 20.0)
        leave(worker)
    with ExitStack() as inner:
        for lock in (locks.opened, locks.working, locks.without_gpu, locks.working):
            inner.enter_context(lock())
        timer = inner.enter_context(other(folder, "timing"))
        assert not inside(timer, 1.0), "a benchmark inside of the compiler's part"
    with locks.opened(), locks.working(), other(folder, "timing") as timer:
        assert not inside(timer, 1.0), "working is held again"


def test_outside_of_a_request_the_parent_holds_the_gate(folder: Path) -> None:
    """A benchmark in the middle of a batch must not wait for whom it is made for."""
    locks = CompilerLocks(Deadline())
    with other(folder, "timing") as parent:
        assert inside(parent, 20.0)
        with locks.working(), locks.without_gpu():
            assert gpu_lock._current_lock()._held is None
        leave(parent)


@pytest.mark.slow
def test_waiting_at_the_gate_is_not_held_against_a_compilation(folder: Path) -> None:
    deadline, expired = Deadline(), threading.Event()
    with other(folder, "timing") as timer:
        assert inside(timer, 20.0)
        threading.Timer(1.5, leave, (timer,)).start()
        locks = CompilerLocks(deadline)
        with deadline.within(0.6, expired.set), locks.opened(), locks.working():
            assert not expired.is_set()
            assert expired.wait(20.0), "what it does inside counts"


def test_what_ends_in_time_is_not_cut_off() -> None:
    deadline, expired = Deadline(), threading.Event()
    with deadline.within(0.3, expired.set):
        pass
    time.sleep(0.5)
    assert not expired.is_set()


class Tuner:
    @staticmethod
    def loose(x: int) -> int:
        return x + 1

    @classmethod
    def of_class(cls, x: int) -> str:
        return f"{cls.__name__}{x}"

    def own(self, x: int, *, y: int) -> int:
        return x * y


def test_methods_of_every_kind_stay_what_they_are() -> None:
    entered: list[str] = []

    @contextmanager
    def context() -> Iterator[None]:
        entered.append("in")
        yield

    for name in ("loose", "of_class", "own", "no_such_name"):
        wrap(Tuner, name, context)
    wrap(None, "own", context)
    assert (Tuner.loose(1), Tuner().loose(2)) == (2, 3)
    assert Tuner.of_class(3) == "Tuner3"
    assert Tuner().own(2, y=4) == 8
    assert len(entered) == 4


@pytest.mark.slow
def test_torch_compile_goes_through_the_doors(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILED],
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=300,
    )
    assert done.stdout.splitlines() == [
        "compiler None",
        "tuner working",
        "compiler None",
        "tuner working",
        "request working",
        "tuner None",
        "after None",
    ], done.stderr


PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x + 1.0)
"""


class Recorded(Comparison):
    """Says how the gate is held while rounds are timed."""

    held: tuple[object, ...] = ()

    def _rounds(self, sides: Sequence[Side], pace: Pace | None = None) -> Rounds | SideFailed:
        self.held = (*self.held, gpu_lock._current_lock()._held)
        return super()._rounds(sides, pace)


@pytest.mark.slow
def test_a_contest_gets_through_beside_another_run(folder: Path, tmp_path: Path) -> None:
    """The other one works and times by turns; nobody waits forever, and rounds are timed alone."""
    path = tmp_path / "toy.py"
    path.write_text(PROBLEM + "def get_inputs():\n    return [torch.randn(4, 64)]\n")
    settings = ProfileSettings(
        pace=Pace(seconds=2.0, block_ms=1.0, min_rounds=3, max_rounds=3), max_autotune=True
    )
    busy = subprocess.Popen([sys.executable, "-c", BUSY, str(folder)])
    try:
        with Recorded(
            load_problem(str(path)), settings, SimulatedGauge(), flush_bytes=4096, device="cpu"
        ) as held:
            assert not isinstance(held.copy_gb_per_s(), SideFailed)
            process = held.candidate(PROBLEM.replace("Model", "ModelNew"))
            assert not isinstance(process, SideFailed)
            with process:
                found = held.measure(process, 0)
            alone = held.measure_baselines(0)
    finally:
        busy.kill()
        busy.wait()
    assert isinstance(found, ComparisonResult), found
    assert (found.compile_error, found.autotune_error) == (None, None)
    assert isinstance(alone, Rounds)
    assert held.held == ("timing", "timing")
    assert gpu_lock._current_lock()._held is None


POOL = """
import os
from torch._inductor.async_compile import AsyncCompile
from agentkernel.tools.profiler.compile_workers import start_compile_workers

start_compile_workers()
pool = AsyncCompile.process_pool()
print(os.getpriority(os.PRIO_PROCESS, pool.process.pid), os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.slow
def test_compile_workers_give_way_and_the_process_that_times_does_not() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    several = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", POOL], capture_output=True, text=True, env=several, check=True
    )
    assert done.stdout.split() == [str(BASELINE_NICE), str(own)]


@pytest.mark.parametrize(
    ("cores", "lanes", "workers"),
    [(1, "", 1), (2, "1", 1), (4, "1", 2), (16, "1", 4), (16, "4", 2), (14, "8", 1), (192, "8", 4)],
)
def test_a_baseline_has_its_part_of_the_lane_for_compile_workers(
    monkeypatch: pytest.MonkeyPatch, cores: int, lanes: str, workers: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setenv(LANES, lanes)
    assert compile_threads() == workers


COMPILERS = ("cc1plus", "compile_worker")
"""In the command lines of what TorchInductor starts on a CPU."""


def nice_of(pid: int) -> int:
    """Field 19 of proc(5)'s `stat`."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


def watch(seen: dict[str, set[int]], stop: threading.Event) -> None:
    """Priorities of a baseline process, its session, its compile workers and compilers."""
    while not stop.wait(0.05):
        for pid in descendants(os.getpid()):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                names = [*COMPILERS, "baseline_process:serve"]
                for name in names:
                    if any(name in word for word in words):
                        seen[name].add(nice_of(pid))
                if any(names[-1] in word for word in words):
                    weight = Path(f"/proc/{pid}/autogroup").read_text().split()
                    seen["session"].update(int(word) for word in weight[-1:])


@pytest.mark.slow
def test_all_that_compiles_a_baseline_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process itself for as long as it compiles, where the system lets it come back."""
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    path = tmp_path / "toy.py"
    path.write_text(PROBLEM + "def get_inputs():\n    return [torch.randn(4, 64)]\n")
    settings = ProfileSettings(pace=Pace(seconds=2.0, block_ms=1.0, min_rounds=3, max_rounds=3))
    seen: dict[str, set[int]] = defaultdict(set)
    stop = threading.Event()
    watching = threading.Thread(target=watch, args=(seen, stop))
    watching.start()
    try:
        with Comparison(
            load_problem(str(path)), settings, SimulatedGauge(), flush_bytes=4096, device="cpu"
        ) as held:
            assert isinstance(held.measure_baselines(0), Rounds)
            process = held._main_baseline.process
            assert process is not None
            after = [nice_of(pid) for pid in process.pids]
    finally:
        stop.set()
        watching.join()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert [seen[name] for name in COMPILERS] == [{BASELINE_NICE}] * 2
    assert after == [own]
    assert seen["session"] <= {own, BASELINE_NICE}
    assert seen["baseline_process:serve"] == (
        {own, BASELINE_NICE} if may_raise_priority() else {own}
    )


def test_a_benchmark_of_the_compiler_has_its_usual_priority(folder: Path) -> None:
    """Others wait until it is through."""
    locks = CompilerLocks(Deadline())
    own, me = os.getpriority(os.PRIO_PROCESS, 0), threading.get_native_id()
    with locks.opened(), locks.compiling():
        low = os.getpriority(os.PRIO_PROCESS, me)
        with locks.working():
            assert os.getpriority(os.PRIO_PROCESS, me) == own
        assert os.getpriority(os.PRIO_PROCESS, me) == low
    assert low == (BASELINE_NICE if may_raise_priority() else own)
    assert os.getpriority(os.PRIO_PROCESS, me) == own
