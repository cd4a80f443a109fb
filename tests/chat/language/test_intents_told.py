"""Is what somebody tells, wishes, regrets or wonders about never taken for a request?"""

from __future__ import annotations

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.language.grammar import read_only_requests
from agentkernel.chat.requests import IntentContext, Understood

CONTEXT = IntentContext(
    targets=("a100", "h100", "h200", "l4"), candidates=(1, 2, 3), current=2, precision="strict"
)
CHANGES = {
    "allow tf32": "allowed tf32", "keep c3": "kept c3", "undo that": "undid that",
    "save it": "saved it", "go back to c1": "went back to c1", "run again": "ran again",
    "fork this": "forked this", "discard c2": "discarded c2", "use the h200": "used the h200",
    "stop at 2x": "stopped at 2x", "try idea 2": "tried idea 2", "allow bf16": "allowed bf16",
    "export the session": "exported the session", "start over": "started over",
}  # fmt: skip
PAST = ("I {} earlier", "we {}", "you {}", "I already {}", "somebody {}", "I have {}",
        "we {} in the last project", "they {}, not us", "yesterday we {}", "I thought you {}",
        "we only {}", "I wish I had {}", "you should have {}", "if we had {}")  # fmt: skip
OPEN = ("I might {}", "I could {}", "I was going to {}", "I wonder whether to {}",
        "do I need to {}?", "should we {}?", "would it help to {}?", "is it worth it to {}?",
        "must I {}?", "do we have to {}", "what happens if I {}?", "what does it mean to {}?",
        "how do I {}?", "it was a mistake to {}", "if it is slower, {}", "{} if it is slower",
        "don't {} yet",
        "why would anybody {}", "they told me to {}", "the manual says to {}",
        "my colleague wrote: {}", "imagine we {}", "maybe I should {}", "I regret that I said {}",
        "we are not going to {}", "nobody asked you to {}", "who would {}?", '"{}"',
        "when should I {}?", "what if I {}?", "remind me to {}", "let me think about whether to {}",
        "{} tomorrow", "I'd {} if I were you")  # fmt: skip
STATED = (
    "the goal was 2x", "we reached 2x", "the limit was 4 GB", "my budget was 5 dollars",
    "it has been 10 minutes", "10 minutes have passed", "we have 3 candidates", "c3 runs in 50 us",
    "c3 is 2x faster", "the h200 is twice as fast", "the L4 has 24 GB", "c3 needs 4 GB",
    "only 4 GB were used", "c3 is better than c2", "tf32 is faster than bf16", "tf32 was fine",
    "tf32 is on", "I hate bf16", "pytorch uses tf32 by default", "everyone uses bf16",
    "our production model runs in bf16", "in 2024 we used tf32", "use 2 of the 4 ideas",
    "keeping c3 was a mistake", "with batch 64 it was slower", "going back is not an option",
    "saving takes too long", "the kernel has 12 lines", "c3 was better", "nobody undoes that",
    "we can go back to c2 later", "allowing bf16 is out of the question",
)  # fmt: skip
"""Statements with the words and numbers of requests."""
TOO_EARLY = ("once it reaches 2x, save it", "save it when you reach 2x", "keep c3 unless it's slow",
             "if c3 is faster, keep it",
             "export it after 10 minutes", "when it is done, save it")  # fmt: skip
STILL_UNDERSTOOD = {
    "I'd rather use tf32": "precision",
    "is c3 better than c2?": "compare",
    "keep the better one": "keep",
    "keep the faster of the two": "keep",
    "which is better, c2 or c3?": "compare",
    "we could try idea 2": "try_idea",
    "I think we should keep c3": "keep",
    "can you undo that please": "undo",
    "did I allow tf32?": "settings",
    "c3 failed, why?": "why_rejected",
    "keep c3, not c2": "keep",
    "go back to c2 rather than c3": "return_to",
    "use bf16 rather than tf32": "precision",
    "that was a mistake, undo it": "undo",
    "you have 15 minutes": "budget",
    "on an A100": "target",
    "now on the A100, please": "target",
}


@pytest.mark.parametrize("form", PAST)
@pytest.mark.parametrize("past", CHANGES.values())
def test_what_was_done_is_not_done_again(past: str, form: str) -> None:
    found = understand(form.format(past), CONTEXT)
    if isinstance(found, Understood):
        assert {intent.name for intent in found.intents} <= read_only_requests()


@pytest.mark.parametrize("form", OPEN)
@pytest.mark.parametrize("command", CHANGES)
def test_what_is_not_decided_is_not_done(command: str, form: str) -> None:
    assert isinstance(understand(command, CONTEXT), Understood)
    found = understand(form.format(command), CONTEXT)
    if isinstance(found, Understood):
        assert {intent.name for intent in found.intents} <= read_only_requests()


@pytest.mark.parametrize("text", [*STATED, *TOO_EARLY])
def test_a_statement_is_no_request(text: str) -> None:
    found = understand(text, CONTEXT)
    if isinstance(found, Understood):
        assert {intent.name for intent in found.intents} <= read_only_requests()


@pytest.mark.parametrize(("text", "name"), STILL_UNDERSTOOD.items())
def test_a_request_in_such_words_is_still_one(text: str, name: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Understood)
    assert [intent.name for intent in found.intents] == [name]


@pytest.mark.parametrize("text", ["for batch 1, on an A100", "for batch 1 on the A100"])
def test_a_size_on_another_gpu_is_that_target(text: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Understood)
    assert [intent.name for intent in found.intents] == ["shapes", "target"]


@pytest.mark.parametrize("text", ["on an A100?", "would it be faster on an A100?"])
def test_a_question_about_another_gpu_changes_no_target(text: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Understood)
    assert [intent.name for intent in found.intents] == ["gpu"]
