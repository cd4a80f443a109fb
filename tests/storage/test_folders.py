"""The user's own files lie where the environment says; a missing home is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.domain.errors import SettingError
from agentkernel.storage.configuration import load_settings
from agentkernel.storage.files import config_folder, data_folder, expanded


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom no password file knows, as in many containers."""

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)


def test_folders_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert config_folder() == tmp_path / ".config" / "agentkernel"
    assert data_folder() == tmp_path / "data" / "agentkernel"
    assert expanded("~/x") == tmp_path / "x"


@pytest.mark.usefixtures("homeless")
def test_no_home_is_one_line() -> None:
    with pytest.raises(SettingError, match="Next: set HOME") as caught:
        data_folder()
    assert "\n" not in str(caught.value)
    assert load_settings(None, (), {"seed": 3}).seed == 3
