"""Whether those who share a GPU wait for its memory, in their order, and outlive the dead."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Timer

import pytest
import torch

from agentkernel.runtime import gpu_lock
from agentkernel.tools.judge import memory_count
from agentkernel.tools.judge.memory_count import (
    COPIES,
    LEDGER,
    TIMING_BYTES,
    device_free,
    reserved,
    timing_room,
)

GB = 1 << 30


def _hold(folder: str, nbytes: int, inside: Event, leave: Event) -> None:
    os.environ[gpu_lock.FOLDER] = folder
    with reserved(nbytes, 10 * GB), gpu_lock.shared():
        inside.set()
        leave.wait(30)


class Holder:
    """A process that reserves memory until it is told to leave."""

    def __init__(self, folder: Path, nbytes: int) -> None:
        context = multiprocessing.get_context("fork")
        self.inside, self.leave = context.Event(), context.Event()
        self.process = context.Process(
            target=_hold, args=(str(folder), nbytes, self.inside, self.leave), daemon=True
        )
        self.process.start()

    def end(self) -> None:
        self.leave.set()
        self.process.join(10)


def _waits(holder: Holder) -> bool:
    return not holder.inside.wait(0.6)


def test_what_fits_beside_others_enters_and_what_does_not_waits(tmp_path: Path) -> None:
    first, second = Holder(tmp_path, 4 * GB), Holder(tmp_path, 5 * GB)
    assert first.inside.wait(10)
    assert second.inside.wait(10)
    third = Holder(tmp_path, 2 * GB)
    assert _waits(third)
    first.end()
    assert third.inside.wait(10)
    second.end()
    third.end()
    assert json.loads((tmp_path / LEDGER).read_text()) == []


@pytest.mark.slow
def test_one_that_needs_all_is_not_passed_by_small_ones(tmp_path: Path) -> None:
    first = Holder(tmp_path, GB)
    assert first.inside.wait(10)
    whole = Holder(tmp_path, 99 * GB)
    assert _waits(whole)
    late = Holder(tmp_path, GB)
    assert _waits(late)
    first.end()
    assert whole.inside.wait(10)
    assert _waits(late)
    whole.end()
    assert late.inside.wait(10)
    late.end()


def test_what_a_dead_process_held_is_free_again(tmp_path: Path) -> None:
    dying = Holder(tmp_path, 9 * GB)
    assert dying.inside.wait(10)
    next_one = Holder(tmp_path, 9 * GB)
    assert _waits(next_one)
    dying.process.kill()
    dying.process.join(10)
    assert next_one.inside.wait(10)
    next_one.end()


def test_a_run_by_itself_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpu_lock.FOLDER, raising=False)
    begin = time.monotonic()
    with reserved(99 * GB, GB):
        assert time.monotonic() - begin < 1


def test_what_may_be_taken_is_what_was_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of five problems planned with all that was free, and together they wanted it twice."""
    monkeypatch.setenv(gpu_lock.FOLDER, str(tmp_path))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (90 * GB, 100 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2 * GB)
    assert device_free() == 90 * GB
    with reserved(TIMING_BYTES + COPIES * 10 * GB, 100 * GB):
        assert device_free() == TIMING_BYTES + (COPIES - 1) * 10 * GB - 2 * GB
    assert device_free() == 90 * GB


@pytest.mark.parametrize(("wanted_gb", "room_gb"), [(30, TIMING_BYTES / GB), (10, 5)])
def test_timing_has_the_room_that_was_reserved_for_it(
    wanted_gb: int, room_gb: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of what judging may take held one flush region: a batch was one call."""
    monkeypatch.setenv(gpu_lock.FOLDER, str(tmp_path))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (40 * GB, 100 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2 * GB)
    assert timing_room() == 10 * GB
    with reserved(wanted_gb * GB, 100 * GB):
        assert timing_room() == room_gb * GB
    assert timing_room() == 10 * GB


def test_nothing_is_held_before_the_device_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft takes half a minute in which the others may have the device."""
    monkeypatch.setenv(gpu_lock.FOLDER, str(tmp_path))
    other = Holder(tmp_path, 9 * GB)
    assert other.inside.wait(10)
    with reserved(9 * GB, 10 * GB):
        waited = gpu_lock.waited_s()
        Timer(1.0, other.end).start()
        with gpu_lock.exclusive():
            assert other.leave.is_set()
        assert gpu_lock.waited_s() - waited > 0.5
    with reserved(9 * GB, 10 * GB), gpu_lock.shared():
        (entry,) = json.loads((tmp_path / LEDGER).read_text())
        assert entry["pid"] == os.getpid()
    with reserved(9 * GB, 10 * GB):
        assert json.loads((tmp_path / LEDGER).read_text()) == []


def test_what_others_hold_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_count, "free_memory", lambda: 4 * GB)
    first = Holder(tmp_path, 3 * GB)
    assert first.inside.wait(10)
    monkeypatch.setattr(memory_count, "free_memory", lambda: GB)
    second = Holder(tmp_path, 1 * GB)
    assert second.inside.wait(10)
    third = Holder(tmp_path, 9 * GB)
    assert _waits(third)
    first.end()
    second.end()
    assert third.inside.wait(10)
    (entry,) = json.loads((tmp_path / LEDGER).read_text())
    assert entry["nbytes"] == GB
    third.end()
