"""Is somebody who waits for an answer told so, and is nothing of it left?"""

from __future__ import annotations

import io
import time

from agentkernel.cli.chat.screen import words
from agentkernel.cli.terminal import ERASED, ElapsedTime


def waited(stream: io.StringIO, wanted: str) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if wanted in stream.getvalue():
            return True
        time.sleep(0.005)
    return False


def test_an_answer_that_comes_soon_shows_nothing() -> None:
    stream = io.StringIO()
    clock = ElapsedTime(stream, 80, words, first_s=1.0, every_s=1.0)
    clock.start()
    assert clock.stop()
    assert stream.getvalue() == ""
    assert not clock.stop()


def test_a_long_one_counts_in_one_line_that_is_gone_at_the_end() -> None:
    stream = io.StringIO()
    clock = ElapsedTime(stream, 80, words, first_s=0.01, every_s=0.01)
    clock.start()
    assert waited(stream, words(0.0))
    clock.stop()
    told = stream.getvalue()
    assert told.endswith(ERASED)
    assert "\n" not in told
    time.sleep(0.05)
    assert stream.getvalue() == told, "nothing is written after the end"


def test_it_is_never_wider_than_the_screen() -> None:
    stream = io.StringIO()
    clock = ElapsedTime(stream, 20, words, first_s=0.01, every_s=10)
    clock.start()
    assert waited(stream, "Working")
    clock.stop()
    assert max(len(part) for part in stream.getvalue().split(ERASED)) < 20


def test_a_terminal_that_is_gone_ends_it() -> None:
    stream = io.StringIO()
    stream.close()
    clock = ElapsedTime(stream, 80, words, first_s=0.01, every_s=0.01)
    clock.start()
    time.sleep(0.05)
    assert clock.stop()
