"""Does the static policy name the rule and the line, and leave honest drop-ins alone?"""

import pytest

from agentkernel.tools.judge.policy import check_policy

REFUSED = {
    "import os": ("import torch\n", "import os\nimport torch\n", "import"),
    "from torch.utils": ("import math\n", "from torch.utils import cpp_extension\n", "import"),
    "ctypes": ("import math\n", "import ctypes\n", "import"),
    "relative": ("import math\n", "from . import reference\n", "import"),
    "star": ("import math\n", "from math import *\n", "import"),
    "exec": ("return out", "exec('1')\n        return out", "banned-name"),
    "open": ("return out", "open('/etc/passwd')\n        return out", "banned-name"),
    "getattr": ("return out", "getattr(x, 'add')(y)\n        return out", "banned-name"),
    "environment": ("return out", "torch.os.environ\n        return out", "banned-attribute"),
    "dunder": ("return out", "out.__class__\n        return out", "dunder"),
    "builtins": ("return out", "__builtins__\n        return out", "dunder"),
    "globals": ("return out", "global cache\n        return out", "global-state"),
    "patching": ("return out", "torch.allclose = None\n        return out", "patching"),
    "torch.ops": ("return out", "return torch.ops.aten.add(x, y)", "torch-namespace"),
    "torch.compile": ("return out", "return torch.compile(x)", "torch-namespace"),
    "torch compute": ("return out", "return torch.add(x, y, alpha=2)", "torch-compute"),
    "functional": ("return out", "return nn.functional.relu(x)", "torch-compute"),
    "tensor method": ("return out", "return x.add(y)", "torch-compute"),
    "matmul operator": ("return out", "return x @ y", "torch-compute"),
    "fallback": (
        "        return out",
        "        try:\n            return out\n        except ValueError:\n            return x",
        "try-in-model",
    ),
    "no kernel": ("@triton.jit\n", "", "no-kernel"),
    "no launch": (
        "add_kernel[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)",
        "pass",
        "no-launch",
    ),
    "no model": ("class ModelNew", "class Other", "no-model"),
    "syntax": ("class ModelNew", "class class", "syntax"),
    "submodule": ("return out", "return self.layer(x)", "module-call"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_rule_and_line(sources, name):
    old, new, rule = REFUSED[name]
    assert old in sources.ADD
    source = sources.ADD.replace(old, new, 1)
    found = check_policy(source, "triton")
    assert found is not None
    assert found.rule == rule
    assert found.line >= 1


@pytest.mark.parametrize("name", ["NORM", "ADD", "SOFTMAX", "GEMM"])
@pytest.mark.parametrize("policy", ["triton", "mixed", "any"])
def test_honest_drop_ins_pass(sources, name, policy):
    assert check_policy(getattr(sources, name).replace("DTYPE", "float32"), policy) is None


LIBRARY = """
import torch
import torch.nn.functional as F
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return BODY
"""


@pytest.mark.parametrize(
    ("body", "mixed"),
    [
        ("F.linear(x, self.linear.weight)", True),
        ("torch.mm(x, x)", True),
        ("x.matmul(x)", True),
        ("self.linear(x)", True),
        ("F.conv2d(x, x)", True),
        ("F.gelu(x)", False),
        ("F.max_pool2d(x, 2)", False),
        ("self.norm(x)", False),
        ("torch.softmax(x, 0)", False),
    ],
)
def test_mixed_lets_library_products_through_and_nothing_else(body, mixed):
    source = LIBRARY.replace("BODY", body)
    assert (check_policy(source, "mixed") is None) == mixed
    assert check_policy(source, "triton") is not None
    assert check_policy(source, "any") is None
