"""Is a module refused, without a run, that could do anything but compute?"""

from __future__ import annotations

import pytest

from agentkernel.training.data.generator import make_problem
from agentkernel.training.data.rows import module_refusal

HONEST = make_problem(7).text
ALLOWED = ("MIT", "Apache-2.0")
FORWARD = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        {line}
        return x


def get_inputs():
    return [torch.randn(4)]


def get_init_inputs():
    return []
"""
IN_FORWARD = (
    "torch.hub.load('a', 'b')",
    "torch.save(x, '/tmp/x')",
    "torch.load('/tmp/x')",
    "x.numpy().tofile('/tmp/x')",
    "nn.Module.__subclasses__()",
    "self.__class__.__init__.__globals__",
    "exec('1')",
    "__import__('os').system('true')",
    "getattr(torch, 'hub')",
    "t = torch; t.relu(x)",
    "torch.utils.cpp_extension",
    "torch.ops.load_library('x')",
    "torch._C",
    "torch.from_file('/etc/passwd')",
    "x.apply_(print)",
    "nn.functional.torch.relu(x)",
    "torch.nn.modules.module.torch",
    "open('/etc/passwd')",
)
AT_IMPORT = (
    "import os\nos.system('true')\n",
    "from os import system\n",
    "import socket\n",
    "from torch import hub\n",
    "from torch.utils import data\n",
    "from torch.nn import *\n",
    "import torch.utils.cpp_extension\n",
    "import torch\ntorch.manual_seed(0)\n",
    "import torch\nx = torch.ones(3)\n",
    "exec('import os')\n",
    "class A:\n    print('now')\n",
    "def f(x=print('now')):\n    pass\n",
    "import subprocess as torch\n",
)


def test_generated_modules_pass() -> None:
    for seed in range(400):
        problem = make_problem(seed)
        assert module_refusal(problem.text, problem.licence, ALLOWED) is None


@pytest.mark.parametrize("line", IN_FORWARD)
def test_what_reaches_past_torch_operators_is_refused(line: str) -> None:
    assert module_refusal(FORWARD.format(line="pass"), "MIT", ALLOWED) is None
    assert module_refusal(FORWARD.format(line=line), "MIT", ALLOWED) is not None


@pytest.mark.parametrize("head", AT_IMPORT)
def test_what_runs_at_import_is_refused(head: str) -> None:
    assert module_refusal(head + HONEST, "MIT", ALLOWED) is not None


def test_a_licence_that_is_not_allowed_is_refused_by_name() -> None:
    assert module_refusal(HONEST, "apache-2.0", ALLOWED) is None
    assert "GPL-3.0" in (module_refusal(HONEST, "GPL-3.0", ALLOWED) or "")
    assert module_refusal(HONEST, "", ALLOWED) is not None


def test_no_python_and_too_much_of_it_are_refused() -> None:
    assert module_refusal("def (", "MIT", ALLOWED) is not None
    assert module_refusal("#" * 50_000, "MIT", ALLOWED) is not None
