"""Products that gate each other: which are one kernel, what it costs, and that it is right."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.pairs import PairStep, filling, pair_schedules
from agentkernel.compiler.products.schedules import (
    GemmFacts,
    GemmSchedule,
    gemm_schedules,
    sampled_gemm_schedules,
)
from agentkernel.compiler.products.spec import GemmSpec
from agentkernel.compiler.products.step import ProductStep
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem, problem_from_module
from agentkernel.tools.targets import find_target, load_targets
from tests.compiler.forms import accepted_text, compiled_graph, small
from tests.compiler.products.test_gemm import cost_of

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "kernels"
TARGET = find_target("h200").target
Gate = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def silu_gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.silu(a) * b


def lstm_gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(b) * torch.tanh(a)


class Two(nn.Module):
    """gate(x W, x V), two linear layers of one input."""

    def __init__(
        self, gate: Gate, *, bias: bool = True, dtype: torch.dtype = torch.float32, wide: int = 56
    ) -> None:
        super().__init__()
        self.one = nn.Linear(24, 56, bias=bias, dtype=dtype)
        self.two = nn.Linear(24, wide, bias=bias, dtype=dtype)
        self.gate = gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(self.one(x), self.two(x))


class Parts(nn.Module):
    """gate(a, b) of two ranges of columns of x W, with a bias where W lies with K inside."""

    def __init__(
        self, gate: Gate, *, turned: bool = True, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        shape = (112, 24) if turned else (24, 112)
        self.weight = nn.Parameter(torch.randn(shape, dtype=dtype))
        self.bias = nn.Parameter(torch.randn(112, dtype=dtype))
        self.gate, self.turned = gate, turned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = F.linear(x, self.weight, self.bias) if self.turned else x @ self.weight
        return self.gate(*product.chunk(2, -1))


class Given(nn.Module):
    """gate(x W, x V) of given matrices, with leading dimensions."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return silu_gate(x @ w, x @ v)


def pairs_of(compiled: Compiled) -> list[PairStep]:
    return [step for step in compiled.partition.steps if isinstance(step, PairStep)]


def own(module: nn.Module, *inputs: torch.Tensor) -> Compiled:
    """The partition whose products are ours."""
    problem = problem_from_module(module.eval(), inputs)
    return partitions(problem, capture(problem), "triton")[0]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_two_layers_and_two_parts_of_one_are_one_kernel() -> None:
    x = torch.randn(3, 17, 24)
    for module in (
        Two(silu_gate), Two(lstm_gate, bias=False), Parts(silu_gate), Parts(lstm_gate),
        Parts(silu_gate, turned=False), Two(silu_gate, dtype=torch.bfloat16),
        Parts(silu_gate, dtype=torch.bfloat16),
    ):  # fmt: skip
        compiled = own(module, x.to(next(module.parameters()).dtype))
        assert len(compiled.partition.steps) == len(pairs_of(compiled)) == 1
    assert len(pairs_of(own(Given(), x, torch.randn(3, 24, 40), torch.randn(3, 24, 40)))) == 1


class Kept(nn.Module):
    """A gate whose first product is returned too."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(24, 56, bias=False), nn.Linear(24, 56, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = self.one(x)
        return first, F.silu(first) * self.two(x)


class Lower(nn.Module):
    """A bias by the name of a pointer that the kernel makes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(24, 56, bias=False), nn.Linear(24, 56, bias=False)
        self.lower = nn.Parameter(torch.zeros(56))
        self.bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.one(x) + self.lower) * self.two(x)


def test_what_is_read_has_no_name_of_the_kernels_own() -> None:
    compiled = own(Lower(), torch.randn(17, 24).bfloat16())
    (pair,) = pairs_of(compiled)
    described = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2, "SPLIT_K": 1}
    described |= {"num_warps": 4, "num_stages": 2, "PERSIST": 3, "DESCRIPTORS": 2}
    text = compiled.write({pair: described}).text
    assert "lower_ptr = b_ptr" in text
    assert "lower_1_ptr, M, " in text


class Cell(nn.Module):
    """As many parts of a product with its bias, of which all are read."""

    def __init__(self, parts: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(24, 32 * parts, dtype=dtype)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        first, *others = self.linear(x).chunk(self.parts, -1)
        state = torch.sigmoid(first) * state
        for part in others:
            state = state * torch.sigmoid(part) + torch.tanh(part)
        return state


class Whole(nn.Module):
    """A gate of two parts of what is returned too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 96)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        whole = self.linear(x)
        a, b = whole.chunk(2, -1)
        return F.silu(a) * b, whole


class Other(nn.Module):
    """A gate of two inputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.silu(x @ w) * (y @ w)


def turned_gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a * b.mT


def summed_gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(-1)


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (Kept(), [(17, 24)]),
        (Other(), [(17, 24), (17, 24), (24, 40)]),
        (Two(turned_gate, bias=False), [(3, 56, 24)]),
        (Two(summed_gate, bias=False), [(17, 24)]),
        (Two(silu_gate, bias=False, wide=1), [(17, 24)]),
        (Parts(lambda a, b: F.silu(a) * b.flip(-1)), [(17, 24)]),
        (Cell(5), [(17, 24), (17, 32)]),
    ],
    ids=["kept", "other input", "turned", "summed", "narrow", "flipped", "five"],
)
def test_what_does_not_meet_element_by_element_is_no_pair(
    module: nn.Module, shapes: Sequence[tuple[int, ...]]
) -> None:
    assert pairs_of(compiled_graph(module, [torch.randn(shape) for shape in shapes])) == []


