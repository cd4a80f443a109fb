"""No file of somebody else crashes, hangs, fills or fools the process that reads it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEED = 1
TARGETS = ("certificate", "run", "stores", "zoo", "problem", "candidate")
LONG = ("run", "stores", "candidate")


def fuzz(target: str, examples: int, number: int, templates: Path, folder: Path) -> str:
    words = (target, examples, number, templates / target, folder)
    done = subprocess.run(
        [sys.executable, HERE / "child.py", *map(str, words)], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {number}, exit {done.returncode}:\n{done.stdout[-20_000:]}"
    return done.stdout


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "target",
    [pytest.param(item, marks=[pytest.mark.slow] if item in LONG else []) for item in TARGETS],
)
def test_a_few_edits(target: str, templates: Path, tmp_path: Path) -> None:
    fuzz(target, 150, SEED, templates, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("target", TARGETS)
def test_many_edits(target: str, templates: Path, tmp_path: Path) -> None:
    fuzz(target, 5_000, random.randrange(2**32), templates, tmp_path)


SEEN = {
    "raises": "ZeroDivisionError division by zero",
    "hangs": "Fault it hangs at",
    "waits": "Fault it hangs at",
    "grows": "Fault it took 1,",
    "writes": "Fault it wrote outside: open",
    "links": "Fault it wrote outside: open",
    "renames": "Fault it wrote outside: os.rename",
    "writes_native": "Fault it wrote outside: [",
    "runs_text": "Fault it ran code: exec",
    "imports": "Fault it ran code: exec",
    "starts": "Fault it ran code: subprocess.Popen",
    "unpickles": "Fault it ran code: pickle.find_class",
    "steers": "Garbled '\\x1b' in",
}


@pytest.mark.slow
def test_each_planted_fault_is_seen(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "file.json").write_text("{}")
    said = fuzz("planted", 0, SEED, tmp_path, tmp_path / "folder").splitlines()
    assert len(said) == len(SEEN)
    for line, (name, words) in zip(said, SEEN.items(), strict=True):
        assert line.startswith(f"{name} {words}")
    shutil.copytree(tmp_path / "planted", tmp_path / "dies")
    with pytest.raises(AssertionError, match="Fatal Python error: Aborted"):
        fuzz("dies", 0, SEED, tmp_path, tmp_path / "other")
