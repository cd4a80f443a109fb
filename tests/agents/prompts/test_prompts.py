"""Do prompts say what they said before, and refuse to be filled in half?"""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "coders"))

from chat_cases import EXAMPLE, draft_request, refused_request

from agentkernel.agents.coders.model import prompt_messages
from agentkernel.agents.prompts import render
from agentkernel.tools.problems import load_problem

GOLDEN = Path(__file__).parents[2] / "golden" / "prompts"


def check(name: str, text: str) -> None:
    """Compare with the golden file; delete the file to have it written anew."""
    path = GOLDEN / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was missing and has been written: read it and run again")
    assert text == path.read_text()


def test_coder() -> None:
    (task,) = prompt_messages(load_problem(str(EXAMPLE)), draft_request())
    assert task.role == "user"
    check("coder.md", task.text)


def test_debugger() -> None:
    messages = prompt_messages(load_problem(str(EXAMPLE)), refused_request())
    check("debugger.md", messages[-1].text)


def test_a_missing_value_raises() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("coder", problem=load_problem(str(EXAMPLE)).problem)
