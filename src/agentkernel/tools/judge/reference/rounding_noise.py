"""Rounding noise: honest evaluations of a reference that round otherwise.

What another order of a sum, a fused multiply-add, another tile or another library function does
to a result is drawn as noise at each operator (Monte Carlo arithmetic, Parker 1997). An
elementwise result moves by a rounding, or by two ulp where it is no single IEEE operation. A sum
of K terms moves as one chain of them does, of at most 4,096 at a time: the rms error of a chain
is u / sqrt(3) * sqrt(sum of the squares of its partial sums), and the expected square of the
k-th partial sum follows from the total S and the variance v of the terms (a Brownian bridge): (k
/ K)^2 S^2 + k (K - k) / K v, which sums to K S^2 / 3 + K^2 v / 6.

Norms, softmax and losses are taken apart first, so that a mean or a maximum inside them is a
reduction like any other; so is GELU, whose 1 + tanh (or erf) leaves nothing right of a negative
tail, in fp64 neither. Where a grid is sampled its places move by the rounding of a coordinate.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agentkernel.tools.judge.cases.layouts import copied
from agentkernel.tools.judge.reference.attention import NarrowWeights
from agentkernel.tools.judge.reference.oracle import as_float64, in_float64, value_as_float64

if TYPE_CHECKING:
    from torch import nn

CHAIN = 4096
"""Terms that an honest evaluation adds one after the other before it begins a new sum."""
LONG_CHAINS = 1 << 33
"""Multiplications of a product from which a chain term after term takes longer than a probe."""
AT_ONCE = 1 << 24
"""Elements of which running sums are held at a time."""
ROUNDED = {"add", "sub", "rsub", "mul", "addcmul", "lerp", "_to_copy", "copy"}
"""One rounding of the result."""
EXACT_RESULTS = {
    *("abs", "amax", "amin", "max", "min", "maximum", "minimum", "relu", "neg", "clamp", "where"),
    *(
        "clamp_min",
        "clamp_max",
        "hardtanh",
        "threshold",
        "cat",
        "stack",
        "clone",
        "index",
        "gather",
    ),
    *(
        "index_select",
        "embedding",
        "flip",
        "roll",
        "sort",
        "topk",
        "sign",
        "floor",
        "ceil",
        "round",
    ),
    *("trunc", "frac", "fill", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "eye"),
    *("full_like", "empty", "empty_like", "arange", "linspace", "new_zeros", "new_ones", "tril"),
    *("new_full", "new_empty", "triu", "constant_pad_nd", "repeat", "masked_fill", "scatter"),
    *("masked_select", "index_copy", "index_put", "index_fill", "masked_scatter", "cummax", "rand"),
    *("cummin", "kthvalue", "median", "mode", "max_pool2d_with_indices", "nonzero", "randn_like"),
    *("max_pool3d_with_indices", "reflection_pad1d", "reflection_pad2d", "replication_pad1d"),
    *(
        "replication_pad2d",
        "unfold",
        "im2col",
        "take",
        "logical_not",
        "nan_to_num",
        "scalar_tensor",
    ),
    *("upsample_nearest1d", "upsample_nearest2d", "lift_fresh_copy", "lift_fresh", "bernoulli"),
    *("pixel_shuffle", "slice_scatter", "select_scatter", "leaky_relu", "prelu", "dropout", "item"),
    *("native_dropout", "rand_like", "randn", "randperm", "empty_strided", "copysign", "ldexp"),
    *("_unsafe_view", "_reshape_copy", "split_with_sizes_copy", "diag_embed", "argmax", "argmin"),
}
"""What copies, selects or compares, or rounds to whole numbers: nothing is lost in it."""
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "_addmm_activation"}
SAMPLED = {"grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler"}
LINEAR = {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "col2im"}
LINEAR |= {"index_add", "scatter_add", "scatter_reduce", "upsample_linear1d"}
LINEAR |= {"upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"}
"""Sums of few terms, whose rounding is as large as the same sum of their sizes."""
CHAINED_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Products that it makes term after term as well, and where their operands begin."""
SATURATING = ("tanh", "erf")
"""Where they end at 1 or -1, a move that rounding takes back would say that 1 + tanh is exact."""
CHAINED = ("sum", "mean", "var", "var_mean", "linalg_vector_norm")
"""Reductions that the first evaluation makes term after term."""
SPLIT = (
    *("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit"),
    *("_native_batch_norm_legit_no_training", "cudnn_batch_norm", "_softmax", "_log_softmax"),
    *("_safe_softmax", "mse_loss", "smooth_l1_loss", "huber_loss", "nll_loss_forward", "logsumexp"),
    *("nll_loss2d_forward", "binary_cross_entropy", "soft_margin_loss", "_fused_rms_norm"),
    *("_weight_norm_interface", "_euclidean_dist", "std", "std_mean", "addmv", "multi_margin_loss"),
    "gelu",
)
TF32_BITS = 13
"""Of the 23 bits of an fp32 mantissa TF32 leaves 10."""


