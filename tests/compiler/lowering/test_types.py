"""Arithmetic of truth values, narrow integers and signed zeros is eager's."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.pipeline import Compiled
from tests.compiler.emitted_ttir import ttir_of
from tests.compiler.forms import compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed

Tensor = torch.Tensor
KINDS = (torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16,
         torch.float32)  # fmt: skip
WHOLE = KINDS[:6]
STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "where": lambda x, y: torch.where(x > y, x, y),
    "eq": torch.eq,
    "le": torch.le,
    "one more": lambda x, y: x + 1,
    "times 77": lambda x, y: x * 77,
    "or true": lambda x, y: x + True,
    "more than 300": lambda x, y: x + 300,
    "minus": lambda x, y: x * -1,
    "half": lambda x, y: x * 0.5,
    "below 40": lambda x, y: (x < 40) & (y > 0),
    "between": lambda x, y: x.clamp(0, 40),
    "bits": lambda x, y: (x > 0) ^ (y > 0),
    "sum": lambda x, y: x.sum(1, keepdim=True) + y,
    "largest": lambda x, y: x.amax(1, keepdim=True) + y,
    "filled": lambda x, y: x.masked_fill(y > 0, 1),
}
COMMON = settings(
    deadline=None, database=None, phases=[Phase.generate], derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip


class Steps(nn.Module):
    """Each step on what the one before left, beside an input."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        found = [x]
        for name in self.names:
            found.append(STEPS[name](found[-1], y))
        return tuple(found[1:])


class Each(nn.Module):
    """Every function of the same input."""

    def __init__(self, *functions: Callable[..., Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) for function in self.functions)


def values(kind: torch.dtype, seed: int) -> Tensor:
    """Every value alike, the largest and the smallest among them."""
    generator = torch.Generator().manual_seed(seed)
    if kind.is_floating_point:
        return (3 * torch.randn(5, 19, generator=generator)).to(kind)
    if kind == torch.bool:
        return torch.rand(5, 19, generator=generator) > 0.5
    ends = torch.iinfo(kind)
    found = torch.randint(ends.min, ends.max, (5, 19), generator=generator, dtype=kind)
    found[0, :2] = torch.tensor([ends.min, ends.max])
    return found


def written(module: nn.Module, *inputs: Tensor) -> tuple[Compiled, str]:
    compiled = compiled_graph(module, inputs)
    return compiled, compiled.write(small(compiled, "single")).text


def _as_eager(box: Sandboxed, names: tuple[str, ...], x: Tensor, y: Tensor) -> None:
    module = Steps(*names)
    wanted = module(x, y)
    _, text = written(module, x, y)
    found = box.call(text, module, (x, y))
    for name, ours, theirs in zip(names, found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        close = {"rtol": 2e-3, "atol": 1e-3} if theirs.dtype == torch.float16 else {}
        assert torch.allclose(ours, theirs, equal_nan=True, **close), f"{name}\n{text}"


@st.composite
def chains(draw: st.DrawFn, most: int) -> tuple[tuple[str, ...], Tensor, Tensor]:
    names = draw(st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=most))
    kinds = draw(st.sampled_from(WHOLE)), draw(st.sampled_from(KINDS))
    return tuple(names), values(kinds[0], 1), values(kinds[1], 2)


def _runs(names: tuple[str, ...], x: Tensor, y: Tensor) -> bool:
    """Whether eager does it, and without a float too large for fp16 or an inexact one in it."""
    try:
        found = Steps(*names)(x, y)
    except (RuntimeError, TypeError):
        return False
    return all(item.dtype not in (torch.float16,) or item.isfinite().all() for item in found)


@settings(COMMON, max_examples=4)
@given(case=chains(3))
def test_integers_are_eagers(box: Sandboxed, case: tuple[tuple[str, ...], Tensor, Tensor]) -> None:
    if _runs(*case):
        _as_eager(box, *case)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int16], ids=str)
@pytest.mark.parametrize("form", ["single", "persistent"])
def test_what_is_added_to_an_extremum_of_few_bits_wraps_around(
    box: Sandboxed, kind: torch.dtype, form: str
) -> None:
    """Triton's own extrema have 32 bits."""
    x, y = values(kind, 1), values(kind, 2)
    module = Steps("largest", "between", "largest", "between")
    compiled = compiled_graph(module, (x, y))
    text = compiled.write(small(compiled, form)).text
    for ours, theirs in zip(box.call(text, module, (x, y)), module(x, y), strict=True):
        assert torch.equal(ours, theirs), text


