"""Reviews are read whichever way a model writes their sections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.agents.reviewer import Review, Reviewer, parse_review, read_speedup
from tests.agents.models.model_cases import H100, SAMPLING, ScriptedModel, analysis, right

PLAIN = """ANALYSIS
Bound by memory: the row is read twice.

OPTIMIZATIONS
1. Keep the row in registers.
2. Use 8 warps
   a row.

ESTIMATED_SPEEDUP
1.4x
"""
WANTED = Review(
    analysis="Bound by memory: the row is read twice.",
    optimizations=("Keep the row in registers.", "Use 8 warps a row."),
    estimated_speedup=1.4,
)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"Sure!\n\n{PLAIN}",
        f"<think>ANALYSIS\nhm</think>{PLAIN}",
        PLAIN.replace("ANALYSIS", "## Analysis:").replace("OPTIMIZATIONS", "### Optimisations"),
        PLAIN.replace("ANALYSIS", "**ANALYSIS**").replace(
            "ESTIMATED_SPEEDUP\n", "ESTIMATED SPEEDUP: "
        ),
        PLAIN.replace("ANALYSIS\n", "1. **Analysis:** ").replace("1.4x", "about 1.4-1.6x in all"),
        '{"analysis": "Bound by memory: the row is read twice.", "optimizations": '
        '["Keep the row in registers.", "Use 8 warps a row."], "estimated_speedup": 1.4}',
    ],
)
def test_sections_are_found(text: str) -> None:
    assert parse_review(text) == WANTED


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.3x", 1.3),
        ("2 times faster", 2.0),
        ("1.2× – 1.5×", 1.2),
        ("1.2 to 1.5x", 1.2),
        ("30% faster", 1.3),
        ("10-20%", 1.1),
        ("1.25", 1.25),
        ("", None),
        ("none", None),
        ("0x", None),
        ("1000000x", None),
    ],
)
def test_speedups(text: str, value: float | None) -> None:
    assert read_speedup(text) == (value if value is None else pytest.approx(value))


def test_prose_is_all_analysis() -> None:
    assert parse_review("It is slow.") == Review(analysis="It is slow.")
    assert parse_review("") == Review(analysis="")


def test_asked_with_the_profile() -> None:
    model, best = ScriptedModel([PLAIN]), right()
    assert best.profile is not None
    found = Reviewer(model, SAMPLING).review(best.candidate, best.profile, analysis(), H100)
    assert found == WANTED.evolve(by=model.name)
    assert model.questions[0].agent == "reviewer"
    assert "80%" in model.heard
    assert "split the work finer" in model.heard


@given(
    st.text()
    | st.lists(st.sampled_from(["ANALYSIS\n", "ESTIMATED_SPEEDUP:", "9" * 400, "x", "%"])).map(
        "".join
    )
)
def test_nothing_that_is_said_raises(text: str) -> None:
    found = parse_review(text)
    assert found.estimated_speedup is None or 0 < found.estimated_speedup <= 1000