class RoundingNoise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every result inside moves as far as another honest evaluation might, `times` over. `rounds`
    holds the kinds of products ("conv", "mm") whose fp32 operands are rounded to TF32 as well."""

    def __init__(self, seed: int, rounds: frozenset[str] = frozenset(), times: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._rounds = rounds
        self._times = times
        self._generators: dict[torch.device, torch.Generator] = {}

    @contextlib.contextmanager
    def by_definition(self) -> Iterator[None]:
        """Attention inside is made of operators that this mode sees."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH), NarrowWeights(self._seed, self._times):
            yield

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, or what it is made of, and move its result."""
        kwargs = dict(kwargs or {})
        parts = _parts().get(func)
        if parts is not None:
            with self:
                return parts(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        args = self._operands(name, args)
        if name in SAMPLED:
            args = [args[0], self._places(args[1]), *args[2:]]
        result = func(*args, **kwargs)
        name = name.rstrip("_") if func._schema.is_mutable else name
        if name not in EXACT_RESULTS and not _is_view(func):
            for number, value in enumerate(result if isinstance(result, tuple) else (result,)):
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    self._move(name, func, args, kwargs, value, number)
        return result

    def _operands(self, name: str, args: Sequence[object]) -> Sequence[object]:
        """`args`, with fp32 operands of a product in TF32 where that is asked for: by turns to the
        nearest value and truncated; more than once over, moved so many times as far, and from the
        third draw on up or down as drawn: a plan that folds a norm into its weights rounds other
        numbers. That is further off than either, and bounds no whole output."""
        kind = "conv" if name == "convolution" else "mm" if name in PRODUCTS else ""
        if kind not in self._rounds:
            return args
        return [
            self._further(item, self._in_tf32(item))
            if isinstance(item, torch.Tensor) and item.dtype == torch.float32 and item.ndim > 1
            else item
            for item in args
        ]

    def _in_tf32(self, value: torch.Tensor) -> torch.Tensor:
        if self._seed < 2 or self._times == 1:
            return in_tf32(value, nearest=self._seed % 2 == 0)
        drawn = self._noise(value, normal=False) * (1 << TF32_BITS)
        return _cut(value, drawn.to(torch.int32))

    def _places(self, grid: torch.Tensor) -> torch.Tensor:
        """Places on a grid from -1 to 1, off by what the rounding of their coordinates comes to:
        (place + 1) * size / 2 and its like are rounded two or three times."""
        step = self._times * torch.finfo(grid.dtype).eps
        moved = step * (grid.abs() + 1) * (2 * self._noise(grid, normal=False) - 1)
        return (grid + moved).to(grid.dtype)

    def _move(
        self,
        name: str,
        func: Callable[..., object],
        args: Sequence[object],
        kwargs: dict[str, object],
        value: torch.Tensor,
        number: int,
    ) -> None:
        """Move `value`, output `number` of `func`, in place."""
        if self._seed == 0 and name in CHAINED and _reduces(args):
            chained = _chained(name, func, args, kwargs, value, number)
            value.copy_(self._further(value, chained))
            return
        if self._seed == 0 and name in CHAINED_PRODUCTS:
            value.add_(_chain_error(name, args).to(value.dtype), alpha=self._times)
            return
        deviation = self._deviation(name, func, args, kwargs, value, number)
        if deviation is None:
            ulps = 0.5 if name in ROUNDED else 2.0
            step = self._times * ulps * torch.finfo(value.dtype).eps
            noise = 2 * self._noise(value, normal=False) - 1
            if name in SATURATING:
                noise = torch.where(value.abs() == 1, noise.sign(), noise)
            moved = _wide(value) * (1 + step * noise)
        else:
            off = torch.nan_to_num(deviation, 0.0, 0.0, 0.0) * self._noise(value, normal=True)
            off *= self._times
            if name in ("var", "var_mean") and number == 0:
                off += self._mean_error(func, args, kwargs, value).square_()
            moved = _wide(value) + (
                off.cumsum(_dim(func, args, kwargs)) if name == "cumsum" else off
            )
        if not value._is_view() or value.is_contiguous():
            value.copy_(torch.where(value.isfinite(), moved.to(value.dtype), value))

    def _deviation(
        self,
        name: str,
        func: Callable[..., object],
        args: Sequence[object],
        kwargs: dict[str, object],
        value: torch.Tensor,
        number: int,
    ) -> torch.Tensor | None:
        """The rms error of a reduction or product; None for what is elementwise."""
        unit = _unit(value.dtype)
        if name in PRODUCTS or name == "convolution":
            count, squares = _squares(name, func, args, kwargs)
            return unit * chain(_wide(value), squares, count)
        if name in LINEAR:
            return unit * _wide(cast("torch.Tensor", func(*_sizes(args), **kwargs)).abs())
        given = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if given is None or given.numel() == 0 or not given.is_floating_point():
            return None
        asked = (func, args, kwargs, value)
        if name in ("sum", "nansum", "mean"):
            return unit * _sum_error(given, *asked, mean=name == "mean")
        if name == "var_mean" and number == 1:
            return unit * _sum_error(given, *asked, mean=True)
        if name in ("var", "var_mean", "linalg_vector_norm"):
            return (
                unit
                * _wide(value).abs()
                * _relative_error(given, *asked, name != "linalg_vector_norm")
            )
        if name in ("prod", "cumprod"):
            return unit * _wide(value).abs() * math.sqrt(given.numel() / 3)
        if name == "cumsum":
            return unit * _wide(value).abs() / math.sqrt(3)
        return None

    def _mean_error(
        self,
        func: Callable[..., object],
        args: Sequence[object],
        kwargs: dict[str, object],
        value: torch.Tensor,
    ) -> torch.Tensor:
        """A draw of how far off the mean is, which adds its square to a variance."""
        given = cast("torch.Tensor", args[0])
        deviation = self._times * _sum_error(given, func, args, kwargs, value, mean=True)
        return _unit(value.dtype) * deviation * self._noise(value, normal=True)

    def _further(self, value: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        """`value` after it went to `moved`, and so many times as far."""
        if self._times == 1:
            return moved
        further = _wide(value) + self._times * (_wide(moved) - _wide(value))
        return torch.where(further.isfinite(), further.to(value.dtype), moved)

    def _noise(self, like: torch.Tensor, *, normal: bool) -> torch.Tensor:
        """Standard normal values, or uniform ones from 0 to 1."""
        if like.device not in self._generators:
            generator = torch.Generator(device=like.device)
            self._generators[like.device] = generator.manual_seed(7 + 104_729 * self._seed)
        generator = self._generators[like.device]
        draw = torch.randn if normal else torch.rand
        dtype = _wide(like.new_empty(0)).dtype
        return draw(like.shape, generator=generator, dtype=dtype, device=like.device)


def chain(total: torch.Tensor, squares: torch.Tensor, count: int) -> torch.Tensor:
    """The rms error, in units of half an ulp, of sums of `count` terms in chains of at most
    `CHAIN`, by their totals and the sums of their squares."""
    variance = (squares / count - (total / count).square()).clamp_(min=0)
    links = min(count, CHAIN)
    if links == count:
        found = total.square().mul_(count / 3).add_(variance, alpha=count**2 / 6)
    else:
        found = variance.mul_(links * count / 2).add_(total.square(), alpha=links**2 / count / 3)
        found.add_(total.square(), alpha=min(count / links, CHAIN) / 3)
    return found.div_(3).sqrt_()


def _sum_error(
    given: torch.Tensor,
    func: Callable[..., object],
    args: Sequence[object],
    kwargs: dict[str, object],
    value: torch.Tensor,
    *,
    mean: bool,
) -> torch.Tensor:
    """The rms error, in units of half an ulp, of sums (means) of `given`: of a chain in the order
    in which the terms lie, or in any order, whichever is larger."""
    rows = torch.nan_to_num(_rows(given, func, args, kwargs), 0.0, 0.0, 0.0)
    count = rows.shape[-1]
    found = chain(rows.sum(-1), rows.square().sum(-1), count)
    partial = torch.zeros_like(found)
    # Many chains at once, but for the memory: a full sum is one row of all there is.
    step = CHAIN * max(1, AT_ONCE // (CHAIN * max(1, found.numel())))
    whole = count - count % CHAIN
    for block in torch.split(rows[..., :whole], step, dim=-1) if whole else ():
        partial += _chains(block).cumsum(-1).square_().sum((-2, -1))
    # Of a chain that is not full the zeros that fill it would count as terms.
    partial += rows[..., whole:].cumsum(-1).square_().sum(-1)
    found = torch.maximum(found, partial.div_(3).sqrt_())
    return found.reshape(value.shape) / (count if mean else 1)


def _reduces(args: Sequence[object]) -> bool:
    given = args[0] if args else None
    return isinstance(given, torch.Tensor) and given.numel() > 0 and given.is_floating_point()


def _chained(
    name: str,
    func: Callable[..., object],
    args: Sequence[object],
    kwargs: dict[str, object],
    value: torch.Tensor,
    number: int,
) -> torch.Tensor:
    """A reduction as one chain in the order in which the terms lie, of at most `CHAIN` at a time:
    where terms are alike their rounding errors are too, which no noise shows."""
    rows = _rows(cast("torch.Tensor", args[0]), func, args, kwargs)
    count = rows.shape[-1]
    named = named_arguments(func, args, kwargs)
    if name == "linalg_vector_norm":
        usual = named.get("ord", 2) == 2
        found = sequential(rows.square()).sqrt() if usual else _wide(value).reshape(-1)
    elif name in ("sum", "mean") or number == 1:
        found = sequential(rows) / (1 if name == "sum" else count)
    else:
        off = rows - (sequential(rows) / count)[..., None]
        correction = named.get("correction", named.get("unbiased", True))
        less = 1.0 if correction is None else float(cast("float", correction))
        found = sequential(off.square()) / max(count - less, 0)
    return found.reshape(value.shape).to(value.dtype)


def sequential(rows: torch.Tensor) -> torch.Tensor:
    """Sums over the last dimension, term after term in chains of `CHAIN`, then over their sums. All
    chains take a step at once: one after the other 82 million terms were as many launches."""
    while rows.shape[-1] > CHAIN:
        filled = torch.nn.functional.pad(rows, (0, -rows.shape[-1] % CHAIN))
        rows = _term_after_term(_chains(filled))
    return _term_after_term(rows)


def _chains(rows: torch.Tensor) -> torch.Tensor:
    """The last dimension, a multiple of `CHAIN`, as chains."""
    return rows.reshape(*rows.shape[:-1], rows.shape[-1] // CHAIN, CHAIN)


def _term_after_term(rows: torch.Tensor) -> torch.Tensor:
    found = torch.zeros_like(rows[..., 0])
    for term in rows.movedim(-1, 0).contiguous():
        found += term
    return found


def _chain_error(name: str, args: Sequence[object]) -> torch.Tensor:
    """How far a product is off for being added up term after term, in the order of the terms: the
    accumulator of a tiled kernel is one chain over all of K, and where terms are alike its
    rounding errors are too (shifted inputs of 9,000 terms: 14 times what chains of 4,096 allow)."""
    first = CHAINED_PRODUCTS[name]
    left, right = (_wide(cast("torch.Tensor", item)) for item in args[first : first + 2])
    chained = _product_as_chain(left, right)
    exact = torch.matmul(left.double(), right.double())
    return torch.nan_to_num(chained.double() - exact, 0.0, 0.0, 0.0).to(chained.dtype)


def _product_as_chain(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left @ right, every element one chain over K. Where that is long, by the GPU's library if its
    product of these sizes is one: term after term, 8192 x 4096 x 128256 takes 20 s on an H200."""
    work = left.numel() * right.shape[-1]
    if left.is_cuda and left.dtype == torch.float32 and work >= LONG_CHAINS:
        left, right = _dense(left), _dense(right)
        shapes = (tuple(left.shape), left.stride(), tuple(right.shape), right.stride())
        if library_adds_in_order(*shapes, left.device):
            return torch.matmul(left, right)
    found = left.new_zeros((*left.shape[:-1], right.shape[-1]))
    for k in range(left.shape[-1]):
        found += left[..., :, k, None] * right[..., k, None, :]
    return found


