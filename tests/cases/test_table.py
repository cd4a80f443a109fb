"""Every row of the table of cases: exit code, status, words and values."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

CASES = Path(__file__).parent
ROOT = CASES.parents[1]
ROWS = json.loads((CASES / "cases.json").read_text(encoding="utf-8"))
LIMIT_S = 400
HEAD = """
import importlib.util
import math
import sys

import torch

from agentkernel.tools.judge.interpreter.hooks import install_hooks

install_hooks()
torch.manual_seed(0)


def load(path, name):
    if not path:
        return None
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_close(found, wanted):
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted))


def same(one, other, inputs):
    torch.testing.assert_close(one(*inputs), other(*inputs))


reference, dropin = load(sys.argv[1], "reference"), load(sys.argv[2], "dropin")
torch.set_grad_enabled(False)
"""


def run(words, folder):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    interpreted = {"TRITON_INTERPRET": "1"} if words[0] != "-m" else {}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment | interpreted,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def outcome(ended):
    """What the last line of optimize --json says."""
    return json.loads(ended.stdout.splitlines()[-1])


def argument(word, row, folder):
    """A word of the row's command as the command gets it."""
    if word == "FILE":
        return str(CASES / row["file"])
    if word.startswith("DROPIN:"):
        path = str(ROOT / word.removeprefix("DROPIN:"))
        ended = run(["-m", "agentkernel", "optimize", path, "--target", "h100", "--json"], folder)
        return outcome(ended)["candidate"]
    return str(CASES / word) if word.endswith(".py") else word


def names(rows):
    return [
        pytest.param(row, id=row["file"], marks=[pytest.mark.slow] if row["slow"] else [])
        for row in rows
    ]


def test_every_case_has_a_row():
    files = {path.name for path in CASES.glob("*.py")} - {Path(__file__).name}
    told = {row["file"] for row in ROWS} | {
        word for row in ROWS for word in row["command"] if word.endswith(".py")
    }
    assert files == {name for name in told if "/" not in name}


@pytest.mark.quick(1)
@pytest.mark.parametrize("row", names(ROWS))
def test_a_case(row, tmp_path):
    verb, *rest = (argument(word, row, tmp_path) for word in row["command"])
    words = rest if verb == "script" else ["-m", "agentkernel", verb, *rest]
    words += ["--json"] if verb == "optimize" else []
    began = time.monotonic()
    ended = run(words, tmp_path)
    seconds = time.monotonic() - began
    said = ended.stdout + ended.stderr
    assert ended.returncode in row["exit"], said[-3000:]
    assert seconds < row.get("within_s", LIMIT_S), f"{seconds:.0f} s"
    for pattern in row.get("says", ()):
        assert re.search(pattern, said), (pattern, said[-3000:])
    for pattern in row["never"]:
        assert not re.search(pattern, said), (pattern, said[-3000:])
    if verb != "optimize" or ended.returncode not in (0, 3):
        return
    result = outcome(ended)
    assert result["status"] in row["status"], result["reason"]
    if row.get("values"):
        script = HEAD + "\n".join(row["values"]) + "\n"
        dropin = result["candidate"] or ""
        checked = run(["-c", script, str(CASES / row["file"]), dropin], tmp_path)
        assert checked.returncode == 0, checked.stderr[-2000:]
