"""Files are lifted right from TorchInductor's text under each variant."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.lift.drop_in import lift
from agentkernel.compiler.lift.inductor_code import VARIANTS, InductorCode, find_variant
from agentkernel.compiler.lift.wrapper_steps import options_of, read_wrapper
from agentkernel.domain.profile import CompileReport
from agentkernel.tools.compile import compile_many
from agentkernel.tools.judge.policy.check import check_policy
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.problem.specialise import specialise
from agentkernel.tools.targets import find_target
from tests.compiler.forms import assert_accepted
from tests.compiler.inductor_codes import shared_codes
from tests.compiler.lift.cases import Wrapped

H200 = find_target("h200").target


@functools.cache
def problems() -> dict[str, tuple[LoadedProblem, Captured]]:
    torch.manual_seed(0)
    made = {
        "rows": (Wrapped(lambda m, x: torch.softmax(m.a(x) * x.sum(-1, keepdim=True), -1),
                         a=nn.Linear(64, 96)), [torch.randn(32, 64)]),
        "apart": (Wrapped(lambda m, x, y: (x.relu(), y.tanh(), x.sum(-1), y.amax(-1))),
                  [torch.randn(33, 65), torch.randn(20, 40)]),
        "chain": (Wrapped(lambda m, x: m.b(F.gelu(m.a(x))), a=nn.Linear(64, 128),
                          b=nn.Linear(128, 64)), [torch.randn(32, 64)]),
        "conv": (Wrapped(lambda m, x: F.relu(m.a(x)), a=nn.Conv2d(16, 16, 3, padding=1)),
                 [torch.randn(2, 16, 10, 10)]),
        "attention": (Wrapped(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v)),
                      [torch.randn(2, 2, 16, 16) for _ in range(3)]),
    }  # fmt: skip
    loaded = {name: problem_from_module(m.eval(), x) for name, (m, x) in made.items()}
    return {name: (item, capture(item)) for name, item in loaded.items()}


JOBS = tuple(
    [("rows", variant.name) for variant in VARIANTS]
    + [("apart", "combo"), ("chain", "gemm_triton"), ("conv", "gemm_triton"),
       ("conv", "channels_first"), ("attention", "default")]
)  # fmt: skip
FAST = {("rows", "multi_kernel"), ("chain", "gemm_triton"), ("conv", "channels_first")}


@functools.cache
def codes(fast: bool) -> dict[tuple[str, str], InductorCode]:
    wanted = [job for job in JOBS if (job in FAST) == fast]
    jobs = [(problems()[name][1], find_variant(variant)) for name, variant in wanted]
    answers = shared_codes("variants_fast" if fast else "variants", jobs)
    found = {}
    for job, answer in zip(wanted, answers, strict=True):
        assert isinstance(answer, InductorCode), f"{job}: {answer}"
        found[job] = answer
    return found


def lifted(name: str, variant: str, choices: dict[str, int] | None = None) -> str:
    code = codes((name, variant) in FAST)[name, variant]
    source = lift(code, *problems()[name], choices)
    assert isinstance(source, DropInSource), source
    assert check_policy(source.text, "mixed") is None
    return source.text


def accepted(name: str, text: str) -> None:
    loaded, captured = problems()[name]
    assert_accepted(loaded, specialise(captured), text, budget_s=1.0)


pytestmark = pytest.mark.xdist_group("lift_variants")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), sorted(FAST - {("rows", "multi_kernel")}))
def test_a_variant_passes_the_judge(name: str, variant: str) -> None:
    accepted(name, lifted(name, variant))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), sorted({*JOBS} - FAST | {("rows", "multi_kernel")}))
def test_every_variant_passes_the_judge(name: str, variant: str) -> None:
    accepted(name, lifted(name, variant))


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [FAST, pytest.param(set(JOBS) - FAST, marks=pytest.mark.slow)])
def test_every_variant_compiles_for_the_target(jobs: set[tuple[str, str]]) -> None:
    for name in {name for name, _ in jobs}:
        texts = [lifted(name, variant) for other, variant in sorted(jobs) if other == name]
        for text, report in zip(texts, compile_many(problems()[name][0], texts, H200), strict=True):
            assert isinstance(report, CompileReport), f"{report}\n{text}"
            assert report.kernels


@pytest.mark.slow
def test_a_choice_among_kernels_is_ours() -> None:
    """What TorchInductor leaves to the first call: looped over a row, or the row in registers."""
    code = codes(True)["rows", "multi_kernel"]
    whole = {}
    for name, options in options_of(code, read_wrapper(code.source)).items():
        kinds = [option.kernel.heuristic for option in options]
        assert set(kinds) == {"reduction", "persistent_reduction"}, name
        whole[name] = kinds.index("persistent_reduction")
    assert whole
    assert "for r0_offset" in lifted("rows", "multi_kernel")
    text = lifted("rows", "multi_kernel", whole)
    assert "for r0_offset" not in text
    accepted("rows", text)


def test_a_product_of_its_own_names_its_precision_and_fuses_what_follows() -> None:
    text = lifted("chain", "gemm_triton")
    assert text.count('input_precision="ieee"') == 2
    assert "gelu(" in text
    assert "torch.mm" not in text
    assert "allow_tf32" not in text
