"""Attention, named or written out, becomes one kernel that the judge accepts."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.compiler.attention import attention_facts, find_steps
from agentkernel.compiler.attention_splits import split_schedules
from agentkernel.compiler.drop_in.wrapper import AnySchedule
from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.forms import small
from tests.compiler.sandboxed_drop_in import Sandboxed

TILE = {"BLOCK_T": 16, "BLOCK_S": 32, "num_warps": 4, "num_stages": 2}
SPLIT = {"BLOCK_T": 16, "BLOCK_S": 16, "num_warps": 2, "num_stages": 2, "PROGRAMS": 24}
PRODUCT = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 4, "SPLIT_K": 1,
           "num_warps": 4, "num_stages": 2}  # fmt: skip
HOPPER = load_targets()["h200"]
Tensors = tuple[torch.Tensor, ...]


class Written(nn.Module):
    """As a textbook has it, the scale computed from the shape."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1) @ v


class Added(nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
    ) -> torch.Tensor:
        return torch.softmax(q @ k.mT / 4.0 + m, dim=-1) @ v


class Cast(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * 0.2
        return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1, torch.float32).to(q.dtype), v)


class Inside(nn.Module):
    """Heads behind tokens, as most projections yield them; other sizes for each operand."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.2
        return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


class Named(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, **self.options)  # type: ignore[arg-type]


class Filled(nn.Module):
    """With a low number for what is masked, as models that must not yield NaN do."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
    ) -> torch.Tensor:
        scores = (q @ k.mT * 0.2).masked_fill(m, torch.finfo(q.dtype).min)
        return torch.softmax(scores, dim=-1) @ v


class Distant(nn.Module):
    """With linear biases: what is farther counts less, and what comes later not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, 3.0)[:, None, None])

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        place = torch.arange(q.shape[2], device=q.device)
        distance = place[None, :] - place[:, None]
        scores = q @ k.mT / 4.0 + self.slopes * distance
        return torch.softmax(scores.masked_fill(distance > 0, float("-inf")), dim=-1) @ v


class Kept(nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
    ) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)


class Block(nn.Module):
    """Causal self-attention between two linear layers, with its mask as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.register_buffer("seen", torch.ones(64, 64).tril())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, 2, 16).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)) * 0.25
        scores = scores.masked_fill(self.seen[:tokens, :tokens] == 0, float("-inf"))
        mixed = F.dropout(F.softmax(scores, dim=-1), 0.1, training=False) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Decode(nn.Module):
    """One token after the others, scores scaled in fp32, as `level3/decode_step` has it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.out = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.to(torch.float16)

    def forward(self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (2, -1)).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.shape[-1])
        mixed = torch.softmax(scores, dim=-1).to(x.dtype) @ v
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Repeated(nn.Module):
    """Heads of keys that several of queries share, and a mask, as Hugging Face's eager models."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
    ) -> torch.Tensor:
        k, v = (
            item[:, :, None, :, :].expand(-1, -1, 2, -1, -1).reshape(q.shape[:2] + item.shape[2:])
            for item in (k, v)
        )
        weights = torch.matmul(q, k.transpose(2, 3)) * 0.25 + m[:, :, :, : k.shape[-2]]
        weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(F.dropout(weights, 0.1, self.training), v).transpose(1, 2).contiguous()


class Widened(nn.Module):
    """Products in fp32 of what is half that wide, scaled before and behind the mask."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
    ) -> torch.Tensor:
        scores = (q.float() * 0.5) @ (k.float() / 2).mT
        weights = scores.masked_fill(m, float("-inf")).mul(0.8).softmax(-1)
        return weights.to(v.dtype) @ v


class Turned(nn.Module):
    """Keys that come transposed."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k, dim=-1) @ v


