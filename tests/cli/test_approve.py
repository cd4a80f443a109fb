"""Does a terminal show what is to be approved, and take only a clear yes for one?"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.cli.console import console
from agentkernel.cli.rendering.live import LiveTable
from agentkernel.cli.rendering.run import approver, ask_approval
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.workflows.approval import PendingApproval
from agentkernel.workflows.events import ApprovalAsked, ApprovalGiven, Noted
from tests.cli.commands import Cli
from tests.workflows.fakes import ANALYSIS, PROBLEM

IDEA = Hypothesis(strategy="tiled", reason="tiles that fit", predicted_us=2.0)
PLAN = PendingApproval(
    kind="plan", round=0, hypothesis=IDEA, plan=Plan(analysis=ANALYSIS, hypotheses=(IDEA,))
)
HOSTILE = "class ModelNew:\n    '''\x1b[2Jgone\x07'''\n"
CANDIDATE = PendingApproval(
    kind="candidate",
    round=1,
    hypothesis=IDEA,
    candidate=Candidate(source=HOSTILE, coder="chat:m", round=1),
)


@pytest.mark.parametrize(
    ("typed", "approved"),
    [
        ("y\n", True),
        ("YES\n", True),
        ("n\n", False),
        ("\n", False),
        ("", False),
        ("maybe\ny\n", True),
        ("maybe\n", False),
    ],
)
def test_only_a_clear_yes_is_one(
    typed: str, approved: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert ask_approval(PLAN) is approved
    assert "tiled (2.0 us predicted): tiles that fit" in capsys.readouterr().out


def test_a_candidate_is_shown_and_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert ask_approval(CANDIDATE)
    shown = capsys.readouterr().out
    assert "by chat:m: tiled" in shown
    assert "class ModelNew:" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_nobody_is_asked_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert approver(as_json=False) is ask_approval
    assert approver(as_json=True) is None
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert approver(as_json=False) is None


@pytest.mark.parametrize("command", ["optimize", "batch", "bench"])
def test_approval_in_a_pipe_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plus.py").write_text(PROBLEM)
    Path("list.yaml").write_text("- problem: plus.py\n")
    named = {"optimize": "plus.py", "batch": "list.yaml", "bench": "."}[command]
    captured = cli([command, named, "-c", "approve=plan"], 2)
    assert captured.err.count("\n") == 1
    assert "'approve' is 'plan'" in captured.err
    assert not Path("agentkernel-runs").exists()


def test_the_table_makes_room_for_the_question() -> None:
    with LiveTable(console()) as table:
        table.show(ApprovalAsked(about="plan", round=0, strategy="tiled"))
        assert not table._live.is_started
        table.show(ApprovalGiven(approved=True))
        table.show(Noted(text="on"))
        assert table._live.is_started


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 3), (b"\x04", 3), (b"\x03", 130)])
def test_a_person_declines_on_a_terminal(tmp_path: Path, typed: bytes, code: int) -> None:
    (tmp_path / "plus.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text("class ModelNew:\n    pass\n")
    words = ["optimize", "plus.py", "--coder", "file:kernel.py", "--approve", "candidate"]
    own, child_end = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "agentkernel", *words, "--target", "h100"],
        stdin=child_end,
        stdout=child_end,
        stderr=child_end,
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(child_end)
    shown = b""
    while b"Judge this?" not in shown:
        shown += os.read(own, 4096)
    os.write(own, typed)
    try:
        while piece := os.read(own, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(own)
    assert child.wait(60) == code
    assert b"class ModelNew" in shown


def take_terminal() -> None:
    """Let Ctrl-C on the child's terminal reach the child."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
