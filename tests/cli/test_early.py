"""A mistyped path, target, coder or setting is told before torch is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.cli.configuration import with_checked_models
from agentkernel.cli.early import check_early, check_output
from agentkernel.cli.options import PlanFlags, Subject
from agentkernel.domain.errors import SettingError
from agentkernel.storage.configuration import load_settings

CALL = """
import sys
from agentkernel.cli.app import run

code = run(sys.argv[1:])
print(code, [name for name in ("torch", "triton") if name in sys.modules])
"""
MODULE = """
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x
"""
MISTAKES = {
    "optimize nothere.py": "nothere.py",
    "plan nothere.py": "nothere.py",
    "apply nothere.py": "nothere.py",
    "plan nothere.module:Model": "nothere.module",
    "plan broken.py": "broken.py",
    "plan good.py --target h1oo": "h1oo",
    "optimize good.py --target h1oo": "h1oo",
    "judge good.py --candidate good.py --target h1oo": "h1oo",
    "judge good.py --candidate nothere.py": "nothere.py",
    "profile good.py --candidate nothere.py": "nothere.py",
    "optimize good.py --coder nobody": "nobody",
    "optimize good.py --time 5parsecs": "5parsecs",
    "optimize good.py --rounds 0": "budget.rounds",
    "optimize good.py --config nothere.yaml": "nothere.yaml",
    "optimize good.py -c judge.sedes=3": "judge.seeds",
    "judge good.py --candidate good.py -c judge.sedes=3": "judge.seeds",
    "optimize good.py --out good.py": "'good.py' is there and was not written by agentkernel",
    "optimize good.py --out /proc/fast.py": "Cannot write '/proc'",
    "optimize good.py --out mine": "'mine/report.md' is there and was not written",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_costs_no_import_of_torch(line: str, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("class Model(:\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.md").write_text("# my own\n")
    done = subprocess.run(
        [sys.executable, "-c", CALL, *line.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == "2 []\n", done.stderr
    assert MISTAKES[line] in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nothing_is_left_where_an_output_may_be_written(tmp_path: Path) -> None:
    check_output(tmp_path / "deep" / "below" / "fast.py")
    check_output(tmp_path / "folder")
    check_output(None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("coder", ["chat:openai:m", "team:local:x,chat:openai:m@http://h:1/v1"])
def test_a_model_whose_client_is_not_installed_is_told_with_the_line_that_installs_it(
    coder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = load_settings(None, (), {"coder": coder})
    assert with_checked_models(asked) == asked
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    with pytest.raises(SettingError, match=r"needs .*langchain-openai.* pip install langchain-o"):
        with_checked_models(asked)


@pytest.mark.parametrize("target", ["local", "H100", None])
def test_what_is_known_passes(target: str | None, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(MODULE)
    check_early(PlanFlags(Subject(reference=str(tmp_path / "good.py")), target=target))
