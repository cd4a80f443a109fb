"""TorchInductor's answers without a GPU, under each variant and where it fails."""

import functools

import pytest
import torch
from torch import nn

from agentkernel.compiler.lift.inductor_code import VARIANTS, InductorCode, NotLifted, find_variant
from agentkernel.compiler.lift.inductor_process import generate
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.inductor_codes import shared_codes
from tests.compiler.lift.cases import CASES, lifted_case

H200 = find_target("h200").target
NEED_A_GPU = {"gemm_triton"}
FIRST = ("default", "multi_kernel", "looped", "gemm_triton")
"""The variants that `make test` asks about."""
OTHERS = tuple(variant.name for variant in VARIANTS if variant.name not in FIRST)
"""Variants that time their choices on real tensors."""


class Rows(nn.Module):
    """A product and a softmax of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x) * x.sum(-1, keepdim=True), -1)


class Quantised(nn.Module):
    """Rows over their largest element, rounded; and a quotient that nothing rounds."""

    def __init__(self, rounds: bool) -> None:
        super().__init__()
        self._rounds = rounds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = x / x.abs().amax(-1, keepdim=True)
        return torch.round(shares * 127).to(torch.int8) if self._rounds else shares


class Cell(nn.Module):
    """An operator that torch cannot infer the shapes of on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x, x)


def captured(module: nn.Module) -> Captured:
    return capture(problem_from_module(module.eval(), [torch.randn(32, 64)]))


@pytest.mark.xdist_group("lift")
@pytest.mark.parametrize("name", CASES)
def test_code_is_written_without_a_gpu(name: str) -> None:
    code = lifted_case(name).code
    assert isinstance(code, InductorCode), code
    assert code.pretended is not torch.cuda.is_available()
    assert code.kernels
    for kernel in code.kernels:
        assert kernel.configs, kernel.variable
        assert kernel.source.count("@triton.jit") >= 1


@functools.cache
def answers() -> dict[str, InductorCode | NotLifted]:
    """One process writes them all, the one that fails first."""
    plain, rows = find_variant("default"), captured(Rows())
    jobs = {"cell": (captured(Cell()), plain)}
    jobs |= {name: (rows, find_variant(name)) for name in FIRST}
    jobs |= {f"rounds {rounds}": (captured(Quantised(rounds)), plain) for rounds in (True, False)}
    return dict(zip(jobs, shared_codes("generate", list(jobs.values())), strict=True))


def assert_answers(name: str, answer: InductorCode | NotLifted) -> None:
    if name in NEED_A_GPU and not torch.cuda.is_available():
        assert isinstance(answer, NotLifted | InductorCode)
    else:
        assert isinstance(answer, InductorCode), f"{name}: {answer}"
        assert answer.variant == name


@pytest.mark.xdist_group("lift")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the operator")
def test_an_operator_that_needs_the_gpu_is_named() -> None:
    answer = answers()["cell"]
    assert isinstance(answer, NotLifted)
    assert "cannot write aten._thnn_fused_gru_cell.default without a GPU" in answer.reason


@pytest.mark.slow
def test_every_other_variant_answers() -> None:
    rows = captured(Rows())
    jobs = [(rows, find_variant(name)) for name in OTHERS]
    for name, answer in zip(OTHERS, shared_codes("generate_others", jobs), strict=True):
        assert_answers(name, answer)


def test_the_first_variants_answer() -> None:
    for name in FIRST:
        assert_answers(name, answers()[name])
    found = {name: code for name, code in answers().items() if isinstance(code, InductorCode)}
    assert "multi_kernel_0.run(" in found["multi_kernel"].source
    assert "for r0_offset" in found["looped"].source
    assert "for r0_offset" not in found["default"].source


def test_a_failure_is_a_value_and_the_next_graph_is_written() -> None:
    broken, good, *_ = answers().values()
    if not torch.cuda.is_available():
        assert isinstance(broken, NotLifted)
        assert broken.stage == "generate"
    assert isinstance(good, InductorCode)


def test_time_that_is_up_is_a_value() -> None:
    answer = generate(captured(Rows()), find_variant("default"), H200, timeout_s=0.2)
    assert isinstance(answer, NotLifted)
    assert "gave no answer within 0.2 s" in answer.reason


def test_names_are_distinct_and_every_key_is_known_somewhere() -> None:
    from torch._inductor import config

    known = frozenset(config.get_config_copy())
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    for variant in VARIANTS:
        assert variant.patch_for(known) == dict(variant.patch), variant.name
    assert find_variant("combo").patch_for(frozenset()) == {}


@pytest.mark.parametrize("rounds", [True, False])
def test_a_quotient_that_is_rounded_divides_as_eager_does(rounds: bool) -> None:
    """One ulp makes another whole number; where nothing rounds, the faster division stays."""
    code = answers()[f"rounds {rounds}"]
    assert isinstance(code, InductorCode), code
    assert any("div_rn(" in kernel.source for kernel in code.kernels) == rounds
