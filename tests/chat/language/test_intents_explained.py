"""Does a clause that explains a request leave it as it is, and ask for nothing by itself?"""

from __future__ import annotations

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.requests import Ambiguous, Intent, IntentContext, Understood

CONTEXT = IntentContext(targets=("a100", "h100", "h200", "l4"), candidates=(1, 2, 3), current=2)
COMMANDS = (
    "keep c3", "undo", "go back to c1", "run again", "fork this", "discard c2", "save it",
    "export the session", "allow tf32", "use the h200", "use less memory", "stop at 2x",
    "try idea 2", "compare c2 and c3", "show the diff", "use batch size 64", "verify c3",
)  # fmt: skip
EXPLANATIONS = (
    "so that I can undo the rest later", "so that we can compare them tomorrow",
    "so my colleague can try it", "so I can keep it", "in order to be safe",
    "in order to show it to somebody", "because it is faster", "because c2 uses too much memory",
    "because the last run took 20 minutes", "because we stopped at 3x", "since it got slower",
    "before I start over", "before we discard anything", ", I want to try something else",
    ", we're going to look at it together", "rather than undoing it", "instead of restarting",
    "because I don't want to lose it", "due to the memory", "so they don't have to fork",
)  # fmt: skip
LEADS = (
    "because it got slower, {}", "in order to be safe, {}", "before I forget, {}", "wait, {}",
    "hold on, {}", "to be safe, {}", "instead of starting over, {}", "so that nothing is lost, {}",
)  # fmt: skip
EXPLAINED = [
    ("zip it up so I can import it elsewhere", "export"),
    ("go back to c1 so I can fork from there", "return_to candidate=1"),
    ("go back to c1 and fork from there", "return_to candidate=1; fork"),
    ("split from here, I'd like to try another approach", "fork"),
    ("split from here and try another approach", "fork; try_idea idea=next"),
    ("discard c2 because it uses too much memory", "reject candidate=2"),
    ("discard c2 because it is slow and keep c3", "reject candidate=2; keep candidate=3"),
    ("keep c3 because it is faster, then run again", "keep candidate=3; run"),
    ("keep c3 and undo that", "keep candidate=3; undo"),
    ("undo that so we can think and then show me the tree", "undo; tree"),
    ("rather than undoing that, fork from here", "fork"),
    ("don't undo that, fork instead", "fork"),
    ("to save memory, use bf16", "precision precision=bf16"),
    ("use at most 4 GB because the card is shared", "memory_limit max_bytes=4294967296"),
    ("allow tf32 as we only do inference", "precision precision=tf32"),
    ("be more aggressive because 2x isn't enough", "more_aggressive"),
    ("save it to out/fast.py before I go", "save path=out/fast.py"),
    ("I want to try something different", "try_idea idea=next"),
    ("I don't get this line, what is it doing?", "explain_line"),
    ("use the library as much as you like please", "policy policy=mixed"),
]
ASKED_BACK = [
    ("run again so that we can stop at 2x", "run | stop_at speedup=2.0; run"),
    ("fork here, I want to try idea 2", "fork | fork; try_idea idea=2"),
    ("keep c3, I want to save it too", "keep candidate=3 | keep candidate=3; save"),
    ("keep c3, it uses too much memory", "keep candidate=3 | keep candidate=3; less_memory"),
    ("keep c3. It uses too much memory.", "keep candidate=3 | keep candidate=3; less_memory"),
    ("undo, it got slower", "undo | undo; why_slow"),
    ("why is it slow? I want to fix it", "why_slow | why_slow; repair"),
]
UNREAD = (
    "instead of keeping c3, discard it",
    "don't undo that, I like it",
    "don't undo that because I like it",
    "before you start: undo that",
    "so that I can undo it",
)


def rendered(intents: tuple[Intent, ...]) -> str:
    return "; ".join(
        " ".join(
            [
                intent.name,
                *(
                    f"{key}={value}"
                    for key, value in intent.model_dump(
                        mode="json", exclude_defaults=True, exclude={"name"}
                    ).items()
                ),
            ]
        )
        for intent in intents
    )


@pytest.mark.parametrize("explanation", EXPLANATIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_explanation_behind_a_request_changes_nothing(command: str, explanation: str) -> None:
    wanted = understand(command, CONTEXT)
    assert isinstance(wanted, Understood)
    text = f"{command} {explanation}".replace(" ,", ",")
    assert understand(text, CONTEXT) == wanted


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("command", ["keep c3", "undo", "run again", "show the diff"])
def test_an_explanation_before_a_request_changes_nothing(command: str, lead: str) -> None:
    wanted = understand(command, CONTEXT)
    assert isinstance(wanted, Understood)
    assert understand(lead.format(command), CONTEXT) == wanted


@pytest.mark.parametrize(("text", "wanted"), EXPLAINED)
def test_what_is_explained_is_done_and_no_more(text: str, wanted: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Understood)
    assert rendered(found.intents) == wanted


@pytest.mark.parametrize(("text", "wanted"), ASKED_BACK)
def test_what_may_be_a_second_request_is_asked_back(text: str, wanted: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Ambiguous)
    assert " | ".join(map(rendered, found.options)) == wanted


@pytest.mark.parametrize("text", UNREAD)
def test_an_explanation_of_nothing_is_no_request(text: str) -> None:
    assert not isinstance(understand(text, CONTEXT), Understood)
