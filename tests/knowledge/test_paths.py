from pathlib import Path

import pytest

from agentkernel.knowledge.paths import default_folder


def test_the_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "agentkernel" / "knowledge"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_folder() == Path.home() / ".local" / "share" / "agentkernel" / "knowledge"
