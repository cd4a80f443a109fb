"""How much of what is allowed an error uses, in words."""

import math

import pytest

from agentkernel.domain.verdict import allowed_text


@pytest.mark.parametrize(
    ("margin", "text"),
    [
        (0.41, "error 0.41 of allowed at worst"),
        (0.999, "error just within what is allowed at worst"),
        (1.0, "error just within what is allowed at worst"),
        (6.0, "error 6 of allowed at worst"),
        (math.inf, "error inf of allowed at worst"),
    ],
)
def test_a_share_that_rounds_to_1_is_within_and_one_above_is_not(margin: float, text: str) -> None:
    assert allowed_text(margin) == text
