"""Does a terminal show from the first moments on that a command starts, and a pipe nothing?"""

from __future__ import annotations

import io
import sys
import time

import pytest

from agentkernel.cli.terminal import ERASED, loading, loading_words


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, *, silent: bool = False) -> str:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", stream)
    with loading(silent=silent):
        end = time.monotonic() + (5.0 if out.isatty() and not silent else 0.3)
        while time.monotonic() < end and stream.getvalue().count(", 0.") < 2:
            time.sleep(0.01)
    return stream.getvalue()


def test_the_seconds_of_a_start_count_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    told = shown(monkeypatch, Terminal())
    assert told.startswith(ERASED)
    assert told.endswith(ERASED)
    assert told.count("s" + ERASED) >= 2


def test_a_pipe_and_json_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == ""
    assert shown(monkeypatch, Terminal(), silent=True) == ""


def test_torch_is_named_while_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert loading_words(0.14) == "starting, 0.1 s"
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert loading_words(1.25) == "loading torch, 1.2 s"
