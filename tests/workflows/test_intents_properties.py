"""Does every text get an answer in time, and does a negated change never become the change?"""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.domain.intent import (
    Ambiguous,
    IntentContext,
    IntentName,
    NotUnderstood,
    Understood,
)
from agentkernel.workflows.intents import EXAMPLES, understand
from agentkernel.workflows.intents.words import entries

CONTEXT = IntentContext(targets=("a100", "h100", "h200"), candidates=(1, 2, 3), current=2)
MOST_SECONDS = 0.02
COMMANDS: dict[str, IntentName] = {
    "use tf32": "precision",
    "allow bf16": "precision",
    "use less memory": "less_memory",
    "be more aggressive": "more_aggressive",
    "keep c3": "keep",
    "go back to c3": "return_to",
    "undo that": "undo",
    "try idea 2": "try_idea",
    "fork this": "fork",
    "run again": "run",
    "stop at 2x": "stop_at",
    "save it to fast.py": "save",
    "discard c3": "reject",
    "start over": "restart",
    "optimise for energy": "less_energy",
    "use the h200": "target",
    "fix it": "repair",
    "allow cublas": "policy",
    "use batch size 64": "shapes",
    "switch to branch 2": "switch_branch",
}
NEGATIONS = ("don't {}", "do not {}", "never {}", "please don't {}", "you should not {}",
             "I told you not to {}", "we can't {}", "why did you {}", "did you {}?",
             "don't {} please")  # fmt: skip
SENTENCE = st.lists(st.sampled_from(sorted(entries())), min_size=1, max_size=12).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=700), SENTENCE))
def test_any_text_gets_an_answer(text: str) -> None:
    assert isinstance(understand(text, CONTEXT), Understood | Ambiguous | NotUnderstood)


@settings(max_examples=60, deadline=None)
@given(SENTENCE)
def test_an_answer_comes_in_time(text: str) -> None:
    understand("run", CONTEXT)
    took = []
    for _ in range(3):
        start = time.thread_time()
        understand(text, CONTEXT)
        took.append(time.thread_time() - start)
    assert min(took) < MOST_SECONDS


@pytest.mark.parametrize(
    "text", ["a" * 2**20, "run and " * 2**17, "\x00\x1b[2J" * 2**18, "1," * 2**19, "(" * 2**20]
)
def test_a_megabyte_is_refused_in_time(text: str) -> None:
    understand("run", CONTEXT)
    start = time.thread_time()
    found = understand(text, CONTEXT)
    assert isinstance(found, NotUnderstood)
    assert time.thread_time() - start < MOST_SECONDS


@pytest.mark.parametrize("text", ["", " ", "\n", "\x00", "?!", "🙂", "'", "c", "c0", "#", "-1"])
def test_next_to_nothing_is_not_understood(text: str) -> None:
    assert isinstance(understand(text, CONTEXT), NotUnderstood)


@pytest.mark.parametrize("form", NEGATIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_negated_command_is_not_the_command(command: str, form: str) -> None:
    wanted = understand(command, CONTEXT)
    assert isinstance(wanted, Understood)
    assert [intent.name for intent in wanted.intents] == [COMMANDS[command]]
    found = understand(form.format(command), CONTEXT)
    if isinstance(found, Understood):
        assert wanted.intents[0] not in found.intents


@given(st.sampled_from(sorted(EXAMPLES.values())), st.sampled_from(["\x00", "\x07", "\u200b"]))
def test_control_characters_do_not_get_through(example: str, mark: str) -> None:
    found = understand(f"{mark}{example}{mark}", CONTEXT)
    assert mark not in found.model_dump_json()
