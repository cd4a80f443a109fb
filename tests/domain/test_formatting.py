"""Numbers for people keep what they are shown for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentkernel.domain.formatting import told_apart

finite = st.floats(allow_nan=False, allow_infinity=False)


def test_two_values_have_as_few_digits_as_tell_them_apart() -> None:
    assert told_apart(-1.0431502151653564, -1.043148159980774) == ("-1.04315", "-1.043148")
    assert told_apart(0.1234567, 0.7) == ("0.123457", "0.7")
    assert told_apart(2.0, 2.0) == ("2", "2")
    assert told_apart(float("nan"), float("nan")) == ("nan", "nan")


@given(finite, finite)
def test_values_that_differ_never_look_equal(first: float, second: float) -> None:
    texts = told_apart(first, second)
    assert (texts[0] == texts[1]) == (first == second) or {first, second} == {0.0}
