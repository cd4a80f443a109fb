"""The graph form of a source: what makes it, what takes it off, and what is no such form."""

import ast
from pathlib import Path

import pytest

from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.policy.graph_form import BLOCK, plain_form, with_graph

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("[kl]*/*.py"))
PLAIN = '''"""Adds one."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) + 1.0, mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, scale=1.0):
        output = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 128),)](x, output, x.numel(), BLOCK=128)
        return output
'''


def formed(plain=PLAIN):
    text = with_graph(plain)
    assert text is not None
    return text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_drop_in_has_it_and_gives_its_text_back(path):
    plain = path.read_text(encoding="utf-8")
    text = with_graph(plain)
    if text is None:
        pytest.skip("its forward takes more than plain arguments")
    found = plain_form(text)
    assert found is not None
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(plain))
    assert len(found.split("\n")) == len(text.split("\n"))


def test_goldens_are_there():
    assert len(GOLDEN) >= 12
    assert sum(with_graph(path.read_text(encoding="utf-8")) is not None for path in GOLDEN) >= 10


def test_kernels_stay_on_their_lines():
    text = formed()
    found = plain_form(text)
    assert found is not None
    line = text.split("\n").index("@triton.jit")
    assert found.split("\n")[line] == "@triton.jit"


def test_the_block_is_in_it_as_it_stands():
    text = formed()
    assert BLOCK in text
    assert "import threading\nimport weakref\n\nimport torch\n" in text
    assert (
        "    def forward(self, x: torch.Tensor, scale=1.0):\n"
        "        return graphed(self, x, scale)\n" in text
    )


def test_imports_are_sorted_among_the_standard_library():
    plain = PLAIN.replace(
        "import torch\nimport triton\n",
        "import math\nfrom dataclasses import dataclass\n\nimport torch\nimport triton\n",
    )
    wanted = "import math\nimport threading\nimport weakref\nfrom dataclasses import dataclass\n"
    assert wanted in formed(plain)
    assert plain_form(formed(plain)) is not None


def test_long_signatures_are_kept_as_they_are_written():
    names = [f"argument_number_{index}" for index in range(8)]
    head = "def forward(\n        self, x,\n        " + ", ".join(names) + ",\n    ):"
    plain = PLAIN.replace("def forward(self, x: torch.Tensor, scale=1.0):", head)
    text = formed(plain)
    assert text.count(head) == 1
    assert max(map(len, text.split("\n"))) <= 160
    assert plain_form(text) is not None


CALL = "        return graphed(self, x, scale)"
HEAD = "class ModelNew(nn.Module):"
LAYOUT = "            if item.layout"
CHANGES = {
    "another bound": ("MOST_RECORDINGS = 8, 256", "MOST_RECORDINGS = 9, 256"),
    "no replay": ("            self.graph.replay()\n", ""),
    "no copy in": ("                own.copy_(item)\n", "                pass\n"),
    "no copy out": ("[item.clone() for item in self.outputs]", "list(self.outputs)"),
    "no wait": ("        current.wait_event(self.done)\n", ""),
    "no question": (f"        return ()\n{LAYOUT}", f"        pass\n{LAYOUT}"),
    "forward does more": (CALL, f"        x = x + 1\n{CALL}"),
    "forward leaves out": ("graphed(self, x, scale)", "graphed(self, x)"),
    "a second block": ("class CallGraph:", "class CallGraph:\n    pass\n\n\nclass CallGraph:"),
    "something beside the import": ("import weakref", "import weakref, os"),
    "something behind the block": (HEAD, f"graphed = None\n\n\n{HEAD}"),
    "a decorated class": (HEAD, f"@torch.no_grad()\n{HEAD}"),
    "a second model": (HEAD, f"{HEAD}\n    pass\n\n\n{HEAD}"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_block_is_no_such_form_and_is_refused(change):
    old, new = CHANGES[change]
    text = formed()
    assert text.count(old) == 1
    text = text.replace(old, new)
    assert plain_form(text) is None
    assert check_policy(text, "triton") is not None


TOLD = {
    "capture asked": "torch.cuda.is_current_stream_capturing()",
    "graph used": "torch.cuda.CUDAGraph()",
    "stream asked": "torch.cuda.current_stream()",
    "graphs read": "GRAPHS",
    "block called": "graphed(self, x)",
    "attribute of that name": "self.plain_forward",
    "import of that name": None,
}


@pytest.mark.parametrize("told", TOLD)
def test_a_text_that_may_tell_a_recording_has_no_such_form(told):
    if TOLD[told] is None:
        plain = PLAIN.replace(
            "from torch import nn\n",
            "from torch import nn\nfrom torch.cuda import is_current_stream_capturing as asked\n",
        )
    else:
        plain = PLAIN.replace("        output =", f"        told = {TOLD[told]}\n        output =")
    assert with_graph(plain) is None


BOUND = {
    "builtin": "def len(x):\n    return 0",
    "torch assigned": "torch = nn",
    "torch defined": "class torch:\n    pass",
    "torch imported otherwise": "from torch import nn as torch",
    "builtin by global": "def change():\n    global isinstance\n    isinstance = None",
    "builtin imported": "from math import ceil as repr",
}


@pytest.mark.parametrize("bound", BOUND)
def test_what_the_block_reads_may_not_be_bound(bound):
    plain = PLAIN.replace("\n\n@triton.jit", f"\n\n{BOUND[bound]}\n\n\n@triton.jit", 1)
    ast.parse(plain)
    assert with_graph(plain) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def forward(self, x: torch.Tensor, scale=1.0):", "def forward(self, *x):"),
        ("def forward(self, x: torch.Tensor, scale=1.0):", "def forward(self, x, *, scale=1.0):"),
        ("def forward", "def call"),
        ("    def forward", "    @torch.no_grad()\n    def forward"),
        ("import torch\n", "import torch as t\n"),
    ],
)
def test_other_sources_have_none(old, new):
    assert PLAIN.replace(old, new, 1) != PLAIN
    assert with_graph(PLAIN.replace(old, new, 1)) is None


def test_names_within_functions_do_no_harm():
    plain = PLAIN.replace("        output =", "        len = list = x\n        output =")
    assert plain_form(formed(plain)) is not None


def test_what_is_no_python_is_no_such_form():
    assert plain_form(formed() + "\n)") is None
    assert plain_form(formed().replace("import weakref", "import weakref\x0c")) is None


@pytest.mark.parametrize("policy", ["triton", "mixed", "any"])
def test_the_policy_reads_the_plain_text(policy):
    assert check_policy(formed(), policy) is None
    wrong = PLAIN.replace("        return output", "        return torch.load('x')")
    found = check_policy(formed(wrong), policy)
    assert found is not None
    assert found.line == formed(wrong).split("\n").index("        return torch.load('x')") + 1


def test_the_red_teams_bases_have_the_block_of_today():
    corpus = Path(__file__).parents[2] / "redteam"
    files = [*corpus.glob("bases/*_graphed.py"), *corpus.glob("honest/graph_form_*.py")]
    assert len(files) == 3
    for path in files:
        assert plain_form(path.read_text(encoding="utf-8")) is not None, path