def _dense(given: torch.Tensor) -> torch.Tensor:
    """Without holes, and aligned as what a probe allocates, by which the library may choose."""
    if not torch.ops.aten.is_non_overlapping_and_dense(given):
        return given.contiguous()
    return given.clone() if given.data_ptr() % 256 else given


@functools.cache
def library_adds_in_order(
    left: tuple[int, ...],
    left_strides: tuple[int, ...],
    right: tuple[int, ...],
    right_strides: tuple[int, ...],
    device: torch.device,
) -> bool:
    """Whether torch.matmul of fp32 matrices of these shapes adds its terms as one chain, the first
    of K first, and rounds to the nearest each time.

    Its answer to a row of 1, t, t, … tells: with t = 1.5 * 2**-24 each step of a chain from 1 on is
    rounded up to 2**-23. Sums of parts, a first term that is not first and truncation leave less;
    the order of the others it does not see. The matrices have no holes, and no element twice.
    """
    count = left[-1]
    if count >= 1 << 22:
        return False
    small = torch.empty_strided(left, left_strides, dtype=torch.float32, device=device)
    small.fill_(1.5 * 2.0**-24)[..., 0] = 1.0
    ones = torch.empty_strided(right, right_strides, dtype=torch.float32, device=device).fill_(1.0)
    found = torch.matmul(small, ones)
    return bool((found == 1.0 + (count - 1) * 2.0**-23).all())


