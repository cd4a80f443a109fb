import ast
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agentkernel.knowledge.documents import SECTIONS, DocumentError, load_fixes, match, read_fix

HERE = Path(__file__).parent
FIXES = {entry.id: entry for entry in load_fixes()}
PAGE = """---
title: A problem
errors: ["size * is wrong, got *"]
symptoms: ["all is slow"]
applies: ""
source: here
licence: Apache-2.0
---

## Cause

It is
so.

More.

## Fix

Do it.

## Check

Look.
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """Mistake -> what the installed Triton prints for it."""
    done = subprocess.run(
        [sys.executable, str(HERE / "failing_kernels.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    messages: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return messages


def test_every_mistake_is_refused_and_leads_to_its_fix(printed: dict[str, str]) -> None:
    found = {name: match(text)[:1] for name, text in printed.items()}
    assert found == {name: [f"fixes/{name.partition('__')[0]}"] for name in printed}
    assert len(printed) >= 50


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("CUDA error: an illegal memory access was encountered", "illegal_memory_access"),
        ("RuntimeError: Triton Error [CUDA]: misaligned address", "misaligned_address"),
        ("RuntimeError: Triton Error [CUDA]: invalid argument", "grid_too_large"),
        ("CUDA error: device-side assert triggered", "device_assert"),
        ("CUDA error: operation not permitted when stream is capturing", "wrong_stream_or_graph"),
        ("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)", "cpu_tensor"),
        ("0 active drivers ([]). There should only be one.", "cpu_tensor"),
        ("int32 overflow detected for operation mul", "int32_offset_overflow"),
        ("Inconsistent return types: fp32 and int32", "branch_type"),
        (
            "Conflicting meta-parameters: BLOCK. Make sure that you don't re-define auto-tuned "
            "symbols.",
            "autotune_key",
        ),
    ],
)
def test_errors_of_the_device_and_of_other_versions(error: str, expected: str) -> None:
    assert match(error)[0] == f"fixes/{expected}"


def test_an_unknown_error_matches_nothing() -> None:
    assert match("") == []
    assert match("ModuleNotFoundError: No module named 'flask'") == []


def test_the_most_literal_line_comes_first() -> None:
    assert match("unsupported AST node type: Lambda") == [
        "fixes/helper_not_jitted",
        "fixes/break_continue",
    ]


def test_a_page_is_read_as_an_entry(tmp_path: Path) -> None:
    (tmp_path / "size.md").write_text(PAGE)
    (entry,) = load_fixes(tmp_path)
    assert (entry.id, entry.kind, entry.title) == ("fixes/size", "fix", "A problem")
    assert entry.summary == "It is so."
    assert entry.answer.startswith("## Cause")
    assert entry.passages == ("size * is wrong, got *", "all is slow", "A problem. It is so.")
    assert (entry.source, entry.licence, entry.triton) == ("here", "Apache-2.0", None)


def test_a_line_matches_across_breaks_and_case_but_not_across_a_log(tmp_path: Path) -> None:
    (tmp_path / "size.md").write_text(PAGE)
    assert match("oh: SIZE 3 is\n   wrong, got 4", tmp_path) == ["fixes/size"]
    assert match(f"size {'x' * 500} is wrong, got 4", tmp_path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no front matter", "no front matter"),
        ("---\ntitle: [\n---\n", "size.md"),
        (PAGE.replace("title: A problem\n", ""), "title"),
        (PAGE.replace('["all is slow"]', "[]"), "symptoms"),
        (PAGE.replace("## Check", "## Checks"), "Expected"),
    ],
)
def test_a_bad_page_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "size.md"
    path.write_text(text)
    with pytest.raises(DocumentError, match=message) as caught:
        read_fix(path)
    assert "size.md" in str(caught.value)


def test_the_packaged_fixes_are_many_and_the_projects_own() -> None:
    assert len(FIXES) >= 45
    assert len({entry.title for entry in FIXES.values()}) == len(FIXES)
    assert {(entry.source, entry.licence) for entry in FIXES.values()} == {
        ("agentkernel", "Apache-2.0")
    }


def test_no_error_line_is_in_two_fixes() -> None:
    lines = [line for entry in FIXES.values() for line in entry.passages[:-1]]
    assert sorted({line for line in lines if lines.count(line) > 1}) == []


@pytest.mark.parametrize("name", sorted(FIXES))
def test_a_fix_shows_python_that_parses(name: str) -> None:
    answer = FIXES[name].answer
    assert tuple(re.findall(r"^## (.+)$", answer, flags=re.MULTILINE)) == SECTIONS
    examples = re.findall(r"```python\n(.*?)```", answer, flags=re.DOTALL)
    assert examples
    for example in examples:
        body = "def example():\n" + textwrap.indent(example, "    ") + "\n    pass\n"
        looped = "def example():\n    while True:\n" + textwrap.indent(example, " " * 8)
        assert _parses(body) or _parses(looped), example


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
