"""Drop-ins of the examples against golden files; AGENTKERNEL_RECORD=1 records them anew."""

import os
from pathlib import Path

import pytest

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.targets import find_target

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "kernels"
EXAMPLES = ("layernorm", "softmax", "rmsnorm_residual", "cross_entropy", "gelu_bias", "swiglu",
            "linear_gelu", "conv_norm_relu", "attention")  # fmt: skip

SCANS = ("level1/cumprod_columns", "level1/cumsum_rows", "level1/logcumsumexp",
         "level2/exclusive_cumsum_masked", "level2/scan_decay")  # fmt: skip
SCATTERS = ("level1/scatter_sum", "level3/graph_convolution")
VIEWS = ("level2/rms_norm_qkv",)
REDUCING = ("h_conv2d_softmax", "h_conv2d_pool", "h_conv2d_mean")
FEW_QUERIES = ("h_attention_decode",)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_first_schedule_of_an_example_reads_the_same(name: str) -> None:
    _reads_the_same(ROOT / "examples" / f"{name}.py", name)


@pytest.mark.parametrize("name", SCANS + SCATTERS + VIEWS)
def test_the_first_schedule_of_a_suite_problem_reads_the_same(name: str) -> None:
    _reads_the_same(ROOT / "benchmarks" / "suite" / f"{name}.py", name.partition("/")[2])


@pytest.mark.parametrize("name", REDUCING + FEW_QUERIES)
def test_the_first_schedule_of_a_problem_of_the_judge_reads_the_same(name: str) -> None:
    _reads_the_same(ROOT / "tests" / "redteam" / "problems" / f"{name}.py", name)


def _reads_the_same(problem: Path, name: str) -> None:
    loaded = load_problem(str(problem))
    choices = partitions(loaded, capture(loaded), "mixed")
    target = find_target("h200").target
    text = family(choices, "default", lambda _: None, target)[0].source.text
    path = GOLDEN / f"{name}.py"
    if os.environ.get("AGENTKERNEL_RECORD"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
