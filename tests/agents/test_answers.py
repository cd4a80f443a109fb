"""The file in a model's answer, however it is wrapped."""

from __future__ import annotations

import ast
import difflib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.agents.answers import extract_module, read_answer

MODULE = "import torch\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n    pass\n"
OLDER = MODULE.replace("pass", "older = True")
INDENTED = "\n".join(f"   {line}" if line else line for line in MODULE.splitlines())


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{MODULE}```",
        f"Here it is:\n\n```py\n{MODULE}```\nIt should be fast.",
        f"~~~python\n{MODULE}~~~",
        f"```\n{MODULE}```",
        f"```python\n{MODULE}",
        f"First:\n```python\n{OLDER}```\nBetter:\n```python\n{MODULE}```",
        f"```python\n{MODULE}```\nRun it with\n```sh\npython x.py\n```",
        f"```python\n{MODULE}```\nand then\n```python\nclass ModelNew(nn.Module:\n```",
        f"1. The file:\n   ```python\n{INDENTED}\n   ```",
        f"<think>```python\n{OLDER}```</think>\n```python\n{MODULE}```",
        f"Sure. Here is the module you want.\n\n{MODULE}\nIt uses one kernel.",
        MODULE,
        MODULE.replace("\n", "\r\n"),
    ],
)
def test_the_last_complete_module_is_found(answer: str) -> None:
    assert extract_module(answer) == MODULE


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I cannot do that.",
        "```python\nclass Other:\n    pass\n```",
        "```python\nclass ModelNew(nn.Module):\n    def forward(self\n```",
        "Define class ModelNew as shown above.",
        "```python\ndef make():\n    class ModelNew:\n        pass\n```",
    ],
)
def test_nothing_complete_is_none(answer: str) -> None:
    assert extract_module(answer) is None


BROKEN = MODULE.replace("class ModelNew", "x = (1, [2)\n\n\nclass ModelNew", 1)


