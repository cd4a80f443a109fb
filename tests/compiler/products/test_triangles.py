"""Triangular products are recognised, written with the steps of K that they need, and right."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.isolated_step import isolated
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.gemm import emit_gemm
from agentkernel.compiler.products.schedules import GemmFacts, GemmSchedule, gemm_schedules
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.products.triangles import Triangle, work_share
from agentkernel.compiler.providers.protocol import LAUNCH_US
from agentkernel.compiler.providers.registry import provider_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.first_drafts import drafted
from tests.compiler.forms import assert_accepted
from tests.compiler.products.test_gemm import GOLDEN, cost_of, spec_of

Form = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOWER, UPPER = Triangle("a", True, 0), Triangle("b", False, 0)
FORMS: dict[str, tuple[Form, tuple[Triangle, ...]]] = {
    "left": (lambda a, b: torch.tril(a) @ b, (LOWER,)),
    "right": (lambda a, b: a @ torch.triu(b), (UPPER,)),
    "both": (lambda a, b: torch.tril(a) @ torch.triu(b), (LOWER, UPPER)),
    "diagonal": (lambda a, b: torch.triu(a, -3) @ b, (Triangle("a", False, -3),)),
    "turned": (lambda a, b: torch.tril(a, 2).mT @ b, (Triangle("a", False, -2),)),
    "linear": (lambda a, b: nn.functional.linear(a, torch.tril(b)), (UPPER,)),
    "result": (lambda a, b: torch.triu(a @ b, 1), (Triangle("out", False, 1),)),
    "after a bias": (
        lambda a, b: torch.tril(torch.relu(a @ b + 1.0)) * 2.0 + 1.0,
        (Triangle("out", True, 0),),
    ),
    "beside a column": (
        lambda a, b: torch.tril(a @ b) + a[..., :1],
        (Triangle("out", True, 0),),
    ),
    "everywhere": (lambda a, b: torch.where(torch.ones_like(a).tril() > 0, a @ b, a), ()),
    "neither half": (lambda a, b: (lambda c: torch.tril(c) - torch.triu(c, 1))(a @ b), ()),
    "result turned": (lambda a, b: torch.tril((a @ b).mT), ()),
}


class Two(nn.Module):
    """A function of two matrices."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.form(a, b)


def compiled(form: Form, *shape: int, dtype: torch.dtype = torch.float32) -> Compiled:
    inputs = (torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype))
    loaded = problem_from_module(Two(form), inputs)
    return next(
        item
        for item in partitions(loaded, capture(loaded), "mixed")
        if any(isinstance(step, ProductStep) for step in item.partition.steps)
    )


def product_of(found: Compiled) -> ProductStep:
    return next(step for step in found.partition.steps if isinstance(step, ProductStep))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("shape", [(64, 64), (3, 48, 48)])
def test_what_is_cut_is_known(name: str, shape: tuple[int, ...]) -> None:
    form, wanted = FORMS[name]
    if name == "linear" and len(shape) > 2:
        pytest.skip("the weight of a linear layer is a matrix")
    assert product_of(compiled(form, *shape)).triangles == wanted


@pytest.mark.parametrize("name", ["left", "right", "both", "result"])
def test_a_cut_of_16_bits_is_known(name: str) -> None:
    form, wanted = FORMS[name]
    assert product_of(compiled(form, 64, 64, dtype=torch.bfloat16)).triangles == wanted


def test_rows_of_several_matrices_are_in_no_one_triangle() -> None:
    """A[2, 40, 40] @ B[40, 40] has 80 rows, and so has its result."""
    for form in (lambda a, b: torch.tril(a) @ b, lambda a, b: torch.tril(a @ b)):
        inputs = (torch.randn(2, 40, 40), torch.randn(40, 40))
        loaded = problem_from_module(Two(form), inputs)
        found = partitions(loaded, capture(loaded), "mixed")[0]
        assert product_of(found).triangles == ()


