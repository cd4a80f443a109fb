"""Does `targets` list every GPU, for people and for programs?"""

from __future__ import annotations

import json

import pytest

from agentkernel.cli.app import run
from agentkernel.domain.target import Target


def test_json_holds_whole_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "--json"]) == 0
    found = [Target.model_validate(item) for item in json.loads(capsys.readouterr().out)]
    assert {"h100-sxm", "h200", "mi300x"} <= {target.name for target in found}
    assert all(target.dram_gb_per_s.source for target in found)


def test_table_names_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets"]) == 0
    shown = capsys.readouterr().out
    assert "h100-sxm, h100" in shown
    assert "gfx942" in shown