@pytest.mark.parametrize(
    "answer",
    [
        f"Plan: fused.\n\n```python\n{BROKEN}```\n",
        f"```\n{BROKEN}```",
        f"```text\n{BROKEN}```",
        f"```python\n{BROKEN}",
        f"Here it is.\n\n{BROKEN}",
    ],
)
def test_of_a_file_that_does_not_parse_no_piece_is_taken(answer: str) -> None:
    assert extract_module(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{BROKEN}```\nWait, fixed:\n\n{MODULE}",
        f"```python\n{BROKEN}```\n```python\n{MODULE}```",
        f"```python\nHere is the file:\n{MODULE}```",
        f"```python\n{MODULE}This is the kernel.\n```",
        f"```python\n<file>\n{MODULE}</file>\n```",
    ],
)
def test_a_whole_file_is_found_beside_what_does_not_parse(answer: str) -> None:
    assert extract_module(answer) == MODULE


@given(st.text(alphabet=st.characters(blacklist_characters="`~<\r")), st.text("`~ab \n"))
def test_prose_never_breaks_a_fenced_module(before: str, after: str) -> None:
    assert extract_module(f"{before}\n```python\n{MODULE}```\n{after}") == MODULE


PARENT = """import torch
from torch import nn

BLOCK = 100


class ModelNew(nn.Module):
    def forward(self, x):
        return x + BLOCK
"""
MENDED = PARENT.replace("BLOCK = 100", "BLOCK = 128")
SEARCH = """Only the tile is wrong.
<<<<<<< SEARCH
BLOCK = 100
=======
BLOCK = 128
>>>>>>> REPLACE
"""
DIFF = "".join(
    difflib.unified_diff(
        PARENT.splitlines(keepends=True), MENDED.splitlines(keepends=True), "a/x.py", "b/x.py"
    )
)


@pytest.mark.parametrize(
    "answer",
    [
        SEARCH,
        f"```\n{SEARCH}```\nThat is all.",
        f"```diff\n{DIFF}```",
        DIFF,
        f"{DIFF}\nThis rounds the tile up.",
        DIFF.replace("@@ -1,7 +1,7 @@", "@@ -90,7 +90,7 @@"),
        DIFF.replace("@@ -1,7 +1,7 @@", "@@"),
        DIFF.replace("\n \n", "\n\n"),
        DIFF.replace("a/x.py", "../../etc/passwd").replace("b/x.py", "/root/.bashrc"),
        f"The file was\n```python\n{PARENT}```\nand this mends it:\n{SEARCH}",
        SEARCH.replace("BLOCK = 100", "BLOCK = 100   "),
    ],
)
def test_edits_change_the_parent(answer: str) -> None:
    assert extract_module(answer, parent=PARENT) == MENDED


@pytest.mark.parametrize(
    "answer",
    [
        SEARCH.replace("BLOCK = 100", "TILE = 100"),
        SEARCH.replace("BLOCK = 100", "    "),
        SEARCH.replace("BLOCK = 128", "BLOCK = ("),
        SEARCH.replace(">>>>>>> REPLACE", ""),
        "<<<<<<< SEARCH\n=======\nBLOCK = 128\n>>>>>>> REPLACE\n",
    ],
)
def test_edits_that_do_not_fit_are_none(answer: str) -> None:
    assert extract_module(answer, parent=PARENT) is None


def test_an_edit_that_fits_twice_is_none() -> None:
    twice = PARENT.replace("return x + BLOCK", "x = x + 1\n        x = x + 1\n        return x")
    answer = SEARCH.replace("BLOCK = 100", "        x = x + 1").replace("BLOCK = 128", "        x")
    assert extract_module(answer, parent=twice) is None


def test_a_hunk_that_fits_twice_goes_where_it_says() -> None:
    twice = PARENT.replace("        return x + BLOCK", "        x = x + 1\n        x = x + 1")
    hunk = "@@ -10 +10 @@\n-        x = x + 1\n+        return x\n"
    wanted = twice.replace("x = x + 1\n        x = x + 1", "x = x + 1\n        return x")
    assert extract_module(hunk, parent=twice) == wanted
    first = twice.replace("x = x + 1\n        x = x + 1", "return x\n        x = x + 1")
    assert extract_module(hunk.replace("-10", "-9"), parent=twice) == first


def test_edits_need_a_parent() -> None:
    assert extract_module(SEARCH) is None


def test_a_whole_file_after_an_edit_is_the_answer() -> None:
    assert extract_module(f"{SEARCH}\nOr whole:\n```python\n{MODULE}```", parent=PARENT) == MODULE


def test_a_diff_from_nothing_is_a_file() -> None:
    added = "".join(difflib.unified_diff([], MODULE.splitlines(keepends=True), "/dev/null", "b/y"))
    assert extract_module(f"```diff\n{added}```", parent=PARENT) == MODULE


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({"file": "x.py", "code": MODULE}),
        f"Here:\n```json\n{json.dumps({'answer': {'files': [OLDER, MODULE]}})}\n```",
        json.dumps({"code": f"```python\n{MODULE}```"}),
    ],
)
def test_code_inside_json(answer: str) -> None:
    assert extract_module(answer) == MODULE


def test_a_fence_inside_the_code_closes_nothing() -> None:
    code = MODULE.replace("    pass", '    """Use:\n\n```\nModelNew()\n```\n"""')
    assert extract_module(f"So:\n```python\n{code}```\nDone.") == code


def test_a_thought_whose_begin_is_in_the_prompt() -> None:
    answer = f"Maybe\n```python\n{OLDER}```\n</think>\n```python\n{MODULE}```"
    assert extract_module(answer) == MODULE
    assert extract_module(f"```python\n{OLDER}```\n</think>\nI give up.") is None


@pytest.mark.parametrize(
    ("answer", "source", "truncated"),
    [
        (f"```python\n{MODULE}```", MODULE, False),
        (f"```python\n{MODULE}", MODULE, True),
        (f"```python\n{MODULE}    def forward(self", None, True),
        (f"```python\n{OLDER}```\nBetter:\n```python\n{MODULE}    def f(", OLDER, True),
        (f"```python\n{MODULE}```\n<think>but then", MODULE, True),
        ("<<<<<<< SEARCH\nBLOCK = 100\n=======\nBLO", None, True),
        ("No.", None, False),
    ],
)
def test_truncation_is_told(answer: str, source: str | None, truncated: bool) -> None:
    found = read_answer(answer, parent=PARENT)
    assert (found.source, found.truncated) == (source, truncated)


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "answer",
    [
        "```\n" * 50_000,
        "# class ModelNew\n" * 20_000,
        "class ModelNew:\nfrom here\n" * 10_000,
        '{"a":' * 60_000,
        "<<<<<<< SEARCH\n" * 20_000,
        "@@\n-x\n+y\n" * 30_000,
        "class ModelNew\n" + "(" * 200_000,
        "<think>" * 40_000,
        "Prose about class ModelNew, import torch. " * 5_000,
    ],
)
def test_no_answer_costs_minutes(answer: str) -> None:
    begin = time.monotonic()
    assert extract_module(answer, parent=PARENT) is None
    assert time.monotonic() - begin < 20


PIECES = st.lists(
    st.sampled_from(
        [
            "```python\n",
            "```\n",
            "~~~\n",
            "<think>",
            "</think>",
            SEARCH,
            DIFF,
            MODULE,
            "{",
            '"',
            "@@\n",
        ]
    )
    | st.text(max_size=20),
    max_size=12,
)


@given(PIECES)
def test_what_is_found_always_is_such_a_file(pieces: list[str]) -> None:
    found = extract_module("".join(pieces), parent=PARENT)
    if found is not None:
        names = [node.name for node in ast.parse(found).body if isinstance(node, ast.ClassDef)]
        assert "ModelNew" in names


@given(st.integers(min_value=0, max_value=len(MODULE)))
def test_a_cut_answer_gives_a_prefix_that_parses_or_nothing(size: int) -> None:
    found = read_answer(f"```python\n{MODULE[:size]}")
    assert found.truncated
    if found.source is not None:
        assert MODULE.startswith(found.source.strip())


@given(st.lists(st.sampled_from(PARENT.splitlines()), unique=True, max_size=4), st.data())
def test_any_diff_of_the_parent_applies(dropped: list[str], data: st.DataObject) -> None:
    lines = [line for line in PARENT.splitlines() if line not in dropped or "class" in line]
    at = data.draw(st.integers(min_value=0, max_value=4))
    wanted = [*lines[:at], "# added", *lines[at:]]
    text = "\n".join(difflib.unified_diff(PARENT.splitlines(), wanted, lineterm=""))
    try:
        ast.parse("\n".join(wanted))
    except SyntaxError:
        return
    assert extract_module(text, parent=PARENT) == "\n".join(wanted).strip("\n") + "\n"