@pytest.mark.slow
@settings(COMMON, max_examples=300)
@given(case=chains(5))
def test_many_chains_of_integers_are_eagers(
    box: Sandboxed, case: tuple[tuple[str, ...], Tensor, Tensor]
) -> None:
    if _runs(*case):
        _as_eager(box, *case)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (torch.bool, ("add", "mul", "or true", "one more")),
        (torch.int8, ("more than 300", "times 77", "add")),
        (torch.uint8, ("minus", "more than 300")),
    ],
    ids=str,
)
def test_what_wraps_wraps_as_eager(
    box: Sandboxed, kind: torch.dtype, names: tuple[str, ...]
) -> None:
    _as_eager(box, names, values(kind, 1), values(kind, 2))


def test_no_kernel_adds_single_bits() -> None:
    """One bit has no carry: what the interpreter forgives would be an exclusive or on a GPU."""
    x, y = values(torch.bool, 1), values(torch.bool, 2)
    _, text = written(Steps("add", "or true", "mul", "maximum", "sum"), x, y)
    (code,) = ttir_of(text, (x, y))
    assert not re.search(r"arith\.(add|sub)i .*i1>? loc|arith\.max[su]i .*xi1>", code), code


ZEROS = torch.tensor([[-0.0, 0.0, 0.5, -0.5, float("inf"), float("-inf"), float("nan"), -3.0]])


def test_signs_of_zero_and_infinity_are_eagers(box: Sandboxed) -> None:
    module = Each(
        torch.tanh, lambda x: torch.reciprocal(torch.tanh(x)), torch.neg, lambda x: 1.0 / x,
        lambda x: x**1.5, lambda x: x**2.25, F.silu, lambda x: x**-3, torch.expm1, torch.sin,
        lambda x: x * 1.0, lambda x: torch.where(x > 1, x, -0.0), F.leaky_relu, torch.floor,
        torch.ceil, F.softsign, lambda x: torch.full_like(x, -0.0) * x.abs(),
    )  # fmt: skip
    _, text = written(module, ZEROS)
    found = box.call(text, module, (ZEROS,))
    for place, (ours, theirs) in enumerate(zip(found, module(ZEROS), strict=True)):
        known = ~theirs.isnan()
        assert torch.equal(ours.isnan(), theirs.isnan()), f"{place}\n{text}"
        assert torch.equal(ours.signbit()[known], theirs.signbit()[known]), f"{place}\n{text}"
        assert torch.allclose(ours[known], theirs[known], rtol=1e-5), f"{place}\n{text}"


MOVED: dict[str, Callable[[Tensor], Tensor]] = {
    "turned": lambda x: x.transpose(1, 2).contiguous(),
    "rolled": lambda x: x.roll(1, 1),
    "picked": lambda x: x[:, [2, 0, 1]],
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("how", MOVED)
def test_what_is_only_moved_stays_in_its_type(box: Sandboxed, how: str, dtype: torch.dtype) -> None:
    """In fp32 it took twice the shared memory on its way through the tile."""
    module, x = Each(MOVED[how]), values(torch.float32, 3).to(dtype)[None]
    _, text = written(module, x)
    assert "float32" not in text.partition("@triton.jit")[2].partition("def formula")[0]
    (found,) = box.call(text, module, (x,))
    assert torch.equal(found, module(x)[0])


def test_what_is_computed_with_beside_a_move_is_not_in_16_bits() -> None:
    for step in (lambda x: x.transpose(1, 2) * 3.0, lambda x: torch.where(x > 0.3, x, -x)):
        _, text = written(Each(step), torch.randn(1, 3, 7).half())
        assert "tl.float32" in text


def test_a_way_between_two_values_begins_at_the_nearer_one(box: Sandboxed) -> None:
    """Where the other end is infinite that is the difference between NaN and a number."""
    module = Each(
        lambda x: torch.lerp(x, x.flip(0), 1.0),
        lambda x: torch.lerp(x, x.flip(0), 0.25),
        lambda x: torch.lerp(x, x.flip(0), torch.sigmoid(x)),
    )
    x = values(torch.float32, 3)
    x[0, :2] = torch.tensor([torch.inf, -torch.inf])
    _, text = written(module, x)
    for ours, theirs in zip(box.call(text, module, (x,)), module(x), strict=True):
        assert torch.allclose(ours, theirs, equal_nan=True, atol=1e-6), text


def test_fp64_is_computed_in_fp64(box: Sandboxed) -> None:
    module = Each(torch.sigmoid, F.silu, lambda x: x.abs().sqrt(), torch.exp)
    x = torch.linspace(-5.0, 5.0, 40, dtype=torch.float64).reshape(2, 20)
    _, text = written(module, x)
    for ours, theirs in zip(box.call(text, module, (x,)), module(x), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-14, atol=0.0), text


def test_the_largest_and_the_smallest_of_truth_values_are_eagers(box: Sandboxed) -> None:
    module = Each(
        lambda x: (x > 0).amax(1), lambda x: (x > 0).amin(1), lambda x: (x > 1).max(0).values
    )
    x = torch.tensor([[1.0, -1.0, 2.0], [-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]])
    _, text = written(module, x)
    for ours, theirs in zip(box.call(text, module, (x,)), module(x), strict=True):
        assert torch.equal(ours, theirs), text


def test_tensors_that_forward_makes_of_numbers_are_written_out(box: Sandboxed) -> None:
    module = Each(
        lambda x: torch.max(x, torch.tensor(float("-inf"))) * torch.tensor(2),
        lambda x: x * torch.tensor([0.5, 2.0, -1.0], device=x.device),
    )
    x = torch.randn(5, 3)
    _, text = written(module, x)
    for ours, theirs in zip(box.call(text, module, (x,)), module(x), strict=True):
        assert torch.equal(ours, theirs), text


NARROWINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "float": lambda x: x.float(),
    "double": lambda x: x.double(),
    "int32": lambda x: x.clamp(-2e9, 2e9).to(torch.int32),
    "int8": lambda x: x.clamp(-1000, 1000).to(torch.int8),
    "uint8": lambda x: x.clamp(-1000, 1000).to(torch.uint8),
    "type of": lambda x: x.to(torch.ones(1, dtype=torch.float16)),
    "negated": torch.neg,
    "transposed": lambda x: x.t(),
    "row maximum": lambda x: x.amax(1, keepdim=True),
}
"""Casts, and what has no rounding of its own."""


