"""Is the first prompt there before anything heavy, and does a line typed at once find its way?"""

from __future__ import annotations

import sys
from pathlib import Path

import pexpect
import pytest

from agentkernel.cli.chat.command import module_name
from tests.cli.chat.test_terminal import PROBLEM

HEAVY = "torch triton numpy langgraph langchain_core chromadb rich yaml agentkernel.chat"
SHOWN = f"""
import os, sys
from agentkernel.cli.app import main
from agentkernel.cli.chat import command

def load(prompt):
    found = sorted(set("{HEAVY}".split()) & set(sys.modules))
    os.write(1, f"IMPORTED {{found}}\\n".encode())
    os._exit(0)

command.FirstPrompt.load = load
main()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(PROBLEM)
    return tmp_path


def started(place: Path, *words: str) -> pexpect.spawn:
    return pexpect.spawn(
        sys.executable,
        [*words],
        cwd=str(place),
        encoding="utf-8",
        dimensions=(40, 100),
        timeout=120,
    )


def test_the_first_prompt_stands_before_anything_heavy_is_imported(place: Path) -> None:
    child = started(place, "-c", SHOWN, "chat", "small.py")
    child.expect(r"small>[\s\S]*IMPORTED (\[.*\])")
    assert child.match[1] == "[]"
    child.expect(pexpect.EOF)


def test_a_line_that_is_typed_at_once_is_answered_and_ctrl_d_ends(place: Path) -> None:
    child = started(place, "-m", "agentkernel", "chat", "small.py", "--target", "h100")
    child.expect("small>")
    child.sendline("/help undo")
    child.expect("one step back")
    child.expect("small>")
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert not (place / "agentkernel-runs").exists()


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("layers/mlp.py", "mlp"),
        ("layers/mlp.py:RMSNorm", "rmsnorm"),
        ("mlp.py:Model", "mlp"),
        ("", ""),
    ],
)
def test_the_prompt_names_the_class_that_is_worked_on(reference: str, name: str) -> None:
    assert module_name(reference) == name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("small.py", "--target", "h1000"), "agentkernel: Unknown target 'h1000'"),
        (("nothere.py",), "agentkernel: No such file: 'nothere.py'"),
    ],
)
def test_a_wrong_word_ends_the_prompt_with_one_line(
    place: Path, words: tuple[str, ...], said: str
) -> None:
    child = started(place, "-m", "agentkernel", "chat", *words)
    child.expect_exact(said)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2
