"""Does every text get an answer in time, and does a negated change never become the change?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentkernel.chat.language import EXAMPLES, understand
from agentkernel.chat.language.grammar import read_only_requests
from agentkernel.chat.language.phrases import forget_tags
from agentkernel.chat.language.tagging import entries
from agentkernel.chat.requests import (
    Ambiguous,
    Cannot,
    IntentContext,
    IntentName,
    NotUnderstood,
    Understood,
)

CONTEXT = IntentContext(targets=("a100", "h100", "h200"), candidates=(1, 2, 3), current=2)
MOST_SECONDS = 0.02
MOST_IMPORT_RATIO = 0.45
"""Of pydantic's own import, so that a busy machine does not count; about 50 ms on a free one."""
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
             "don't {} please", "nobody should {}", "under no circumstances {}",
             "there is no need to {}", "you must not {}", "please do not {}",
             "keep going, but don't {}")  # fmt: skip
OFF_TOPIC = (
    "what time is it", "set an alarm for 20 minutes", "use 4 GPUs", "run it on 8 machines",
    "push it to github", "delete candidate 5 for good", "restart the server", "run, buy milk",
    "what is a kernel?", "use bf16 for the weights only", "use tf32 only for the first layer",
    "it is 2x faster", "it uses cublas", "my colleague said: use tf32", "keep 3, tell my boss",
    "export candidate 4", "run again, the font should be bigger",
    "keep 3 unless 4 is better", "save it when you are done", "run tomorrow",
)  # fmt: skip
"""Sentences with words of requests that ask for none of them, or for more than there is."""
QUANTITIES = (
    "7", "13x", "17 minutes", "19 GB", "23%", "29 us", "31 rounds", "37 steps", "candidate 41",
    "c43", "line 47", "batch 53", "$59", "61 ms", "67k", "71 GPUs", "73 bits", "#79", "83 hours",
    "97 tokens per second", "101 times", "seq 103", "107x109",
)  # fmt: skip
PLACES_FOR_QUANTITIES = (
    "keep {}", "go back to {}", "stop at {}", "at most {}", "use {}", "run for {}",
    "save it to {}", "try idea {}", "explain line {}", "show {}", "undo {}", "compare {} and {}",
    "batch size {}", "allow tf32 {}", "be more aggressive {}", "why is it slow {}",
    "cut memory by {}", "verify {}", "don't go over {}", "budget {}", "{} is enough",
    "what changed since {}", "I have {}, so use that", "we measured {}, go on",
    "that was {}, undo it", "fork from {}", "export {}", "switch to branch {}", "profile {}",
)  # fmt: skip
WITH_QUANTITIES = st.tuples(
    st.sampled_from(PLACES_FOR_QUANTITIES),
    st.sampled_from(["", " and {}", ", {}", " then {}"]),
    st.sampled_from(PLACES_FOR_QUANTITIES),
    st.lists(st.sampled_from(QUANTITIES), min_size=4, max_size=4),
)
ASIDES = ("that one was nicer", "since this is nice", "it is late", "I am in a hurry",
          "because my colleague hates it", "those were better days")  # fmt: skip
SENTENCE = st.lists(st.sampled_from(sorted(entries())), min_size=1, max_size=12).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=700), SENTENCE))
def test_any_text_gets_an_answer(text: str) -> None:
    assert isinstance(understand(text, CONTEXT), Understood | Ambiguous | NotUnderstood)


@settings(max_examples=60, deadline=None, phases=set(Phase) - {Phase.explain})
@given(SENTENCE)
def test_an_answer_comes_in_time(text: str) -> None:
    """The phase that explains a failure traces each line, which would be timed too."""
    understand("run", CONTEXT)
    took = []
    for _ in range(3):
        forget_tags()
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


@pytest.mark.parametrize("text", OFF_TOPIC)
def test_what_is_no_request_is_not_done(text: str) -> None:
    found = understand(text, CONTEXT)
    done = found.intents if isinstance(found, Understood) else ()
    assert all(isinstance(item, Cannot) for item in done)


@settings(max_examples=300, deadline=None)
@given(WITH_QUANTITIES)
def test_no_number_is_dropped(parts: tuple[str, str, str, list[str]]) -> None:
    first, join, second, quantities = parts
    text = (first + join.replace("{}", second)).format(*quantities)
    found = understand(text, IntentContext(current=3))
    changes = isinstance(found, Understood) and not all(
        item.name in read_only_requests() for item in found.intents
    )
    if isinstance(found, Understood) and changes:
        said = [float(each) for each in re.findall(r"\d+", text.replace("tf32", ""))]
        slots = " ".join(intent.model_dump_json() for intent in found.intents)
        taken = [float(each) for each in re.findall(r"\d+(?:\.\d+)?", slots)]
        for number in said:
            assert any(abs(each - form) < 1e-6 * form for each in taken for form in forms(number))


def test_a_rate_names_no_second_candidate() -> None:
    found = understand("why is it slow 97 tokens per second", IntentContext(current=3))
    named = found.intents if isinstance(found, Understood) else ()
    assert not any(getattr(item, "candidate", None) == 2 for item in named)


def forms(number: float) -> tuple[float, ...]:
    """What a slot may hold for a number: in seconds, microseconds, bytes, or as a fraction."""
    scaled = (number * scale for scale in (1, 60, 3600, 1000, 1024, 2**30))
    return (*scaled, 1 / number, 1 + number / 100, abs(1 - number / 100))


@pytest.mark.parametrize("aside", ASIDES)
@pytest.mark.parametrize("command", ["keep c3", "undo that", "run again", "go back to c3"])
def test_an_aside_changes_nothing(command: str, aside: str) -> None:
    wanted = understand(command, CONTEXT)
    assert isinstance(wanted, Understood)
    assert understand(f"{command}, {aside}", CONTEXT) == wanted


@pytest.mark.parametrize(
    "aside",
    [
        "it was wrong",
        "don't fork",
        "we had 3 rounds",
        "I want pizza",
        "c2 is slower",
        "if it is slower",
        "you should email bob",
        "the font should be bigger",
    ],
)
def test_a_clause_of_weight_is_no_aside(aside: str) -> None:
    wanted = understand("run again", CONTEXT)
    assert understand(f"run again, {aside}", CONTEXT) != wanted


@pytest.mark.slow
def test_the_import_is_light(tmp_path: Path) -> None:
    code = (
        "import time\n"
        "begin = time.thread_time()\n"
        "import pydantic, difflib\n"
        "class Warm(pydantic.BaseModel):\n    at: int = 1\n"
        "start = time.thread_time()\n"
        "import agentkernel.chat.language\n"
        "print((time.thread_time() - start) / (start - begin))"
    )
    kept = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    took = []
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=kept,
        )
        took.append(float(done.stdout))
    assert min(took) < MOST_IMPORT_RATIO


@given(st.sampled_from(sorted(EXAMPLES.values())), st.sampled_from(["\x00", "\x07", "\u200b"]))
def test_control_characters_do_not_get_through(example: str, mark: str) -> None:
    found = understand(f"{mark}{example}{mark}", CONTEXT)
    assert mark not in found.model_dump_json()
