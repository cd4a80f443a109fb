"""Rotary embeddings in a product's epilogue: which forms are, and how heads are stored."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.products.rotation import rotated_schedules
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers import provider_of
from agentkernel.compiler.providers.protocol import Setting
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.cross_compile import Cost, compiled_cost, imported
from tests.compiler.forms import TILE, assert_accepted
from tests.compiler.sandboxed_drop_in import Sandboxed

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"
Angles = tuple[torch.Tensor, torch.Tensor]


def turned(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return x * cos + turned(x) * sin


def half_tables(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    c, s = cos[..., : a.shape[-1]], sin[..., : a.shape[-1]]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def wide(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return halves(x.float(), cos.float(), sin.float()).to(x.dtype)


def neighbours(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    c, s = (table[..., :half].repeat_interleave(2, -1) for table in (cos, sin))
    return x * c + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * s


def pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    c, s = cos[..., : a.shape[-1]], sin[..., : a.shape[-1]]
    return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)


FORMS: dict[str, Callable[..., torch.Tensor]] = {
    "halves": halves, "half_tables": half_tables, "wide": wide, "neighbours": neighbours,
    "pairs": pairs,
}  # fmt: skip
LAYOUTS = ("tokens", "batch", "heads", "copied")


class Projections(nn.Module):
    """Queries and keys, rotated, and values; heads where `layout` has them."""

    def __init__(
        self, form: str, layout: str, *, head: int = 16, heads: tuple[int, int] = (3, 2),
        inside: int = 24, bias: bool = False, dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.form, self.layout, self.head = form, layout, head
        self.layers = nn.ModuleList(
            nn.Linear(inside, count * head, bias=bias, dtype=dtype)
            for count in (heads[0], heads[1], heads[1])
        )

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
        apart = [layer(x).unflatten(-1, (-1, self.head)) for layer in self.layers]
        where = -2
        if self.layout in ("heads", "copied"):
            apart, where = [item.transpose(-2, -3) for item in apart], -3
        tables = [table.unsqueeze(where) for table in (cos, sin)]
        found = [FORMS[self.form](item, *tables) for item in apart[:2]]
        found = [item.contiguous() for item in found] if self.layout == "copied" else found
        return [*found, apart[2]]


def inputs(module: Projections, tokens: int, batch: int = 2) -> tuple[torch.Tensor, ...]:
    weight = module.layers[0].weight
    lead = (tokens,) if module.layout == "tokens" else (batch, tokens)
    angles = torch.rand(tokens, module.head) * 6
    tables = (torch.cos(angles).to(weight.dtype), torch.sin(angles).to(weight.dtype))
    return torch.randn(*lead, weight.shape[1]).to(weight.dtype), *tables


def compiled(module: Projections, *given: torch.Tensor) -> list[Compiled]:
    loaded = problem_from_module(module.eval(), given)
    return partitions(loaded, capture(loaded), "triton")


def products(found: Compiled) -> list[ProductStep]:
    steps = found.partition.steps
    joined = [step.products for step in steps if isinstance(step, JoinedStep)]
    return [*(item for some in joined for item in some),
            *(step for step in steps if isinstance(step, ProductStep))]  # fmt: skip


def text_of(found: Compiled, more: dict[str, int]) -> str:
    chosen: dict[object, dict[str, int]] = {}
    for step in found.partition.steps:
        if provider_of(step).pattern(step).startswith("gemm"):
            chosen[step] = TILE | more
    rest = [step for step in found.partition.steps if step not in chosen]
    setting = Setting(found.symbols, load_targets()["h200"], "strict", lambda _: None)
    other = {step: provider_of(step).schedules(step, setting)[0] for step in rest}
    return found.write({**chosen, **other}).text


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMS)
def test_queries_and_keys_are_rotated_where_they_are_multiplied(form: str, layout: str) -> None:
    module = Projections(form, layout)
    apart, joined = compiled(module, *inputs(module, 7))
    for found in (apart, joined):
        assert [step.rotation is not None for step in products(found)].count(True) == 2
    heads = {step.rotation.head for step in products(joined) if step.rotation}
    assert heads == {2 if form in ("neighbours", "pairs") else 16}
    text = text_of(joined, {})
    assert text.count("tl.join(") == 2
    assert "_kernel[" in text


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    form=st.sampled_from(sorted(FORMS)),
    layout=st.sampled_from(LAYOUTS),
    head=st.sampled_from((4, 8, 16, 32)),
    heads=st.tuples(st.integers(1, 5), st.integers(1, 3)),
    tokens=st.integers(2, 35),
    bias=st.booleans(),
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.float16)),
    more=st.sampled_from(({}, {"PERSIST": 3, "DESCRIPTORS": 2}, {"PERSIST": 2, "BLOCK_N": 256})),
    joined=st.booleans(),
)
def test_what_is_rotated_is_as_exact_as_eager(
    box: Sandboxed, form: str, layout: str, head: int, heads: tuple[int, int], tokens: int,
    bias: bool, dtype: torch.dtype, more: dict[str, int], joined: bool,
) -> None:  # fmt: skip
    """Any form, layout, sizes and type, in tiles that end within the result."""
    torch.manual_seed(0)
    module = Projections(form, layout, head=head, heads=heads, bias=bias, dtype=dtype)
    given_tensors = inputs(module, tokens)
    found = compiled(module, *given_tensors)
    wide_enough = {"BLOCK_N": max(16, head)} | more
    box.check(text_of(found[-1 if joined else 0], wide_enough), module, given_tensors)


def test_the_same_call_has_the_same_bits(box: Sandboxed) -> None:
    module = Projections("halves", "batch", dtype=torch.bfloat16)
    given_tensors = inputs(module, 19)
    text = text_of(compiled(module, *given_tensors)[-1], {"PERSIST": 3, "DESCRIPTORS": 2})
    one, two = (box.call(text, module, given_tensors) for _ in range(2))
    assert all(map(torch.equal, one, two))


@pytest.mark.quick(1)
def test_the_judge_accepts_rotated_heads() -> None:
    module = Projections("halves", "heads")
    loaded = problem_from_module(module.eval(), inputs(module, 9))
    captured = capture(loaded)
    found = partitions(loaded, captured, "triton")[-1]
    assert_accepted(loaded, captured, text_of(found, {"PERSIST": 3}))


def test_the_text_of_rotated_heads() -> None:
    module = Projections("halves", "batch", head=32, heads=(4, 2), dtype=torch.bfloat16)
    found = compiled(module, *inputs(module, 9))[-1]
    text = text_of(found, {"BLOCK_N": 64, "PERSIST": 132, "DESCRIPTORS": 2})
    path = GOLDEN / "rotated_heads.py"
    if os.environ.get("AGENTKERNEL_RECORD"):
        path.write_text(text)
    assert text == path.read_text()


class Shifted(Projections):
    """What meets is no pair of a head: the next head's element, or one further on."""

    def __init__(self, by: int) -> None:
        super().__init__("halves", "tokens")
        self.by = by

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
        y = self.layers[0](x).unflatten(-1, (-1, self.head))
        return [y * cos[:, None] + y.roll(self.by, -1) * sin[:, None]]