def _rows(
    given: torch.Tensor, func: object, args: Sequence[object], kwargs: dict[str, object]
) -> torch.Tensor:
    """`given`, wide, with the dimensions of a reduction as the last one."""
    inner = _reduced(given, func, args, kwargs)
    outer = [dim for dim in range(given.ndim) if dim not in inner]
    sizes = [given.shape[dim] for dim in outer]
    return _wide(given).permute(*outer, *inner).reshape(*sizes, -1)


def _relative_error(
    given: torch.Tensor,
    func: Callable[..., object],
    args: Sequence[object],
    kwargs: dict[str, object],
    value: torch.Tensor,
    centred: bool,
) -> torch.Tensor:
    """That of a sum of squares, around the mean with `centred`, relative to the sum."""
    wide = _wide(given)
    inner = _reduced(given, func, args, kwargs)
    if centred:
        wide = wide - wide.mean(dim=inner, keepdim=True)
    squares = wide.square()
    total = squares.sum(dim=inner).reshape(value.shape)
    return _sum_error(squares, func, args, kwargs, value, mean=False) / total.clamp(min=1e-38)


def _reduced(
    given: torch.Tensor, func: object, args: Sequence[object], kwargs: dict[str, object]
) -> list[int]:
    """The dimensions that a reduction goes over."""
    dims = cast("Sequence[int] | int | None", named_arguments(func, args, kwargs).get("dim"))
    if dims is None or dims == []:
        return list(range(given.ndim))
    several = [dims] if isinstance(dims, int) else list(dims)
    return [dim % given.ndim for dim in several] if given.ndim else []


