"""Does the prompt understand what people say?"""

from __future__ import annotations

import pytest

from agentkernel.workflows.dialogue import HELP, Change, Command, NotUnderstood, understand


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("target h200", {"target": "h200"}),
        ("now for an A100", {"target": "a100"}),
        ("do it for the rtx4090 in bf16", {"target": "rtx4090", "goals.precision": "bf16"}),
        ("target local", {"target": "local"}),
        ("precision tf32", {"goals.precision": "tf32"}),
        ("memory", {"goals.objective": "memory"}),
        ("use less memory please", {"goals.objective": "memory"}),
        (
            "at most memory 4G",
            {"goals.objective": "memory", "goals.max_memory_bytes": 4 * 2**30},
        ),
        ("make it faster", {"goals.objective": "latency"}),
        ("save energy", {"goals.objective": "energy"}),
        ("speedup 1.5", {"goals.speedup": 1.5}),
        ("policy triton", {"goals.policy": "triton"}),
        ("coder chat:openai:m", {"coder": "chat:openai:m"}),
        ("use coder chat:openai:Org/Model-7B", {"coder": "chat:openai:Org/Model-7B"}),
        ("5 rounds", {"budget.rounds": 5}),
    ],
)
def test_changes(text: str, settings: dict[str, object]) -> None:
    assert understand(text) == Change(settings=settings)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("go", "go"),
        ("optimise it", "go"),
        ("again", "again"),
        ("try a second try", "again"),
        ("diff", "diff"),
        ("show me the diff", "diff"),
        ("undo that", "undo"),
        ("keep", "keep"),
        ("keep it", "keep"),
        ("show", "show"),
        ("history", "history"),
        ("help", "help"),
        ("quit", "quit"),
    ],
)
def test_commands(text: str, word: str) -> None:
    found = understand(text)
    assert isinstance(found, Command)
    assert found.word == word
    assert found.argument == ""


def test_keep_takes_a_path_as_it_is_written() -> None:
    assert understand("keep as Out/Fast.py") == Command(word="keep", argument="Out/Fast.py")


def test_the_rest_is_not_guessed() -> None:
    assert understand("what is love") == NotUnderstood(text="what is love")


@pytest.mark.parametrize("line", HELP.splitlines())
def test_every_word_of_the_help_is_understood(line: str) -> None:
    first = line.split("  ")[0].split(",")[0].replace("[PATH]", "")
    assert not isinstance(understand(first), NotUnderstood)
