"""Does a yes in any wording pick the one reading that was asked about, and a number one of many?"""

from __future__ import annotations

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.requests import Intent, IntentContext, OnCandidate, Run, Undo
from agentkernel.chat.user_input import pick_option

ONE: tuple[tuple[Intent, ...], ...] = ((OnCandidate(name="keep", candidate=3),),)
TWO: tuple[tuple[Intent, ...], ...] = (*ONE, (Undo(), Run()))
CONTEXT = IntentContext(waiting="choice")


@pytest.mark.parametrize("text", ["yes", "y", "Yes.", "sure, do it", "go ahead", "go on", "1"])
def test_a_yes_picks_the_only_reading(text: str) -> None:
    assert pick_option(text, understand(text, CONTEXT), ONE) == ONE[0]


@pytest.mark.parametrize(
    "text", ["no, leave it", "run again", "2", "0", "keep c2", "3.5", "\u0663"]
)
def test_anything_else_picks_none(text: str) -> None:
    assert pick_option(text, understand(text, CONTEXT), ONE) is None


@pytest.mark.parametrize(("text", "at"), [("1", 0), (" 2. ", 1), ("yes", None), ("3", None)])
def test_one_of_two_is_picked_by_its_number(text: str, at: int | None) -> None:
    wanted = None if at is None else TWO[at]
    assert pick_option(text, understand(text, CONTEXT), TWO) == wanted
