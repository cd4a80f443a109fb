"""Is a core left to what is timed, given back, and none taken from a small machine?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.runtime import timed_cpus as module
from agentkernel.runtime.pool import _timed_cores
from agentkernel.runtime.timed_cpus import (
    LANES,
    LEAST_CPUS,
    VARIABLE,
    compiling_cpus,
    cores_to_reserve,
    cpu_numbers,
    on_timed_cpus,
    threads_of_core,
    timed_cpus,
)


@pytest.fixture(autouse=True)
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine that names every CPU alone."""
    monkeypatch.setattr(module, "TOPOLOGY", str(tmp_path / "{}"))
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_pair_where_the_system_names_a_cpu_alone(tmp_path: Path) -> None:
    (tmp_path / "6").write_text("6\n")
    assert threads_of_core(6) == (6, 7)
    assert threads_of_core(5) == (4, 5)
    (tmp_path / "3").write_text("3,19\n")
    assert threads_of_core(3) == (3, 19)


@given(st.sets(st.integers(0, 200), max_size=80), st.integers(0, 8))
def test_cores_are_apart_and_leave_enough(cpus: set[int], gpus: int) -> None:
    cores = cores_to_reserve(cpus, gpus)
    assert len(cores) == (gpus if gpus and len(cpus) >= gpus * LEAST_CPUS else 0)
    taken = [cpu for core in cores for cpu in core]
    assert len(taken) == len(set(taken)) <= 2 * gpus
    assert set(taken) <= cpus


@pytest.mark.parametrize(
    ("text", "numbers"), [("0", [0]), ("2-4\n", [2, 3, 4]), ("0,4-5", [0, 4, 5])]
)
def test_lists_of_cpus(text: str, numbers: list[int]) -> None:
    assert cpu_numbers(text) == numbers


def test_a_gpu_that_one_lane_has_needs_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert _timed_cores(["0"]) == {}
    assert _timed_cores(["cpu", "cpu"]) == {}
    assert _timed_cores(["0", "0", "0"]) == {"0": (14, 15)}
    assert _timed_cores(["0", "1", "0", "1"]) == {"0": (14, 15), "1": (12, 13)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(LEAST_CPUS - 1)))
    assert _timed_cores(["0", "0"]) == {}


def test_what_is_timed_may_use_it_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-c", "input()"]
    every = os.sched_getaffinity(0)
    first, others = min(every), every - {min(every)}
    if not others:
        pytest.skip("one CPU cannot be shared out")
    with subprocess.Popen(words, stdin=subprocess.PIPE) as timed:
        os.sched_setaffinity(timed.pid, others)
        with on_timed_cpus([timed.pid]):
            assert os.sched_getaffinity(timed.pid) == others, "no core was set aside"
        monkeypatch.setenv(VARIABLE, f"{first}")
        with on_timed_cpus([timed.pid, 1 << 30]):
            assert os.sched_getaffinity(timed.pid) == every
        assert os.sched_getaffinity(timed.pid) == others
        timed.communicate(b"\n")


def test_a_lane_works_beside_its_core() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one CPU cannot be shared out")
    first = min(allowed)
    script = (
        "import os, subprocess, sys\n"
        "from agentkernel.runtime.timed_cpus import keep_off, timed_cpus\n"
        f"keep_off(({first},))\n"
        "child = 'import os; print(*os.sched_getaffinity(0))'\n"
        "print(timed_cpus(), subprocess.check_output([sys.executable, '-c', child], text=True))\n"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    others = " ".join(map(str, sorted(allowed - {first})))
    assert said.split("\n")[0] == f"({first},) {others}"
    assert timed_cpus() == ()


@pytest.mark.parametrize(
    ("lanes", "cpus"), [("", 16), ("1", 16), ("2", 16), ("5", 6), ("40", 1), ("many", 16)]
)
def test_lanes_compile_on_twice_their_part(
    monkeypatch: pytest.MonkeyPatch, lanes: str, cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setenv(LANES, lanes)
    assert compiling_cpus() == cpus
