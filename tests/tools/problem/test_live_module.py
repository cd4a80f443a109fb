"""The pickle of a live module is read only where the user's own key vouches for its bytes."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import cloudpickle
import pytest
from torch import nn

from agentkernel.cli.resume import _trust as trust
from agentkernel.domain.errors import RunNotFound
from agentkernel.tools.own_files import LIVE, SEAL, read_live, sha256_of, trust_live, write_live

PACKAGE = Path(__file__).parents[3] / "src" / "agentkernel"
LOADERS = re.compile(
    r"\b(?:pickle|cloudpickle|joblib|marshal|dill|torch|shelve)\.(?:loads?|open|Unpickler)\("
    r"|allow_pickle=True|pickle_fallback=True|weights_only=False|trust_remote_code=True"
)
OURS = {
    "compiler/lift/inductor_process.py": "its parent, over a pipe",
    "tools/own_files.py": "the one place",
    "tools/profiler/baseline_process.py": "its parent, over a pipe",
    "tools/profiler/baselines.py": "its child, which runs the user's own reference, over a pipe",
    "tools/judge/compute_sanitizer.py": "inside the sandbox: what the worker wrote there",
    "tools/sandbox/protocol.py": "inside the sandbox: the parent's request, over a socket",
}
"""Files that load what may carry code, and whose it is."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


def test_what_was_written_here_comes_back(tmp_path: Path) -> None:
    digest = write_live(tmp_path, "module", (1, 2))
    assert digest == sha256_of(tmp_path / LIVE)
    assert read_live(tmp_path / LIVE) == ("module", (1, 2))


def test_without_a_seal_not_one_byte_is_read(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    digest = write_live(tmp_path, Trap(mark), ())
    (tmp_path / SEAL).unlink()
    with pytest.raises(RunNotFound, match="--unpickle") as raised:
        read_live(tmp_path / LIVE)
    assert "\n" not in str(raised.value)
    assert not mark.exists()
    read_live(tmp_path / LIVE, signed_sha256=digest)
    assert mark.exists()
    mark.unlink()
    read_live(tmp_path / LIVE, unpickle=True)
    assert mark.exists()


def test_a_seal_is_for_these_bytes_and_by_this_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(tmp_path, "one", ())
    seal = (tmp_path / SEAL).read_text()
    write_live(tmp_path, "two", ())
    (tmp_path / SEAL).write_text(seal)
    with pytest.raises(RunNotFound, match="not vouched for"):
        read_live(tmp_path / LIVE)
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "elsewhere"))
    write_live(tmp_path, "three", ())
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    with pytest.raises(RunNotFound, match="not vouched for"):
        read_live(tmp_path / LIVE)
    with pytest.raises(RunNotFound, match="not vouched for"):
        read_live(tmp_path / LIVE, signed_sha256="0" * 64)


GATE = """from odd_scale import SCALE
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        return SCALE * x
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, nn.Module]]:
    """A user's folder, and a module from it that another process wrote: none of it is imported."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "odd_gate.py").write_text(GATE)
    (folder / "odd_scale.py").write_text("SCALE = 2\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        made: nn.Module = nn.Sequential(importlib.import_module("odd_gate").Gate())
        write_live(tmp_path, made, ())
    forget()
    yield folder, made
    forget()


def forget() -> None:
    for name in ("odd_gate", "odd_scale"):
        module = sys.modules.pop(name, None)
        if module is not None and name in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(module)


def test_the_modules_of_a_pickle_are_found_where_they_lay(
    tmp_path: Path, gate: tuple[Path, nn.Module]
) -> None:
    before = list(sys.path)
    found, _ = cast("tuple[nn.Module, object]", read_live(tmp_path / LIVE))
    assert found(3) == 6
    assert sys.path == before
    # A worker has no such folder.
    sent = cloudpickle.dumps(found)
    forget()
    assert cloudpickle.loads(sent)(3) == 6


def test_without_that_folder_the_working_folder_is_searched(
    tmp_path: Path, gate: tuple[Path, nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = gate[0].rename(tmp_path / "moved")
    with pytest.raises(RunNotFound) as raised:
        read_live(tmp_path / LIVE)
    assert "No module named 'odd_gate'. Expected the pickle that its run wrote." in str(
        raised.value
    )
    assert str(raised.value).endswith(
        "Next: run it in the folder of that module, or set PYTHONPATH to that folder."
    )
    monkeypatch.chdir(moved)
    found, _ = cast("tuple[nn.Module, object]", read_live(tmp_path / LIVE))
    assert found(3) == 6


def test_a_module_that_raises_when_it_is_imported_is_told(
    tmp_path: Path, gate: tuple[Path, nn.Module]
) -> None:
    (gate[0] / "odd_gate.py").write_text("raise ValueError('no such weight')\n")
    with pytest.raises(RunNotFound, match=r"Cannot restore the live module .*no such weight\. Ex"):
        read_live(tmp_path / LIVE)


def test_folders_that_were_not_signed_are_not_searched(
    tmp_path: Path, gate: tuple[Path, nn.Module]
) -> None:
    """The user's own pickle, sent back with a folder of somebody else."""
    seal, theirs = tmp_path / SEAL, tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "odd_gate.py").write_text("raise SystemExit('must not run')\n")
    assert str(gate[0]) in seal.read_text()
    seal.write_text(seal.read_text().replace(str(gate[0]), str(theirs)))
    with pytest.raises(RunNotFound, match="not vouched for"):
        read_live(tmp_path / LIVE)
    digest = sha256_of(tmp_path / LIVE)
    with pytest.raises(RunNotFound, match="No module named 'odd_gate'"):
        read_live(tmp_path / LIVE, signed_sha256=digest)


def test_trust_is_given_once(tmp_path: Path) -> None:
    write_live(tmp_path, "module", ())
    (tmp_path / SEAL).unlink()
    trust_live(tmp_path)
    assert read_live(tmp_path / LIVE) == ("module", ())
    with pytest.raises(RunNotFound, match="No live module"):
        trust_live(tmp_path / "nowhere")


def test_resume_trusts_where_it_is_told_to(tmp_path: Path) -> None:
    trust(tmp_path, True)
    write_live(tmp_path, "module", ())
    (tmp_path / SEAL).unlink()
    trust(tmp_path, False)
    assert not (tmp_path / SEAL).exists()
    trust(tmp_path, True)
    assert read_live(tmp_path / LIVE) == ("module", ())


def test_a_key_that_cannot_be_had_loses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(tmp_path, "one", ())
    monkeypatch.setenv("AGENTKERNEL_HOME", "/usr/share/agentkernel")
    write_live(tmp_path, "two", ())
    assert not (tmp_path / SEAL).exists()


def test_a_link_and_a_pipe_are_no_pickle(tmp_path: Path) -> None:
    import os

    write_live(tmp_path, "module", ())
    (tmp_path / "link.pkl").symlink_to(tmp_path / LIVE)
    os.mkfifo(tmp_path / "pipe.pkl")
    for name, why in (("link.pkl", "symbolic link"), ("pipe.pkl", "named pipe")):
        with pytest.raises(RunNotFound, match=why):
            read_live(tmp_path / name, unpickle=True)


def test_nothing_else_loads_what_may_carry_code() -> None:
    found = {
        name: calls
        for path in PACKAGE.rglob("*.py")
        if (calls := LOADERS.findall(path.read_text(encoding="utf-8")))
        and (name := path.relative_to(PACKAGE).as_posix()) not in OURS
    }
    assert found == {}
