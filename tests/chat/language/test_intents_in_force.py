"""Is a yes told from a run by what waits for an answer, and a ban by what is allowed now?"""

from __future__ import annotations

from typing import Literal

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.requests import IntentContext, NotUnderstood, Understood
from agentkernel.domain.verdict import Precision

BANS = {
    "tf32": ("don't use tf32", "no tf32", "tf32 is not allowed", "never allow tf32",
             "I don't want tf32", "stop using tf32"),
    "bf16": ("no bf16 please", "don't allow bf16", "bf16 is not allowed"),
}  # fmt: skip
FORBIDS = {("tf32", "tf32"), ("bf16", "tf32"), ("bf16", "bf16")}
"""The precision in force, and a format that it allows."""
ANSWERS = {
    ("go ahead", "nothing"): "run",
    ("yes, go ahead", "nothing"): "run",
    ("proceed", "nothing"): "run",
    ("go", "nothing"): "run",
    ("yes", "nothing"): "approve",
    ("do it", "nothing"): "approve",
    ("no, leave it", "nothing"): "decline",
    ("go ahead", "choice"): "approve",
    ("go on", "choice"): "approve",
    ("do it", "choice"): "approve",
    ("no, leave it", "choice"): "decline",
    ("run again", "choice"): "run",
    ("go ahead", "approval"): "approve",
    ("proceed", "approval"): "approve",
    ("go", "approval"): "approve",
    ("yes", "approval"): "approve",
    ("do it", "approval"): "approve",
    ("no", "approval"): "decline",
    ("no, leave it", "approval"): "decline",
    ("better not", "approval"): "decline",
    ("no, go on", "approval"): "run",
    ("run 3 rounds", "approval"): "run",
    ("go ahead and undo that", "approval"): "undo",
    ("go ahead and undo that", "nothing"): "undo",
}


@pytest.mark.parametrize("precision", ["strict", "tf32", "bf16", None])
@pytest.mark.parametrize(("named", "ban"), [(key, ban) for key in BANS for ban in BANS[key]])
def test_a_ban_of_what_is_not_allowed_changes_nothing(
    named: str, ban: str, precision: Precision | None
) -> None:
    found = understand(ban, IntentContext(precision=precision))
    if precision is None or (precision, named) in FORBIDS:
        assert isinstance(found, Understood)
        assert found.intents[0].model_dump() == {"name": "precision", "precision": "strict"}
    else:
        assert isinstance(found, NotUnderstood)
        assert found.reason == (
            f"{named} is not allowed now (precision {precision}): nothing to change."
        )


def test_what_is_asked_beside_an_empty_ban_is_done() -> None:
    found = understand("run again, but don't use bf16", IntentContext(precision="strict"))
    assert isinstance(found, Understood)
    assert [intent.name for intent in found.intents] == ["run"]


@pytest.mark.parametrize(
    "text", ["back to strict precision", "no reduced precision", "strict precision, no tf32"]
)
def test_who_asks_for_strict_results_gets_them(text: str) -> None:
    assert isinstance(understand(text, IntentContext(precision="strict")), Understood)


@pytest.mark.parametrize(("said", "name"), ANSWERS.items())
def test_an_answer_is_read_by_what_waits(
    said: tuple[str, Literal["approval", "choice", "nothing"]], name: str
) -> None:
    found = understand(said[0], IntentContext(waiting=said[1]))
    assert isinstance(found, Understood)
    assert [intent.name for intent in found.intents] == [name]
