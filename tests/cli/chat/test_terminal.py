"""Does a session live through what a person does at a terminal: type, Tab, paste, stop, close?"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chat.tmux_pane import FAKE, Terminal, until

PROBLEM = """from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    import torch

    return [torch.randn(24, 40)]


def get_init_inputs():
    return []
"""
CHAT = ("chat", "small.py", "--target", "h100")
COLOURS = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "small.py").write_text(PROBLEM)
    made = Terminal(tmp_path, FAKE)
    yield made
    made.tmux("kill-server")


@pytest.mark.slow
def test_a_person_types_completes_stops_and_goes_on(terminal: Terminal) -> None:
    terminal.start(*CHAT)
    terminal.last_line("small>")
    terminal.type("/ro", "Tab")
    terminal.last_line("small> /roofline")
    terminal.type("C-c")
    terminal.last_line("small>")
    terminal.type("C-c")
    terminal.wait("Ctrl-D or /quit ends")
    terminal.type("run", "Enter")
    terminal.wait("made c1")
    terminal.last_line("small c1>")
    terminal.type("/show c")
    terminal.wait("current")
    terminal.type("Tab")
    terminal.wait("/show c1")
    terminal.type("C-c")
    terminal.last_line("small c1>")
    terminal.type("/set goals.prec", "Tab", " st", "Tab", "Enter")
    terminal.wait('set {"goals.precision": "strict"}')
    terminal.type("slow", "Enter")
    terminal.wait("small-2")
    terminal.type("C-c")
    shown = terminal.wait("Stopped. What was judged so far stands.")
    assert "a note with \\x1b[2J in it" in shown
    terminal.last_line("small c2>")
    terminal.type("/set g")
    terminal.wait("/set goals.precision strict")
    terminal.type("C-c")
    terminal.type("C-d")
    terminal.wait("Saved. Go on with:\nagentkernel resume small-chat")
    until(terminal.closed, lambda: "closed")
    assert terminal.turns() == ["run", "/set goals.precision strict", "slow"]


@pytest.mark.slow
def test_a_paste_is_one_input_however_long(terminal: Terminal) -> None:
    terminal.start(*CHAT)
    terminal.last_line("small>")
    terminal.paste("class ModelNew:\n    pass")
    terminal.wait("pass")
    terminal.type("Enter")
    terminal.wait("heard 'class ModelNew:\\n    pass'")
    source = "class ModelNew:\n" + "    # a long line of a long paste\n" * 30000
    terminal.paste(source)
    terminal.wait("[paste 1: 30002 lines]")
    terminal.type("Enter")
    until(lambda: len(terminal.turns()) == 2, terminal.screen)
    assert terminal.turns()[1] == source


@pytest.mark.slow
def test_a_question_is_asked_at_the_terminal(terminal: Terminal) -> None:
    terminal.start(*CHAT)
    terminal.last_line("small>")
    terminal.type("ask", "Enter")
    terminal.wait("Go on with this? [y/N/a(lways)]")
    terminal.type("Enter")
    terminal.wait("not approved")
    terminal.type("ask", "Enter")
    terminal.last_line("Go on with this? [y/N/a(lways)]")
    terminal.type("y", "Enter")
    terminal.wait("made c1")
    terminal.last_line("small c1>")
    terminal.type("late", "Enter", "y", "Enter")  # typed before anybody asked
    terminal.last_line("Go on with this? [y/N/a(lways)]")
    terminal.type("Enter")
    terminal.wait("not approved\nsmall c1>")


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_a_terminal_that_closes_leaves_a_saved_session(terminal: Terminal, busy: bool) -> None:
    terminal.start(*CHAT)
    terminal.last_line("small>")
    terminal.type("run", "Enter")
    terminal.wait("made c1")
    terminal.last_line("small c1>")
    if busy:
        terminal.type("slow", "Enter")
        terminal.wait("small-2")
    terminal.tmux("kill-session")
    until(terminal.closed, lambda: "closed")
    assert terminal.turns() == (["run", "slow"] if busy else ["run"])


@pytest.mark.slow
def test_a_dumb_terminal_without_colour_is_enough(terminal: Terminal) -> None:
    terminal.start(*CHAT, TERM="dumb", NO_COLOR="1")
    terminal.wait("small>")
    terminal.type("run", "Enter")
    terminal.wait("made c1")
    assert "round 1: draft ..." in terminal.screen()
    terminal.type("/quit", "Enter")
    terminal.wait("Saved. Go on with:")
    assert not COLOURS.search(terminal.screen("-e"))


@pytest.mark.slow
def test_no_color_is_obeyed(terminal: Terminal) -> None:
    terminal.start(*CHAT, NO_COLOR="1")
    terminal.last_line("small>")
    terminal.type("run", "Enter")
    terminal.wait("made c1")
    terminal.type("/ro")
    terminal.wait("roofline  how")
    assert not COLOURS.search(terminal.screen("-e"))


@pytest.mark.slow
def test_a_problem_that_cannot_be_loaded_ends_the_prompt(terminal: Terminal) -> None:
    (terminal.folder / "small.py").write_text("x = 1\n")
    terminal.start(*CHAT)
    shown = terminal.wait("agentkernel: ")
    terminal.ended_with(2)
    assert "small.py" in shown
