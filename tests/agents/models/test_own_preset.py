"""Does a folder of weights say how its model was taught to be asked?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.models.local_presets import OWN_FILE, parse_local
from agentkernel.domain.errors import SettingError


def test_a_folder_s_own_file_names_prompt_and_weights(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text("model: .\nprompt: taught\nmax_tokens: 700\n")
    preset = parse_local(f"local:{tmp_path}")
    assert (preset.model, preset.adapter) == (str(tmp_path), None)
    assert (preset.prompt, preset.max_tokens) == ("taught", 700)


def test_an_adapter_s_own_file_names_its_base(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text("model: base/model\nadapter: .\nprompt: taught\n")
    preset = parse_local(f"local:{tmp_path}")
    assert (preset.model, preset.adapter) == ("base/model", str(tmp_path))


def test_a_folder_without_the_file_is_asked_as_before(tmp_path: Path) -> None:
    assert parse_local(f"local:{tmp_path}").prompt == "coder"


def test_a_broken_own_file_is_named(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text("prompt: sing\n")
    with pytest.raises(SettingError, match=r"agentkernel\.yaml"):
        parse_local(f"local:{tmp_path}")