@pytest.mark.parametrize("parts", [3, 4])
def test_the_gates_of_a_cell_are_one_kernel(parts: int) -> None:
    compiled = own(Cell(parts), torch.randn(17, 24), torch.randn(17, 32))
    assert [len(step.parts) for step in pairs_of(compiled)] == [parts]
    assert len(compiled.partition.steps) == 1


@pytest.mark.slow
@pytest.mark.parametrize("parts", [3, 4])
def test_the_judge_accepts_the_gates_of_a_cell(parts: int) -> None:
    inputs = (torch.randn(17, 24), torch.randn(17, 32))
    text = accepted_text(problem_from_module(Cell(parts).eval(), inputs))
    assert "third = tl.dot" in text


class LongShortCell(nn.Module):
    """The cell of an LSTM with packed gates, of which the state goes on beside the output."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(24, 128), nn.Linear(32, 128)

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


def test_gates_store_a_state_beside_their_output() -> None:
    compiled = own(LongShortCell(), torch.randn(17, 24), torch.randn(17, 32), torch.randn(17, 32))
    (pair,) = pairs_of(compiled)
    assert (len(pair.parts), len(pair.stores)) == (4, 2)
    assert [type(step) for step in compiled.partition.steps] == [ProductStep, PairStep]


def test_a_state_of_one_row_is_stored_as_a_tile() -> None:
    """It has no stride over rows, as a bias has none, but a value for each row of the tile."""
    compiled = own(LongShortCell(), torch.randn(1, 24), torch.randn(1, 32), torch.randn(1, 32))
    text = compiled.write(small(compiled, "looped")).text
    assert text.count("+ rows[:, None] * 0, ") == 1
    assert "mask=col_mask[None, :])\n" not in text[text.index("fourth = tl.dot") :]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 17])
def test_the_judge_accepts_a_cell_with_its_state(rows: int) -> None:
    inputs = (torch.randn(rows, 24), torch.randn(rows, 32), torch.randn(rows, 32))
    text = accepted_text(problem_from_module(LongShortCell().eval(), inputs))
    assert "fourth = tl.dot" in text


class Steps(nn.Module):
    """A GRU written out, over the columns of its inputs' gates."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(24, 96), nn.Linear(32, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inputs = self.x(x)
        state = torch.zeros_like(inputs[:, 0, :32])
        for step in range(4):
            xr, xz, xn = inputs[:, step].chunk(3, -1)
            hr, hz, hn = self.h(state).chunk(3, -1)
            z = torch.sigmoid(xz + hz)
            state = (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * state
        return state


def test_steps_share_the_kernel_of_their_gates() -> None:
    """Each launch is given the inputs from its step on."""
    compiled = own(Steps(), torch.randn(3, 4, 24))
    assert [len(step.parts) for step in pairs_of(compiled)] == [3] * 4
    text = compiled.write(small(compiled, "looped")).text
    assert text.count("third = tl.dot") == 2
    assert "linear_1.view(-1)[288:]" in text


FORMS = [
    *((kind, torch.bfloat16) for kind in ("two", "parts", "columns", "given")),
    ("given", torch.float32),
    # Half a minute each in the interpreter.
    *(
        pytest.param(kind, torch.float32, marks=pytest.mark.slow)
        for kind in ("two", "parts", "columns")
    ),
]


@pytest.mark.parametrize(("kind", "dtype"), FORMS, ids=str)
def test_the_judge_accepts_a_pair(kind: str, dtype: torch.dtype) -> None:
    x = torch.randn(2, 17, 24).to(dtype)
    inputs: tuple[torch.Tensor, ...] = (x,)
    module: nn.Module = Two(silu_gate, dtype=dtype)
    if kind == "given":
        module, inputs = Given(), (x, *(torch.randn(2, 24, 40).to(dtype) for _ in range(2)))
    elif kind != "two":
        module = Parts(lstm_gate, turned=kind == "parts", dtype=dtype)
    text = accepted_text(problem_from_module(module.eval(), inputs))
    assert dtype != torch.float32 or "second = tl.dot" in text


@settings(max_examples=30, deadline=None)
@given(
    m=st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(1, 5000),
    dtype=st.sampled_from(["float32", "bfloat16"]), target=st.sampled_from(sorted(load_targets())),
    parts=st.integers(2, 4),
)  # fmt: skip
def test_gates_take_the_tile_of_one_product(
    m: int, n: int, k: int, dtype: str, target: str, parts: int
) -> None:
    gpu = load_targets()[target]
    facts = GemmFacts(m, parts * n, k, dtype=dtype, sums=parts)
    every = [*gemm_schedules(facts, gpu), *sampled_gemm_schedules(facts, gpu, 8)]
    found = pair_schedules(every, parts)
    for schedule in found:
        assert schedule["SPLIT_K"] == 1
        assert schedule["BLOCK_N"] >= 16
        buffers = schedule["num_stages"] - 1 or 1
        rim = schedule["BLOCK_M"] + parts * schedule["BLOCK_N"]
        used = rim * schedule["BLOCK_K"] * buffers * (4 if dtype == "float32" else 2)
        assert used <= gpu.shared_kb_per_block.value * 1024


GATED = ("acc = acc / (1.0 + tl.exp(-acc)) * second",)


def pair_spec(dtype: str, b_layout: str) -> GemmSpec:
    return GemmSpec(
        name="pair", a="x", b="w", gates=("v",), out="out", m="m", n="n", k="k", dtype=dtype,
        b_layout=b_layout, epilogue=GATED,
    )  # fmt: skip


@pytest.mark.parametrize("b_layout", ["k", "n"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_likeliest_schedules_spill_nothing(dtype: str, b_layout: str) -> None:
    facts = GemmFacts(4096, 2 * 11008, 4096, dtype=dtype, b_layout=b_layout, sums=2)
    found = pair_schedules(gemm_schedules(facts, load_targets()["h200"]))
    large = [item for item in found if "PERSIST" in item or "PLANES" in item]
    assert large[0] == found[0]
    for schedule in large[:2]:
        cost = cost_of(pair_spec(dtype, b_layout), schedule)
        assert cost.stack_bytes == 0, schedule
        assert "wgmma.mma_async" in cost.ptx
        assert cost.shared_bytes <= 227 * 1024


def test_a_bias_of_what_is_read_whole_too_stays_before_the_cut() -> None:
    for module, inputs in ((Cell(5), [(17, 24), (17, 32)]), (Whole(), [(17, 24)])):
        compiled = own(module, *map(torch.randn, inputs))
        products = [step for step in compiled.partition.steps if isinstance(step, ProductStep)]
        assert [step.epilogue is not None for step in products] == [True]


def test_a_tile_of_the_shared_matrix_is_loaded_once() -> None:
    schedule: GemmSchedule = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    schedule |= {"SPLIT_K": 1, "num_warps": 8, "num_stages": 3, "PERSIST": 132}
    ptx = cost_of(pair_spec("bfloat16", "k"), schedule).ptx
    loop = 3 * 128 * 64 * 2 // (256 * 16)  # copies of 16 bytes a thread, of 256, for three tiles
    assert ptx.count("cp.async.cg.shared.global") == 3 * loop


def test_the_text_of_a_pair() -> None:
    problem = load_problem(str(ROOT / "benchmarks" / "suite" / "level2" / "linear_geglu.py"))
    choices = partitions(problem, capture(problem), "triton")
    text = family(choices, "default", lambda _: None, TARGET)[0].source.text
    path = GOLDEN / "linear_geglu.py"
    if os.environ.get("AGENTKERNEL_RECORD"):
        path.write_text(text)
    assert text == path.read_text()


@settings(max_examples=50, deadline=None)
@given(
    m=st.integers(1, 3000), n=st.integers(16, 3000), k=st.integers(16, 3000),
    parts=st.integers(2, 4),
)  # fmt: skip
def test_tiles_of_few_rows_come_first_where_others_leave_sms_idle(
    m: int, n: int, k: int, parts: int
) -> None:
    facts = GemmFacts(m, parts * n, k, dtype="float32", sums=parts)
    known = pair_schedules(gemm_schedules(facts, TARGET), parts)
    found = filling(known, facts, parts, 132)
    assert all(schedule in found for schedule in known)
    for schedule in (item for item in found if item not in known):
        rows = schedule["BLOCK_M"]
        across = -(-n // schedule["BLOCK_N"])
        assert rows == 16 or -(-m // rows) * across >= 132
        assert -(-m // (2 * rows)) * across < 132


@pytest.mark.parametrize("b_layout", ["k", "n"])
def test_tiles_of_two_weights_with_k_inside_are_multiplied_as_one(b_layout: str) -> None:
    schedule: GemmSchedule = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    schedule |= {"SPLIT_K": 1, "num_warps": 8, "num_stages": 3, "PERSIST": 132, "DESCRIPTORS": 2}
    cost = cost_of(pair_spec("bfloat16", b_layout), schedule)
    joined = b_layout == "k"
    assert ("n256k16" in cost.ptx) == joined
    assert ("n128k16" in cost.ptx) != joined
    assert ("cp.async.bulk.tensor.3d" in cost.ptx) == joined
    assert cost.stack_bytes == 0
