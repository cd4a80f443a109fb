"""Drop-ins whose products go through tensor descriptors: judged, and in every launch form."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.drop_in.wrapper import AnySchedule
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.judge.policy.direct_form import with_direct_launches
from agentkernel.tools.judge.policy.graph_form import with_graph
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from tests.compiler.forms import TILE, assert_accepted

DESCRIBED = TILE | {"PERSIST": 3, "DESCRIPTORS": 2}


class Projected(nn.Module):
    def __init__(self, inner: int, outer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, outer, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


class Multiplied(nn.Module):
    """Every size is free: what TMA serves differs from call to call."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ y)


class Turned(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.T @ y


class Gated(nn.Module):
    def __init__(self, inner: int, outer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, 2 * outer, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.glu(self.linear(x))


class Swiglu(nn.Module):
    """Of weights of their own: either may lie behind the other."""

    def __init__(self, inner: int, outer: int, *, up_first: bool) -> None:
        super().__init__()
        made = [nn.Linear(inner, outer, bias=False, dtype=torch.bfloat16) for _ in range(2)]
        self.gate, self.up = reversed(made) if up_first else made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


class Compared(nn.Module):
    """What is stored are truth values."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y) > 0


def described(loaded: LoadedProblem) -> str:
    """Its drop-in whose products go through descriptors."""
    choices = partitions(loaded, capture(loaded), "mixed")
    for compiled in choices:
        steps = [x for x in compiled.partition.steps if isinstance(x, ProductStep | PairStep)]
        if steps:
            chosen: dict[object, AnySchedule] = dict.fromkeys(steps, DESCRIBED)
            return compiled.write(chosen).text
    raise AssertionError("no own product")


CASES = {
    "linear": (Projected(24, 48, torch.bfloat16), [(2, 17, 24)]),
    "odd columns": (Projected(40, 43, torch.float16), [(17, 40)]),
    "odd depth": (Projected(43, 48, torch.float16), [(17, 43)]),
    "pair": (Gated(24, 48, torch.bfloat16), [(17, 24)]),
    "two weights": (Swiglu(24, 48, up_first=False), [(17, 24)]),
    "two weights, the second first": (Swiglu(24, 48, up_first=True), [(17, 24)]),
    "free": (Multiplied(), [(17, 24), (24, 48)]),
    "turned": (Turned(), [(24, 40), (24, 48)]),
    "truth values": (Compared(), [(17, 24), (24, 48)]),
}


def problem_of(name: str) -> LoadedProblem:
    torch.manual_seed(0)
    module, shapes = CASES[name]
    kind = next((x.dtype for x in module.parameters()), torch.float16)
    return problem_from_module(module.eval(), tuple(torch.randn(x).to(kind) for x in shapes))


JUDGED_FIRST = ("odd depth", "two weights, the second first", "free", "truth values")
"""Of the cases those that `make test` judges."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[] if x in JUDGED_FIRST else [pytest.mark.slow]) for x in CASES],
)
def test_the_judge_accepts_products_by_descriptors(name: str) -> None:
    loaded = problem_of(name)
    text = described(loaded)
    assert "make_tensor_descriptor" in text
    assert ("out_box" in text) == (name != "truth values")
    assert "warp_specialize" not in text
    assert_accepted(loaded, capture(loaded), text)


def test_each_launch_form_holds_them() -> None:
    """Arguments are tensors and numbers, as of any kernel; the allocator is no stream's."""
    loaded = problem_of("linear")
    text = described(loaded)
    for form in (with_direct_launches(text), with_graph(text)):
        assert form is not None
        assert check_policy(form, "triton") is None
    direct = with_direct_launches(text)
    assert direct is not None
    assert_accepted(loaded, capture(loaded), direct)
