"""Devices as they are asked for, and one that times kept from others."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from agentkernel.domain.errors import SettingError
from agentkernel.runtime.machine import (
    default_workers,
    hold_devices,
    join_devices,
    parse_devices,
    visible_devices,
)

THREE = ("4", "5", "GPU-abc")


@pytest.mark.parametrize(
    ("text", "visible", "devices"),
    [
        (None, (), ("cpu",)),
        (None, THREE, ("4",)),
        ("0,2", THREE, ("4", "GPU-abc")),
        (" 1 ", THREE, ("5",)),
        ("cpu", THREE, ("cpu",)),
        ("cpu,cpu", (), ("cpu", "cpu")),
    ],
)
def test_devices(text: str | None, visible: tuple[str, ...], devices: tuple[str, ...]) -> None:
    assert parse_devices(text, visible) == devices


@pytest.mark.parametrize("text", ["3", "0,x", "", "0,cpu", "-1"])
def test_an_unknown_device(text: str) -> None:
    with pytest.raises(SettingError, match="Known here: 0, 1, 2, cpu"):
        parse_devices(text, THREE)


def test_a_gpu_is_named_once() -> None:
    with pytest.raises(SettingError, match="twice"):
        parse_devices("0,0", THREE)


def test_no_gpu_is_visible_where_all_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_devices() == ()


def waits(first: AbstractContextManager[object], second: AbstractContextManager[object]) -> bool:
    """True where `second` is entered as soon as `first` is left, and not before."""
    entered = threading.Event()

    def enter() -> None:
        with second:
            entered.set()

    thread = threading.Thread(target=enter)
    with first:
        thread.start()
        early = entered.wait(0.3)
    thread.join(5)
    return entered.is_set() and not early


def test_a_second_bench_waits_for_the_gpu(tmp_path: Path) -> None:
    assert waits(hold_devices(tmp_path, ("0", "cpu")), hold_devices(tmp_path, ("1", "0")))


def test_other_devices_do_not_wait(tmp_path: Path) -> None:
    with hold_devices(tmp_path, ("0",)), hold_devices(tmp_path, ("1",)):
        pass
    with hold_devices(tmp_path, ("cpu",)), hold_devices(tmp_path, ("cpu", "cpu")):
        pass


def test_a_lane_left_over_from_a_killed_bench_is_waited_for(tmp_path: Path) -> None:
    lanes = ExitStack()
    for _ in range(2):
        lanes.enter_context(join_devices(tmp_path, "0"))
    assert waits(lanes, hold_devices(tmp_path, ("0",)))


@pytest.mark.parametrize(
    ("devices", "cpus", "lanes"),
    [
        (("cpu",), 64, 1),
        (("cpu", "cpu"), 64, 1),
        (("0",), 2, 1),
        (("0",), 7, 2),
        (("0",), 16, 5),
        (("0",), 64, 5),
        (("0", "1"), 32, 5),
        (("0", "1", "2", "3"), 32, 2),
    ],
)
def test_as_many_lanes_as_the_cores_feed(devices: tuple[str, ...], cpus: int, lanes: int) -> None:
    assert default_workers(devices, cpus) == lanes
