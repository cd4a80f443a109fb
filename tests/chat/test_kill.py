"""Does a session lose at most the turn in progress when its process is killed?"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.chat.session import Session
from agentkernel.domain.errors import RunBusy
from tests.chat import scripted_session

ROOT = Path(__file__).parents[2]
EVENTS = 26
"""About as many lines as the child prints for its two turns."""


def child_of(folder: Path, delay_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.chat.scripted_session", str(folder), str(delay_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def kill_after(folder: Path, lines: int, more_s: float) -> list[str]:
    """Let the child talk and kill -9 it after so many lines; what it had printed."""
    heard = []
    with child_of(folder, 0.05) as child:
        assert child.stdout is not None
        for _ in range(lines):
            line = child.stdout.readline()
            if not line:
                break
            heard.append(line.strip())
        time.sleep(more_s)
        child.send_signal(signal.SIGKILL)
    return heard


def folder_of(folder: Path) -> Path:
    (found,) = (folder / "runs").glob("*-chat-*/session.sqlite")
    return found.parent


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_a_killed_step_is_finished_on_reopening(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    heard = kill_after(tmp_path, chance.randrange(2, EVENTS), chance.random() * 0.05)
    with Session.reopen(folder_of(tmp_path), workshop=scripted_session.shop()) as session:
        assert all(item.state == "done" for item in session.tree.steps)
        assert len(session.transcript()) >= heard.count("turn")
        if "run_started" in heard:
            assert [item.candidate.strategy for item in session.tree.nodes] == [
                "rows",
                "wrong",
                "slow",
            ]
            assert session.tree.place.candidate == 1
            assert session.transcript()[-1].text == "run again"
        assert session.say("show the tree")


@pytest.mark.slow
def test_killed_again_and_again_it_comes_to_the_same_end(tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(3):
        kill_after(tmp_path, chance.randrange(2, 14), chance.random() * 0.03)
    with Session.reopen(folder_of(tmp_path), workshop=scripted_session.shop()) as session:
        numbers = [item.number for item in session.tree.nodes]
        assert numbers == sorted(set(numbers))
        assert len({item.candidate.sha256 for item in session.tree.nodes}) == len(numbers)
        assert all(item.state == "done" for item in session.tree.steps)


@pytest.mark.slow
def test_a_living_process_holds_the_session(tmp_path: Path) -> None:
    with child_of(tmp_path, 0.5) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "turn"
        with pytest.raises(RunBusy, match="Another process works"):
            Session.reopen(folder_of(tmp_path), workshop=scripted_session.shop())
        child.send_signal(signal.SIGKILL)
