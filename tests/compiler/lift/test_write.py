"""Lifted files are right, readable and alone; AGENTKERNEL_RECORD=1 records golden files anew."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agentkernel.compiler.lift.drop_in import lift
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted
from agentkernel.domain.profile import CompileReport
from agentkernel.tools.compile import compile_many
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.forms import assert_accepted
from tests.compiler.lift.cases import BLOCKS, CASES, NAMES, QUICK, Wrapped, lifted_case

GOLDEN = Path(__file__).parents[2] / "golden" / "lifted"
ALLOWED = {"torch", "torch.nn", "torch.nn.functional", "triton", "triton.language",
           "triton.language.extra"}  # fmt: skip
JUDGED = ("max_pool", "rolled", "gelu", "swiglu_bf16", "softmax", "group_norm",
          "conv_norm_relu", "conv_transposed", "linear_chain", "bmm_tanh", "concatenate",
          "embedding", "messages", "running_product",
          "whole_numbers", "counting", "bucketize",
          *BLOCKS)  # fmt: skip
LONG = ("transformer_block", "selective_scan", "resnet_block", "swiglu_bf16", "group_norm",
        "counting", "conv_transposed", "linear_chain", "bmm_tanh", "concatenate",
        "bucketize")  # fmt: skip

pytestmark = pytest.mark.xdist_group("lift")


@pytest.mark.parametrize("name", CASES)
def test_a_lifted_file_keeps_the_policy_and_imports_torch_and_triton_alone(name: str) -> None:
    text = lifted_case(name).text
    assert check_policy(text, "mixed") is None
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    assert found <= ALLOWED
    assert "_inductor" not in text
    assert "_dynamo" not in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in LONG or name not in QUICK))
        for name in JUDGED
    ],
)
def test_a_lifted_file_passes_the_judge(name: str) -> None:
    case = lifted_case(name)
    assert_accepted(case.loaded, case.fixed, case.text, budget_s=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in JUDGED])
def test_the_other_lifted_files_pass_the_judge_too(name: str) -> None:
    test_a_lifted_file_passes_the_judge(name)


@pytest.mark.slow
def test_every_kernel_compiles_for_the_target() -> None:
    target = find_target("h200").target
    for name in NAMES:
        case = lifted_case(name)
        (report,) = compile_many(case.loaded, [case.text], target)
        assert isinstance(report, CompileReport), f"{name}: {report}\n{case.text}"
        assert report.kernels, name
        assert all(kernel.fits for kernel in report.kernels), name


@pytest.mark.slow
def test_lifted_files_run_where_the_compiler_cannot_be_imported(tmp_path: Path) -> None:
    """Files that the judge accepts, in Triton's interpreter."""
    calls = []
    for name in JUDGED:
        case = lifted_case(name)
        (tmp_path / f"{name}.py").write_text(case.text)
        torch.save(
            (case.loaded.init_args, case.loaded.make_inputs(seed=0)), tmp_path / f"{name}.pt"
        )
        calls.append(name)
    script = tmp_path / "run_all.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), *calls],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == calls


SCRIPT = """
import importlib
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("torch._dynamo", "torch._inductor")):
            raise ImportError(f"{name} is the compiler's")


sys.meta_path.insert(0, Refuse())
import torch

for name in sys.argv[1:]:
    arguments, inputs = torch.load(f"{name}.pt", weights_only=False)
    model = importlib.import_module(name).ModelNew(*arguments).eval()
    for value in model.state_dict().values():
        value.zero_()
    with torch.no_grad():
        model(*inputs)
    print(name)
assert not [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
"""


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="recorded from the code of torch 2.13"
)
@pytest.mark.quick(1)
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_reads_the_same(name: str) -> None:
    text = lifted_case(name).text
    path = GOLDEN / f"{name}.py"
    if os.environ.get("AGENTKERNEL_RECORD"):
        path.write_text(text)
    assert text == path.read_text()


def test_what_is_not_lifted_says_why() -> None:
    """Code of another module, and a launch in another form."""
    module = Wrapped(lambda m, x: x.min(-1)).eval()
    loaded = problem_from_module(module, [torch.randn(4, 30)])
    code = lifted_case("gelu").code
    assert isinstance(code, InductorCode)
    other = lift(code, loaded, capture(loaded))
    assert isinstance(other, NotLifted)
    assert other.reason == "the wrapper returns something else than the graph"
    case = lifted_case("gelu")
    broken = code.evolve(source=code.source.replace(".run(", ".launch("))
    refused = lift(broken, case.loaded, case.captured)
    assert isinstance(refused, NotLifted)
    assert ".launch stays with PyTorch" in refused.reason
