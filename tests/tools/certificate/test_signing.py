"""The key is made once, kept from others and from candidates, and its signature tells."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentkernel.domain.errors import OutputError, SettingError
from agentkernel.tools.certificate.signing import data_folder, is_known, is_valid, key_path, sign
from agentkernel.tools.sandbox.isolation import import_paths
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import open_worker

EXECUTE = "agentkernel.tools.sandbox.worker:execute"
TEXT = b"all of it"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_key_is_made_once_for_its_owner_alone(home: Path) -> None:
    first, second = sign(TEXT), sign(TEXT)
    assert first == second
    path = home / "keys" / "signing.pem"
    assert key_path() == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(item.name for item in path.parent.iterdir()) == ["signing.pem", "signing.pub"]
    assert "PRIVATE" not in (path.parent / "signing.pub").read_text() + repr(first)


def test_a_signature_fits_its_content_and_key_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = sign(TEXT)
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "other"))
    other = sign(TEXT)
    assert is_valid(TEXT, mine)
    assert is_valid(TEXT, other)
    assert not is_valid(TEXT + b" ", mine)
    assert not is_valid(TEXT, mine.evolve(value=other.value))
    assert not is_valid(TEXT, mine.evolve(key="not hex"))
    assert not is_valid(TEXT, mine.evolve(fingerprint=other.fingerprint))


def test_a_signer_is_known_by_his_public_key(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sign(TEXT)
    public = (home / "keys" / "signing.pub").read_text()
    assert is_known(other)
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "mine"))
    sign(TEXT)
    assert not is_known(other)
    trusted = tmp_path / "mine" / "keys" / "trusted"
    trusted.mkdir()
    (trusted / "colleague.pub").write_text(public)
    assert is_known(other)


def test_a_key_that_others_can_read_signs_nothing(home: Path) -> None:
    sign(TEXT)
    key_path().chmod(0o640)
    with pytest.raises(SettingError, match="read by others"):
        sign(TEXT)


def test_a_broken_key_is_one_line_without_its_content(home: Path) -> None:
    sign(TEXT)
    key_path().write_text("hunter2")
    with pytest.raises(SettingError, match="Cannot read the signing key") as caught:
        sign(TEXT)
    assert "hunter2" not in str(caught.value)


def test_a_folder_that_cannot_be_written(home: Path) -> None:
    home.write_text("a file stands in the way")
    with pytest.raises(OutputError, match="AGENTKERNEL_HOME"):
        sign(TEXT)


@pytest.mark.parametrize("folder", ["/opt/agentkernel-test", import_paths()[0]])
def test_a_place_that_candidates_see_is_refused(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_HOME", folder)
    with pytest.raises(SettingError, match="where a candidate can read it"):
        sign(TEXT)
    assert not os.path.exists(f"{folder}/keys")


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTKERNEL_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/home/x/data")
    assert data_folder() == Path("/home/x/data/agentkernel")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert str(data_folder()).endswith(".local/share/agentkernel")


def test_a_candidate_cannot_read_the_key(home: Path) -> None:
    sign(TEXT)
    path = key_path()
    assert path.read_bytes()
    tries = (
        f"open({str(path)!r}, 'rb').read()",
        f"open('/proc/1/root{path}', 'rb').read()",
        "[open(os.path.join(folder, name)).read() for top in ('/tmp', '/root', '/home')"
        " for folder, _, names in os.walk(top) for name in names if name == 'signing.pem'][0]",
    )
    with open_worker(device="cpu", interpret=True) as worker:
        for attempt in tries:
            source = f"import os\nresult = repr({attempt})\n"
            reply = worker.call(EXECUTE, {"source": source}, 30.0)
            assert isinstance(reply, WorkerFailed), attempt
            assert "PRIVATE" not in reply.log
            assert reply.error in ("FileNotFoundError", "PermissionError", "IndexError")
