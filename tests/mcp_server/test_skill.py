"""The skill folder is written, kept where somebody changed it, and names commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
import yaml

from agentkernel.cli.app import app
from agentkernel.domain.errors import OutputError
from agentkernel.mcp_server.skill import FILES, install_skill


def test_it_is_written_and_written_again(tmp_path: Path) -> None:
    assert len(install_skill(tmp_path / "skills", force=False)) == len(FILES)
    install_skill(tmp_path / "skills", force=False)
    text = (tmp_path / "skills" / "agentkernel" / "SKILL.md").read_text()
    facts = yaml.safe_load(text.split("---")[1])
    assert set(facts) == {"name", "description"}
    assert all(name in text for name in FILES[1:])


def test_a_changed_file_stays(tmp_path: Path) -> None:
    install_skill(tmp_path, force=False)
    changed = tmp_path / "agentkernel" / FILES[-1]
    changed.write_text("mine")
    (tmp_path / "agentkernel" / FILES[0]).unlink()
    with pytest.raises(OutputError, match="was changed"):
        install_skill(tmp_path, force=False)
    assert changed.read_text() == "mine"
    assert not (tmp_path / "agentkernel" / FILES[0]).exists()
    install_skill(tmp_path, force=True)
    assert changed.read_text() != "mine"


def test_its_commands_exist(tmp_path: Path) -> None:
    install_skill(tmp_path, force=False)
    text = "".join((tmp_path / "agentkernel" / name).read_text() for name in FILES)
    named = set(re.findall(r"`agentkernel ([a-z]+)", text))
    assert {"plan", "optimize", "judge", "profile", "verify", "show"} <= named
    assert named <= set(getattr(typer.main.get_command(app), "commands", {}))