@settings(max_examples=60, deadline=None)
@given(
    of=st.sampled_from(["a", "b", "out"]),
    lower=st.booleans(),
    diagonal=st.integers(-12, 12),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
)
def test_the_share_of_the_work_is_that_of_the_elements(
    of: str, lower: bool, diagonal: int, sizes: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    ones = torch.ones({"a": (m, k), "b": (k, n), "out": (m, n)}[of])
    kept = (torch.tril if lower else torch.triu)(ones, diagonal).mean()
    found = work_share([Triangle(of, lower, diagonal)], m, n, k)  # type: ignore[arg-type]
    assert found == pytest.approx(float(kept), abs=1e-6)


def test_half_the_work_is_counted_and_measured_apart() -> None:
    dense, cut = (compiled(form, 512, 512) for form in (torch.matmul, FORMS["left"][0]))
    works, keys, times = [], [], []
    for item in (dense, cut):
        step = product_of(item)
        alone = isolated(item, step)
        assert alone is not None
        assert alone.matrix_work is not None
        works.append(alone.matrix_work.cost.flops)
        keys.append(alone.key)
        times.append(provider_of(step).work_us(step, item.symbols) - LAUNCH_US)
    assert works[1] == pytest.approx(works[0] * 513 / 1024)
    assert times[1] == pytest.approx(times[0] * 513 / 1024)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("name", ["left", "right", "result", "both"])
def test_a_draft_is_accepted(name: str) -> None:
    """NaN and infinities in what is left out included; at odd sizes."""
    loaded = problem_from_module(Two(FORMS[name][0]), (torch.randn(75, 75), torch.randn(75, 75)))
    source = drafted(loaded, "gemm")
    assert "slice_end" in source
    assert_accepted(loaded, capture(loaded), source, seeds=2, budget_s=0.0)


CUT = ("acc = tl.where(cols[None, :] >= rows[:, None], acc, 0.0)",)
SCHEDULES: dict[str, GemmSchedule] = {
    "planes": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 3, "PLANES": 1},
    "planes in the loop": {
        "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "num_stages": 4, "PLANES": 2,
    },
    "half": {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_stages": 3},
    "persist": {
        "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_stages": 3, "PERSIST": 132,
        "PROGRAMS": 132,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("triangle", [LOWER, UPPER, Triangle("out", False, 0)], ids=str)
def test_the_loop_stays_as_it_is(name: str, triangle: Triangle) -> None:
    """Nothing spills, and loads are in flight while the tensor core multiplies, as if dense."""
    schedule = SCHEDULES[name] | {"GROUP_M": 8, "SPLIT_K": 1, "num_warps": 8}
    dtype = "float32" if name.startswith("planes") else "bfloat16"
    spec = spec_of(
        dtype, b_layout="n", epilogue=CUT if triangle.of == "out" else (), extras=(),
        triangles=(triangle,),
    )  # fmt: skip
    cost = cost_of(spec, schedule)
    dense = cost_of(spec_of(dtype, b_layout="n", epilogue=(), extras=()), schedule)
    assert cost.stack_bytes == 0
    for word in ("wgmma.mma_async", "cp.async.cg", "cp.async.wait_group"):
        assert cost.ptx.count(word) == dense.ptx.count(word) > 0


def test_the_emitted_text() -> None:
    schedule = gemm_schedules(GemmFacts(4096, 4096, 4096), load_targets()["h200"])[0]
    text = emit_gemm(spec_of(triangles=(LOWER, UPPER)), schedule)
    found = f"{text.source}\n\n\n" + "\n".join(text.launch) + "\n"
    golden = GOLDEN / "linear_triangles.py.txt"
    if os.environ.get("AGENTKERNEL_RECORD"):
        golden.write_text(found)
    assert found == golden.read_text(), "see the emitted text, then update the golden file"


def test_slices_of_k_take_all_of_their_own() -> None:
    """What adds them up applies the epilogue, cut included."""
    schedule = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
    schedule |= {"num_stages": 3, "SPLIT_K": 4}
    one, other = (emit_gemm(spec_of(triangles=found), schedule) for found in ((), (LOWER,)))
    assert one == other


def test_an_epilogue_may_count_rows_and_columns() -> None:
    def checked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        row = torch.arange(a.shape[-2], device=a.device)[:, None]
        col = torch.arange(b.shape[-1], device=a.device)
        return torch.where((3 * row + col) % 2 == 0, a @ b, -1.0)

    loaded = problem_from_module(Two(checked), (torch.randn(2, 21, 33), torch.randn(2, 33, 41)))
    source = drafted(loaded, "gemm")
    assert source.count("@triton.jit") == 1
    assert_accepted(loaded, capture(loaded), source, budget_s=0.0)
