"""What cannot be reached, or lacks something, is one line with the next step and exit 4."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from tests.remote.sshd import PROGRAM, Sshd, make_key, sshd

JUDGE = ["judge", "scaled.py", "--candidate", "kernel.py", "--json", "--remote"]
OTHER = """#!{python}
import sys
{change}
sys.argv[:3] = ["agentkernel"]
from agentkernel.cli.app import main
main()
"""
OLD = "import agentkernel.version\nagentkernel.version.__version__ = '0.0.9'"
CHANGED = "import agentkernel.tools.judge.settings as judge\njudge.judge_sha256 = lambda: '0' * 64"
WORDS = """print('{"kind": "agentkernel worker", "versions": {"agentkernel": "9"}}', flush=True)
sys.stdin.read()
sys.exit()"""
ANCIENT = "print('No such command', file=sys.stderr)\nsys.exit(2)"


def refused(capsys: pytest.CaptureFixture[str], url: str, kind: str = "RemoteUnavailable") -> str:
    assert run([*JUDGE, url]) == 4
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == kind
    assert told["exit_code"] == 4
    return str(told["error"])


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd of the test's own, whose key is known."""
    if PROGRAM is None:
        pytest.skip("sshd is not installed")
    with sshd(tmp_path_factory.mktemp("sshd")) as found:
        found.know()
        yield found


def fingerprint(key: Path) -> str:
    words = ["ssh-keygen", "-lf", str(key)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[1]


def test_an_unknown_host_key_is_shown_and_not_taken(
    own: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = own.folder / "known_hosts"
    known.write_text("")
    told = refused(capsys, own.url())
    assert "is not known: it is ssh-ed25519 " + fingerprint(own.folder / "host.pub") in told
    assert f"ssh-keyscan -p {own.port} 127.0.0.1 >> ~/.ssh/known_hosts" in told
    assert known.read_text() == ""


def test_a_changed_host_key_is_refused(
    own: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_key(own.folder / "other")
    own.know(own.folder / "other.pub")
    told = refused(capsys, own.url())
    assert "has changed: it is now ssh-ed25519 " + fingerprint(own.folder / "host.pub") in told
    assert f"ssh-keygen -R '[127.0.0.1]:{own.port}'" in told


def test_a_wrong_key_does_not_get_in(
    own: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_key(own.folder / "stranger")
    (own.folder / "authorized").write_text((own.folder / "stranger.pub").read_text())
    assert "does not let you in" in refused(capsys, own.url())
    assert "ssh-copy-id" in refused(capsys, own.url())


def test_a_closed_port_is_said(own: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.stop()
    assert "cannot be reached" in refused(capsys, own.url())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (OLD, "has agentkernel 0.0.9. Expected 0.1.0"),
        (CHANGED, "has agentkernel 0.1.0 with another judge. Expected the same files"),
        (WORDS, "has agentkernel 9. Expected 0.1.0"),
        (ANCIENT, "is too old to be asked. Expected 0.1.0"),
    ],
    ids=["older", "changed", "newer", "without a worker"],
)
def test_another_version_is_refused_with_the_line_that_installs_this_one(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str], change: str, said: str
) -> None:
    old = laptop / "old-python"
    old.write_text(OTHER.format(python=sys.executable, change=change))
    old.chmod(0o755)
    told = refused(capsys, daemon.url(str(old)))
    assert said in told
    assert f"scp -P {daemon.port} dist/agentkernel_triton-0.1.0-py3-none-any.whl" in told


def bare_python(folder: Path) -> Path:
    """A Python without packages."""
    base = Path(sysconfig.get_config_var("BINDIR")) / "python3"
    subprocess.run([str(base), "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def test_no_agentkernel_there(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = bare_python(laptop / "bare")
    told = refused(capsys, daemon.url(str(python)))
    assert f"There is no agentkernel in {str(python)!r}" in told
    assert "agentkernel doctor --remote" in told
    assert f"{python} -m pip install ./agentkernel_triton-" in told
    assert run(["doctor", "--json", "--remote", daemon.url(str(python))]) == 4
    checks = {item["name"]: item for item in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["python"]["ok"]
    assert not checks["agentkernel"]["ok"]
    assert "scp" in checks["agentkernel"]["mend"]
    assert not checks["torch"]["ok"]


def test_no_python_there(daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no Python '/no/python'" in refused(capsys, daemon.url("/no/python"))
    assert run(["doctor", "--remote", daemon.url("/no/python")]) == 4
    assert "There is no Python '/no/python'" in capsys.readouterr().err


def test_the_doctor_says_what_is_there(daemon: Sshd, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json", "--remote", daemon.url()]) == 0
    checks = {item["name"]: item for item in json.loads(capsys.readouterr().out)["checks"]}
    assert sys.executable in checks["python"]["found"]
    assert set(checks) >= {"agentkernel", "torch", "triton", "GPU", "sandbox", "disk"}
    assert checks["agentkernel"]["found"] == "0.1.0"


@pytest.mark.parametrize("room", [0, 4096, 16384])
def test_a_full_disk_there_is_one_line(
    own: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    cache = own.folder / "cache"
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(cache)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        full = cache / "others"
        full.write_bytes(bytes(shutil.disk_usage(cache).free - room))
        told = refused(capsys, own.url(), "DiskFailure")
    finally:
        subprocess.run(["umount", "-l", str(cache)], check=True)
    assert "127.0.0.1: No room left on the disk of" in told
    assert "Next: make room there." in told


def test_sanitize_is_for_this_machine(
    daemon: Sshd, laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*JUDGE, daemon.url(), "--sanitize"]) == 2
    assert "--sanitize" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    "words",
    [
        ["chat", "scaled.py", "--script", "lines.txt"],
        ["bench", "suite", "--target", "h100"],
        ["batch", "zoo.yaml"],
    ],
    ids=["chat", "bench", "batch"],
)
def test_what_works_on_this_machine_alone_says_so(
    laptop: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (laptop / "lines.txt").write_text("/plan\n")
    (laptop / "suite").mkdir()
    (laptop / "suite" / "1_one.py").write_text((laptop / "scaled.py").read_text())
    (laptop / "zoo.yaml").write_text(
        "name: small\nmodels:\n- {name: one, model: 'torch.nn:ReLU', inputs: ['x=f32[32,128]']}\n"
    )
    assert run([*words, "-c", "remote=ssh://box"]) == 2
    assert f"(remote), and '{words[0]}' works on this one" in capsys.readouterr().err