class Rows(Projections):
    """Rows meet, not columns."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
        y = self.layers[0](x).unflatten(0, (-1, 2))
        return [torch.stack((-y[:, 1], y[:, 0]), 1)]


@pytest.mark.parametrize("module", [Shifted(1), Shifted(3), Rows("halves", "tokens")], ids=str)
def test_what_meets_otherwise_is_stored(box: Sandboxed, module: Projections) -> None:
    given_tensors = inputs(module, 8)
    found = compiled(module, *given_tensors)[0]
    assert all(step.rotation is None for step in products(found))
    box.check(text_of(found, {}), module, given_tensors)


def test_a_head_wider_than_any_tile_is_stored() -> None:
    module = Projections("halves", "tokens", head=256, heads=(1, 1))
    found = compiled(module, *inputs(module, 8))[0]
    assert all(step.rotation is None for step in products(found))


def test_its_tiles_hold_whole_heads_and_all_of_k() -> None:
    module = Projections("halves", "tokens", head=128, heads=(32, 8), inside=4096,
                         dtype=torch.bfloat16)  # fmt: skip
    with torch.device("meta"):
        given_tensors = inputs(module, 4096)
    found = compiled(module, *given_tensors)[-1]
    (step,) = found.partition.steps
    for name, target in load_targets().items():
        setting = Setting(found.symbols, target, "strict", lambda _: None, 20)
        schedules = provider_of(step).schedules(step, setting)
        assert schedules, name
        assert all(item["BLOCK_N"] % 128 == 0 and item["SPLIT_K"] == 1 for item in schedules)
    narrow = {**TILE, "SPLIT_K": 4}
    rotations = [item.rotation for item in products(found)]
    (wide_tile,) = rotated_schedules([narrow], rotations, "bfloat16", load_targets()["h200"])
    assert (wide_tile["BLOCK_N"], wide_tile["SPLIT_K"]) == (128, 1)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["h100-sxm", "h200"])
@pytest.mark.parametrize("form", ["halves", "neighbours"])
def test_nothing_is_spilled_at_the_sizes_of_a_model(form: str, target: str) -> None:
    module = Projections(form, "batch", head=128, heads=(32, 8), inside=4096,
                         dtype=torch.bfloat16)  # fmt: skip
    found = compiled(module, *inputs(module, 4096, batch=1))[-1]
    (step,) = found.partition.steps
    setting = Setting(found.symbols, load_targets()[target], "strict", lambda _: None)
    for schedule in provider_of(step).schedules(step, setting)[:2]:
        cost = cost_of(found.write({step: schedule}).text)
        assert cost.stack_bytes == 0
        assert cost.shared_bytes <= 1024 * setting.target.shared_kb_per_block.value


def cost_of(text: str) -> Cost:
    """The one kernel of a drop-in, compiled for sm_90 with the constants of its launch."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    (launch,) = [
        node for node in calls
        if isinstance(node.func, ast.Subscript) and ast.unparse(node.func.value).endswith("kernel")
    ]  # fmt: skip
    given_values = {item.arg: ast.unparse(item.value) for item in launch.keywords}
    options = {name: int(given_values.pop(name)) for name in ("num_warps", "num_stages")}
    constants = {
        name: True if "described" in value else ast.literal_eval(value)
        for name, value in given_values.items()
    }
    kernel = getattr(imported(text, head=""), ast.unparse(launch.func.value))  # type: ignore[attr-defined]
    signature = {
        name: "constexpr" if name in constants else "*bf16" if name.endswith("_ptr") else "i32"
        for name in kernel.arg_names
    }
    return compiled_cost(kernel, signature, constants, options)
