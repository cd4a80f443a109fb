"""Types that are looked up must be those that Triton works out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interpreted_types.py")


@pytest.fixture(scope="module")
def seen() -> list[dict[str, object]]:
    """What the same operations gave: without the lookups, then with them, twice."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_operation_on_every_pair_of_types_gives_the_same(
    seen: list[dict[str, object]],
) -> None:
    plain, first, again = seen
    assert len(plain) > 3000
    assert sum(str(value).startswith("error") for value in plain.values()) > 50
    assert {key: value for key, value in first.items() if value != plain[key]} == {}
    assert again == first
