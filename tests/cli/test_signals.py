"""That a command which SIGTERM or SIGHUP ends does so as at Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.cli.terminal import interrupt_on_termination, watch_signals

CALL = """
import os, signal, sys
from agentkernel.cli import app

def end(**_: object) -> None:
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))

app.app = end
app.main([sys.argv[2], "x.py"])
"""


@pytest.mark.parametrize(
    ("name", "command", "kept"),
    [
        ("SIGTERM", "optimize", ". What was finished is kept."),
        ("SIGHUP", "batch", ". What was finished is kept."),
        ("SIGINT", "plan", ": nothing is kept."),
        ("SIGINT", "judge", ": nothing is kept."),
    ],
)
def test_a_signal_ends_a_command_as_interrupted(
    name: str, command: str, kept: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALL, name, command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr == f"agentkernel: Interrupted{kept} Next: the same command again.\n"
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_sent_twice_is_one(number: int) -> None:
    before = signal.getsignal(number)
    with interrupt_on_termination():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt_on_termination():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_session_within_a_command_has_its_own_word() -> None:
    with interrupt_on_termination(), watch_signals() as closed:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert closed.exit_code == 128 + signal.SIGTERM