def heads(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensors:
    torch.manual_seed(0)
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


LONG, MANY = (2, 2, 40, 20), (2, 4, 40, 20)
CASES: dict[str, Callable[[], tuple[nn.Module, Tensors]]] = {
    "written": lambda: (Written(), heads(LONG, LONG, LONG)),
    "turned": lambda: (Turned(), heads(LONG, (2, 2, 20, 40), LONG)),
    "written_bf16": lambda: (Written(), heads(LONG, LONG, LONG, dtype=torch.bfloat16)),
    "cast": lambda: (Cast(), heads(LONG, LONG, LONG, dtype=torch.float16)),
    "three": lambda: (Written(), heads(LONG[1:], LONG[1:], LONG[1:])),
    "added": lambda: (Added(), heads(LONG, LONG, LONG, (2, 1, 40, 40))),
    "filled": lambda: (
        Filled(),
        (*heads(LONG, LONG, LONG), torch.rand(40, 40) < torch.rand(40, 1) * 1.5),
    ),
    "filled_bf16": lambda: (
        Filled(),
        (*heads(LONG, LONG, LONG, dtype=torch.bfloat16), torch.rand(40, 40) < 0.7),
    ),
    "distant": lambda: (Distant(), heads(LONG, LONG, LONG)),
    "kept": lambda: (Kept(), (*heads(LONG, LONG, LONG), torch.rand(40, 40) < 0.7)),
    "inside": lambda: (Inside(), heads((2, 40, 3, 20), (2, 33, 3, 20), (2, 33, 3, 24))),
    "named": lambda: (Named(), heads(LONG, LONG, LONG)),
    "causal": lambda: (Named(is_causal=True), heads(LONG, LONG, LONG)),
    "scaled": lambda: (Named(scale=0.3), heads(LONG, LONG, LONG, dtype=torch.float16)),
    "grouped": lambda: (Named(enable_gqa=True), heads(MANY, LONG, LONG)),
    "decode": lambda: (
        Decode(),
        heads((2, 1, 32), (2, 2, 150, 16), (2, 2, 150, 16), dtype=torch.float16),
    ),
    "repeated": lambda: (
        Repeated(),
        heads((2, 4, 1, 20), (2, 2, 70, 20), (2, 2, 70, 20), (2, 1, 1, 70), dtype=torch.bfloat16),
    ),
    "repeated_many": lambda: (
        Repeated(),
        heads((2, 4, 40, 20), LONG, LONG, (2, 1, 40, 40), dtype=torch.bfloat16),
    ),
    "widened": lambda: (
        Widened(),
        (*heads(LONG, LONG, LONG, dtype=torch.float16), torch.rand(40, 40) < 0.7),
    ),
    "block": lambda: (Block(), (torch.randn(2, 40, 32),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_every_form_of_attention_passes_the_judge(name: str) -> None:
    module, inputs = CASES[name]()
    loaded = problem_from_module(module.eval(), inputs)
    captured = capture(loaded)
    compiled = partitions(loaded, captured, "triton")[0]
    found = find_steps(compiled.partition.steps)
    assert len(found) == 1
    facts = attention_facts(found[0], compiled.symbols)
    form = SPLIT if split_schedules(facts, HOPPER) else TILE
    assert (form is SPLIT) == (facts.queries == 1)
    chosen: dict[object, AnySchedule] = {}
    for step in compiled.partition.steps:
        if isinstance(step, Region):
            chosen[step] = Schedule("tile", 16, 8) if step.rows else Schedule("flat", 256)
        else:
            chosen[step] = form if step in found else PRODUCT
    source = compiled.write(chosen)
    settings = JudgeSettings(seed=0, policy="triton", seeds=1, budget_s=2.0)
    verdict = judge(loaded, captured, source.text, settings)
    assert verdict.accepted, f"{verdict.failure}\n{source.text}"


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.float32, {"is_causal": True}),
        (torch.float16, {}),
        (torch.bfloat16, {"scale": 0.1}),
    ],
)
def test_heads_too_wide_for_one_kernel_have_two_products(
    box: Sandboxed, dtype: torch.dtype, options: dict[str, object]
) -> None:
    module, wide = Named(**options), (1, 2, 9, 260)
    inputs = tuple(heads(wide, wide, wide, dtype=dtype))
    loaded = problem_from_module(module, inputs)
    apart = partitions(loaded, capture(loaded), "mixed")[-1]
    assert not find_steps(apart.partition.steps)
    box.check(apart.write(small(apart, "looped")).text, module, inputs)


def test_the_written_form_has_a_rival() -> None:
    loaded = problem_from_module(*CASES["added"]())
    choices = partitions(loaded, capture(loaded), "mixed")
    assert [len(find_steps(item.partition.steps)) for item in choices] == [1, 0]
