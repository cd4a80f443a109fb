"""A certificate of a run that goes on is none of a kept baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.tools.certificate.record import is_unfinished


@pytest.mark.parametrize(
    ("result", "unfinished"),
    [
        (None, True),
        ('{"interrupted": true}', True),
        ('{"interrupted": false}', False),
        ("{}", False),
        ("[", True),
        ("3", True),
    ],
)
def test_the_runs_own_result_says_whether_it_ended(
    tmp_path: Path, result: str | None, unfinished: bool
) -> None:
    certificate = tmp_path / "certificate.json"
    assert not is_unfinished(certificate)  # it lies in no run's folder
    (tmp_path / "checkpoint.sqlite").touch()
    if result is not None:
        (tmp_path / "result.json").write_text(result)
    assert is_unfinished(certificate) is unfinished
