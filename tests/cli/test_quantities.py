"""Are sizes, times and ratios read and written as people write them?"""

from __future__ import annotations

import pytest

from agentkernel.cli.rendering.text import (
    parse_bytes,
    parse_seconds,
    show_bytes,
    show_ratio,
    show_span,
    show_us,
)
from agentkernel.domain.errors import SettingError


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 * 2**20), ("4G", 2**32), ("4GiB", 2**32), ("1.5k", 1536), ("1048576", 2**20)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("text", "span"), [("90s", 90), ("10m", 600), ("1h", 3600), ("45", 45)])
def test_spans(text: str, span: float) -> None:
    assert parse_seconds(text) == span


@pytest.mark.parametrize("text", ["", "0", "much", "-3s", "4X"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"Expected e\.g\."):
        parse_bytes(text)
    with pytest.raises(SettingError, match=r"Expected e\.g\."):
        parse_seconds(text)


def test_what_was_not_given_stays_away() -> None:
    assert parse_bytes(None) is None
    assert parse_seconds(None) is None


def test_figures_for_people() -> None:
    assert [show_us(value) for value in (None, 2.5, 129.94, 1310.0, 2e6)] == [
        "-",
        "2.5 us",
        "130 us",
        "1.31 ms",
        "2 s",
    ]
    assert [show_bytes(value) for value in (None, 0, 512, 49152)] == [
        "-",
        "0 B",
        "512 B",
        "48.0 KiB",
    ]
    assert [show_ratio(value) for value in (None, 1.3149)] == ["-", "1.31x"]
    assert [show_span(value) for value in (5, 184, 3720)] == ["5 s", "3 min 4 s", "1 h 2 min"]
