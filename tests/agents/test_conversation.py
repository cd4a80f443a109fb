"""The next question is about the best file that is not worn out."""

from __future__ import annotations

import pytest

from agentkernel.agents.conversation import (
    MOST_EARLIER,
    FileContext,
    choose_files,
    coder_messages,
    ranked_files,
)
from agentkernel.agents.protocols import Attempt, Diagnosis, DraftRequest
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.settings import TurnOptions
from agentkernel.domain.verdict import CompileFailed, Gate, WrongMeta
from agentkernel.tools.problem.loading import load_problem
from tests.agents.models.model_cases import EXAMPLE
from tests.agents.models.model_cases import request as draft_request
from tests.workflows.fakes import measurement, mismatch, profile, verdict

BEST = TurnOptions()
MEND = Diagnosis(failure_class="c", evidence="e", action="repair", advice="Mend the last one.")


def file(name: str, parent: str = "", strategy: str = "tiled") -> Candidate:
    return Candidate(
        source=name,
        coder="local:small",
        round=1,
        strategy=strategy,
        parent=sha256_text(parent) if parent else None,
    )


def refused(
    name: str, gate: Gate, parent: str = "", share: float = 1.0, strategy: str = "tiled"
) -> Attempt:
    made = file(name, parent, strategy)
    wrong = mismatch().evolve(wrong_share=share)
    stopped = CompileFailed(log=f"no {name}", line=1) if gate == "compile" else wrong
    return Attempt(candidate=made, verdict=verdict(made, stopped).evolve(gate=gate))


def right(name: str, parent: str = "", us: float | None = None, estimated: float = 9.0) -> Attempt:
    made = file(name, parent)
    measured = () if us is None else (measurement(candidate_us=us),)
    timed = profile(made, *measured, estimate_us=estimated)
    return Attempt(candidate=made, verdict=verdict(made), profile=timed)


def names(*history: Attempt, asked: tuple[str, ...] = (), patience: int = 2) -> list[str]:
    shown = tuple(map(sha256_text, asked))
    return [item.candidate.source for item in ranked_files(history, shown, patience)]


@pytest.mark.quick(1)
@pytest.mark.parametrize("gate", ["execution", "timing"])
def test_a_cheat_that_was_caught_late_has_not_come_far(gate: Gate) -> None:
    assert names(refused("cheat", gate), refused("slip", "compile")) == ["slip", "cheat"]


def request(*history: Attempt, asked: tuple[str, ...] = (), **changes: object) -> DraftRequest:
    shown = tuple(map(sha256_text, asked))
    return draft_request(history=history, shown=shown, round=5, **changes)


def name_of(found: Attempt | None) -> str | None:
    return found.candidate.source if found else None


def taught(*history: Attempt, asked: tuple[str, ...] = ()) -> str | None:
    found = choose_files(request(*history, asked=asked, diagnosis=MEND), BEST, one=True)
    assert found.before == ()
    return name_of(found.about)


def test_right_ones_by_time_then_refused_ones_by_how_far_they_came() -> None:
    late = refused("late", "races")
    near, far = refused("near", "correctness", share=0.1), refused("far", "correctness")
    early, guessed = refused("early", "compile"), right("guessed", estimated=1.0)
    slow, fast = right("slow", us=20.0), right("fast", us=10.0)
    order = ["fast", "slow", "guessed", "late", "near", "far", "early"]
    assert names(early, slow, far, guessed, late, fast, near) == order


def test_of_equal_ones_the_least_asked_then_the_latest() -> None:
    files = [refused(name, "compile") for name in ("a", "b", "c")]
    assert names(*files) == ["c", "b", "a"]
    assert names(*files, asked=("c", "b")) == ["a", "c", "b"]


def test_what_was_not_judged_or_breaks_when_measured_is_not_shown() -> None:
    made = file("breaks")
    failed = ProfileFailed(side="candidate", reason="crashed", log="")
    breaks = Attempt(candidate=made, verdict=verdict(made), unprofiled=failed)
    assert names(breaks, Attempt(candidate=file("aside"), aside="too slow")) == []