class Cast(nn.Module):
    """Every value on the way through the casts."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = [x]
        for name in self.names:
            found.append(NARROWINGS[name](found[-1]))
        return tuple(found[1:])


def _casts_as_eager(box: Sandboxed, names: tuple[str, ...], x: Tensor) -> None:
    module = Cast(*names)
    _, text = written(module, x)
    for name, ours, theirs in zip(names, box.call(text, module, (x,)), module(x), strict=True):
        assert ours.dtype == theirs.dtype
        # NaN has many bits: where it is, and all others' bits.
        assert torch.equal(ours.isnan(), theirs.isnan()), f"{name}\n{text}"
        assert torch.equal(ours.nan_to_num(0.5), theirs.nan_to_num(0.5)), f"{name}\n{text}"


def ranged(kind: torch.dtype) -> Tensor:
    """Values of every size, beyond the range of fp16 and below its least, and at its ties."""
    generator = torch.Generator().manual_seed(7)
    found = torch.randn(6, 19, generator=generator) * torch.logspace(-9, 6, 19)
    found[0, :9] = torch.tensor(
        [65519.0, 65520.0, -65520.0, 1e38, 1 + 2**-11, 1 + 3 * 2**-11, 2**-25, -0.0, 2**-24.5]
    )
    return found.to(kind)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (torch.float32, ("half", "float", "negated")),
        (torch.float32, ("bfloat16", "float", "half", "float")),
        (torch.float32, ("half", "row maximum", "float")),
        (torch.float64, ("half", "double", "bfloat16", "double")),
        (torch.bfloat16, ("half", "float", "uint8", "half")),
        (torch.float32, ("int32", "half", "float", "int8", "bfloat16")),
    ],
    ids=str,
)
def test_a_cast_to_fewer_bits_drops_digits_and_range(
    box: Sandboxed, kind: torch.dtype, names: tuple[str, ...]
) -> None:
    _casts_as_eager(box, names, ranged(kind))


@settings(COMMON, max_examples=6)
@given(
    names=st.lists(st.sampled_from([*NARROWINGS]), min_size=1, max_size=5).map(tuple),
    kind=st.sampled_from((torch.float32, torch.float16, torch.bfloat16, torch.float64)),
)
def test_casts_are_eagers_bits(box: Sandboxed, names: tuple[str, ...], kind: torch.dtype) -> None:
    _casts_as_eager(box, names, ranged(kind))


def test_a_cast_that_is_stored_is_written_once() -> None:
    """The store rounds by itself; nothing is rounded twice, nor what was computed as fp16."""
    _, text = written(Each(lambda x: (x * 2).half()), ZEROS)
    assert text.count(".to(tl.float16)") == 1
    assert ".to(tl.float32)" not in text
    _, text = written(Each(lambda x: (x * 2 + 1).float()), ZEROS.half())
    assert ".to(tl.float16)" not in text
