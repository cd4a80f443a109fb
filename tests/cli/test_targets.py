"""Does `targets` list every GPU, for people and for programs?"""

from __future__ import annotations

from agentkernel.domain.target import Target
from tests.cli.commands import Cli


def test_json_holds_whole_targets(cli: Cli) -> None:
    found = [Target.model_validate(item) for item in cli.json(["targets", "--json"])]
    assert {"h100-sxm", "h200", "mi300x"} <= {target.name for target in found}
    assert all(target.dram_gb_per_s.source for target in found)


def test_table_names_aliases(cli: Cli) -> None:
    shown = cli(["targets"]).out
    assert "h100-sxm, h100" in shown
    assert "gfx942" in shown
