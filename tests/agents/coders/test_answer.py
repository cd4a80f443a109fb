"""Is the file found in a model's answer, however it is wrapped?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.agents.coders.answer import extract_module

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


@given(st.text(alphabet=st.characters(blacklist_characters="`~<\r")), st.text("`~ab \n"))
def test_prose_never_breaks_a_fenced_module(before: str, after: str) -> None:
    found = extract_module(f"{before}\n```python\n{MODULE}```\n{after}")
    assert found == MODULE