@pytest.mark.parametrize(
    ("history", "asked", "expected"),
    [
        pytest.param((), (), None, id="nothing yet"),
        pytest.param(
            (refused("a", "correctness"), refused("b", "compile", "a")), ("a",), "a",
            id="a worse second turn",
        ),
        pytest.param(
            (right("a", us=9.0), refused("b", "compile", "a")), ("a",), "a", id="a right one broken"
        ),
        pytest.param(
            (right("a", us=9.0), right("b", "a", us=12.0)), ("a",), "a", id="a slower second turn"
        ),
        pytest.param(
            (refused("a", "compile"), refused("b", "correctness", "a")), ("a",), "b",
            id="one that came further",
        ),
        pytest.param(
            (refused("a", "compile"), refused("b", "compile", "a"), refused("c", "load", "a")),
            ("a", "a"), None, id="worn out, and what came of it with it",
        ),
        pytest.param((refused("a", "compile"),), ("a", "a"), None, id="asked in vain"),
        pytest.param(
            (
                refused("a", "correctness"), refused("b", "compile", "a"),
                refused("c", "compile", "a"), refused("d", "load"),
            ),
            ("a", "a", ""), "d", id="a fresh draft has its turns, though an older one was better",
        ),
        pytest.param(
            (refused("a", "compile"), right("b", "a", us=9.0)), ("a", "b", "b"), None,
            id="one that gave way to a better one does not come back",
        ),
        pytest.param(
            (right("a", us=9.0), right("b", us=12.0)), ("a", "a"), "b", id="the next best right one"
        ),
    ],
)  # fmt: skip
def test_a_taught_model_is_shown_the_best_that_is_not_worn_out(
    history: tuple[Attempt, ...], asked: tuple[str, ...], expected: str | None
) -> None:
    assert taught(*history, asked=asked) == expected


def test_no_file_is_asked_about_for_ever() -> None:
    """A model whose every answer is another file that is as wrong as the one before."""
    history: list[Attempt] = []
    asked: list[str] = []
    for number in range(12):
        about = taught(*history, asked=tuple(asked)) or ""
        asked.append(about)
        history.append(refused(f"f{number}", "compile", about))
    assert asked == ["", "f0", "f1", "", "f3", "f4", "", "f6", "f7", "", "f9", "f10"]


def test_a_chat_model_mends_the_best_of_the_idea_with_the_others_before_it() -> None:
    history = (
        refused("other idea", "execution", strategy="fused"), right("right", us=9.0),
        refused("load", "load"), refused("far", "correctness"), refused("last", "compile", "far"),
    )  # fmt: skip
    found = choose_files(request(*history, asked=("far",), diagnosis=MEND), BEST)
    assert (name_of(found.refused), name_of(found.right)) == ("far", "right")
    assert [name_of(item) for item in found.before] == ["last"]
    many = choose_files(request(*history, diagnosis=MEND), TurnOptions(held=5))
    assert [name_of(item) for item in many.before] == ["last", "load"]
    assert choose_files(request(*history), BEST) == FileContext(right=history[1])


def test_last_is_what_was_drafted_last() -> None:
    history = (refused("far", "correctness"), refused("last", "compile", "far"))
    found = choose_files(request(*history, diagnosis=MEND), TurnOptions(shown="last"), one=True)
    assert name_of(found.refused) == "last"
    assert choose_files(request(*history), TurnOptions(shown="last"), one=True) == FileContext()


def test_a_turn_of_a_team_shows_what_the_turn_names() -> None:
    fast, slow = right("fast", us=9.0), right("slow", us=12.0)
    for one in (True, False):
        assert choose_files(request(fast, slow, parent=slow), BEST, one=one) == FileContext(
            right=slow
        )
        assert choose_files(request(fast, slow, free=True), BEST, one=one) == FileContext()


def test_the_conversation_holds_the_best_nearest_to_its_end() -> None:
    wrong_shape = WrongMeta(case="primary", output=0, expected="[4]", found="[8]")
    made = file("meta")
    meta = Attempt(candidate=made, verdict=verdict(made, wrong_shape).evolve(gate="meta"))
    asked = request(refused("far", "correctness"), meta, refused("last", "compile"), diagnosis=MEND)
    turns = coder_messages(
        load_problem(str(EXAMPLE)), asked, shown=choose_files(asked, TurnOptions(held=3))
    )
    assert [item.role for item in turns] == ["user", *["assistant", "user"] * 3]
    assert [
        next(name for name in ("last", "meta", "far") if name in item.text) for item in turns[1::2]
    ] == ["last", "meta", "far"]
    assert "expected: [4]" in turns[4].text or "[8]" in turns[4].text
    assert "Mend the last one." not in turns[-1].text, "the diagnosis is about another file"
    long = refused("x" * MOST_EARLIER, "compile")
    asked = request(refused("far", "correctness"), long, diagnosis=MEND)
    assert len(coder_messages(load_problem(str(EXAMPLE)), asked)) == 3
