"""Does what looks ahead keep out of every turn, quietly?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from agentkernel.cli.chat import loading as loading_module
from agentkernel.cli.chat.loading import BackgroundLoad, IdleLock

SOON_S = 0.05


def waited(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + 5
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    return done()


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> BackgroundLoad:
    """It imports nothing."""
    monkeypatch.setattr(loading_module, "SLOW", "json")
    monkeypatch.setattr(loading_module, "PRELOADED_FIRST", ())
    monkeypatch.setattr(loading_module, "PRELOADED_LAST", ())
    return BackgroundLoad()


def test_nothing_looks_ahead_in_a_turn(loading: BackgroundLoad) -> None:
    looked: list[str] = []
    loading.idle.busy()
    loading.start(lambda error: None, lambda: looked.append("once"))
    time.sleep(SOON_S)
    assert not looked, "a turn is going on"
    with loading.idle.typing():
        assert waited(lambda: bool(looked))
    loading.leave()


def test_a_turn_waits_for_what_is_at_work(loading: BackgroundLoad) -> None:
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def look() -> None:
        begun.set()
        go_on.wait(5)
        order.append("looked")

    with loading.idle.typing():
        loading.start(lambda error: None, look)
        begun.wait(5)
        threading.Timer(SOON_S, go_on.set).start()
    order.append("turn")
    loading.leave()
    assert order == ["looked", "turn"]


def test_the_end_waits_for_nothing_that_has_not_begun(loading: BackgroundLoad) -> None:
    looked: list[str] = []
    loading.idle.busy()
    loading.start(lambda error: None, *[lambda: looked.append("late")] * 3)
    time.sleep(SOON_S)
    loading.leave()
    assert not looked


def test_a_failure_is_quiet_and_the_next_one_goes_on(
    loading: BackgroundLoad, capsys: pytest.CaptureFixture[str]
) -> None:
    looked: list[str] = []
    failed: list[BaseException] = []

    def fail() -> None:
        raise ValueError("no graph")

    loading.start(failed.append, fail, lambda: looked.append("after"))
    assert waited(lambda: bool(looked))
    loading.leave()
    shown = capsys.readouterr()
    assert (failed, shown.out, shown.err) == ([], "", "")


def test_free_and_busy_may_be_said_twice() -> None:
    idle = IdleLock()
    idle.free()
    idle.busy()
    idle.busy()
    idle.free()
    with idle.work() as goes_on:
        assert goes_on
    idle.leave()
    with idle.work() as goes_on:
        assert not goes_on