def in_tf32(value: torch.Tensor, nearest: bool) -> torch.Tensor:
    """fp32 with 10 bits of mantissa: to the nearest, or truncated as wgmma reads fp32 operands."""
    return _cut(value, 1 << (TF32_BITS - 1) if nearest else 0)


def _cut(value: torch.Tensor, raised: int | torch.Tensor) -> torch.Tensor:
    """`value` in TF32, raised by so many units of fp32's last place before the rest is cut off."""
    bits = value.contiguous().view(torch.int32) + raised
    rounded = (bits & ~((1 << TF32_BITS) - 1)).view(torch.float32)
    return torch.where(value.isfinite(), rounded, value)


def evaluate(
    model: nn.Module,
    inputs: Sequence[object],
    training: bool,
    mode: RoundingNoise,
    *,
    double: bool = False,
) -> list[object] | None:
    """The outputs of a copy of `model` (in fp64 with `double`) under `mode`, attention by its
    definition and recurrent layers step by step; None where that raises or memory is short."""
    from torch.utils._pytree import tree_flatten

    given = [copied(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    given = [value_as_float64(item) if double else item for item in given]
    asked = as_float64(model) if double else copy.deepcopy(model)
    exact = in_float64() if double else _by_definition(model, mode)
    try:
        with torch.no_grad(), exact, mode:
            leaves, _ = tree_flatten(asked.train(training)(*given))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    return list(leaves)


@contextlib.contextmanager
def with_rounding_noise(
    seed: int, rounds: frozenset[str] = frozenset(), times: float = 1.0
) -> Iterator[None]:
    """What runs inside is an honest evaluation, moved `times` over; attention by its definition."""
    mode = RoundingNoise(seed, rounds, times)
    with mode.by_definition(), mode:
        yield


@contextlib.contextmanager
def _by_definition(model: nn.Module, mode: RoundingNoise) -> Iterator[None]:
    recurrent = any(isinstance(item, torch.nn.RNNBase) for item in model.modules())
    with contextlib.ExitStack() as stack:
        stack.enter_context(mode.by_definition())
        if recurrent:
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        yield


@functools.cache
def _parts() -> dict[object, Callable[..., object]]:
    """Composite operators and what they are made of."""
    from torch._decomp import decomposition_table

    return {
        op: parts
        for op, parts in decomposition_table.items()
        if str(op).removeprefix("aten.").partition(".")[0] in SPLIT and "out" not in str(op)
    }


@functools.cache
def _is_view(func: object) -> bool:
    returned = func._schema.returns  # type: ignore[attr-defined]
    return bool(returned) and all(
        item.alias_info is not None and not item.alias_info.is_write for item in returned
    )


def _squares(
    name: str, func: Callable[..., object], args: Sequence[object], kwargs: dict[str, object]
) -> tuple[int, torch.Tensor]:
    """How many terms each element of a product has, and the sum of their squares."""
    if name == "convolution":
        given, weight = (_wide(cast("torch.Tensor", item)).square() for item in args[:2])
        groups, transposed = cast("int", args[8]), bool(args[6])
        strides = cast("Sequence[int]", args[3])
        count = weight[:, 0].numel() // groups if transposed else weight[0].numel()
        count = max(1, count // math.prod(strides)) if transposed else count
        product = func(given, weight, None, *args[3:], **kwargs)
        return count, cast("torch.Tensor", product)
    first = 0 if name in ("mm", "bmm", "mv", "dot", "vdot") else 1
    left, right = (_wide(cast("torch.Tensor", item)).square() for item in args[first : first + 2])
    return left.shape[-1], torch.matmul(left, right)


def _sizes(args: Sequence[object]) -> list[object]:
    floats = [isinstance(item, torch.Tensor) and item.is_floating_point() for item in args]
    return [
        cast("torch.Tensor", item).abs() if is_float else item
        for item, is_float in zip(args, floats, strict=True)
    ]


def named_arguments(
    func: object, args: Sequence[object], kwargs: dict[str, object]
) -> dict[str, object]:
    """The arguments of a call by their names, defaults among them."""
    schema = func._schema.arguments  # type: ignore[attr-defined]
    given = dict(zip((item.name for item in schema), args, strict=False)) | kwargs
    return {item.name: item.default_value for item in schema} | given


def _dim(func: object, args: Sequence[object], kwargs: dict[str, object]) -> int:
    return cast("int", args[1] if len(args) > 1 else kwargs["dim"])


def _wide(value: torch.Tensor) -> torch.Tensor:
    """fp32, or fp64 as it is."""
    return value if value.dtype == torch.float64 else value.float()


def _unit(dtype: torch.dtype) -> float:
    """Half an ulp of the type in which sums are taken: at least fp32."""
    return (2.0**-53) if dtype == torch.float64 else 2.0**-24


__all__ = ["CHAIN", "RoundingNoise", "chain", "evaluate", "in_tf32", "named_arguments"]
