"""Foreign text stays inside its fence, on its line and within its length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.agents.safe_text import fenced, harmless, inline, shortened
from tests.agents.models.model_cases import HOSTILE, outside_fences

TEXTS = st.text() | st.text(alphabet="`~\n \tpx", max_size=60)


@given(TEXTS)
def test_nothing_leaves_its_fence(text: str) -> None:
    assert outside_fences(f"before\n{fenced(text, 'python')}\nafter") == "before\nafter"


@given(TEXTS)
def test_a_line_stays_a_line(text: str) -> None:
    found = inline(text)
    assert len(found.splitlines()) <= 1
    assert "`" not in found
    assert len(found) <= 200


@given(st.text(max_size=400), st.integers(min_value=10, max_value=100))
def test_head_and_tail_are_kept(text: str, most: int) -> None:
    found = shortened(text, most)
    if len(text) <= most:
        assert found == text
    else:
        assert found.startswith(text[: int(most * 0.6)])
        assert found.endswith(text[-(most - int(most * 0.6)) :])
        assert f"{len(text) - most} characters left out" in found


def test_code_is_left_as_it_is() -> None:
    code = 'x = {"a": b[i] < c | d}\n\n\tif a <= b >> 2:  # "s", é, 数\n        pass'
    assert fenced(code, "python") == f"```python\n{code}\n```"


@pytest.mark.parametrize(
    "mark",
    [
        "<|im_start|>",
        "<|eot_id|>",
        "<｜User｜>",
        "[INST]",
        "[/INST]",
        "<s>",
        "</s>",
        "<<SYS>>",
        "<</SYS>>",
        "<start_of_turn>",
        "<end_of_turn>",
        "\x1b",
        "\u202e",
        "\x00",
    ],
)
def test_no_mark_of_a_speaker_is_left(mark: str) -> None:
    assert mark not in harmless(f"a {mark} b")
    assert mark not in inline(f"a {mark} b")


def test_hostile_text() -> None:
    assert outside_fences(fenced(HOSTILE)) == ""
    assert "{{ 7*7 }}" in fenced(HOSTILE)
