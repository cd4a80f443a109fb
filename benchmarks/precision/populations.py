"""Problems with honest evaluations of each and planted losses of precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import arithmetic as ar
import torch
import torch.nn.functional as F

Evaluation = Callable[..., torch.Tensor]
Exp = Callable[[torch.Tensor], torch.Tensor]
EPS = 1e-5


@dataclass(frozen=True)
class Problem:
    """`reference` takes inputs of `shapes`; of the results `honest` ones are to pass for every
    distribution of values, `planted` ones are to fail for one of them at least."""

    name: str
    reference: Evaluation
    shapes: tuple[tuple[int, ...], ...]
    honest: dict[str, Evaluation]
    planted: dict[str, Evaluation]
    dtype: torch.dtype = torch.float32
    targets: int = 0
    """A second input holds so many classes."""
    skip: frozenset[str] = field(default_factory=frozenset)
    permits: frozenset[str] = field(default_factory=frozenset)


SIZES = (83, 300, 1000, 3000, 4096, 9000)


def problems(sizes: tuple[int, ...] = SIZES) -> Iterator[Problem]:
    """All of them, size by size."""
    for size in sizes:
        yield from _products(size)
        yield from _rows(size)
        yield from _losses(size)
    for size in sizes[::2]:
        yield from _narrow(size)
    for size in (40, 200):
        yield from _attention(size)
    yield from _convolutions()
    yield from _pointwise()


def _products(k: int) -> Iterator[Problem]:
    honest = dict(ar.PRODUCTS)
    planted = dict(ar.LOSSY_PRODUCTS)
    yield Problem(f"matmul, K {k}", torch.matmul, ((24, k), (k, 40)), honest, planted)
    yield Problem(
        f"linear + GELU, K {k}",
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        ((24, k), (40, k), (40,)),
        {name: _linear_gelu(product) for name, product in honest.items()},
        {name: _linear_gelu(product) for name, product in planted.items()},
    )
    yield Problem(
        f"row sum of a linear layer, K {k}",
        lambda x, w: F.linear(x, w).sum(-1),
        ((24, k), (40, k)),
        {"moved to the weight": lambda x, w: torch.mv(x, ar.sum_pairs(w.t().contiguous()))}
        | {name: _row_sum(product) for name, product in honest.items()},
        {name: _row_sum(product) for name, product in planted.items() if "bf16x3" not in name},
    )


def _linear_gelu(product: ar.Product) -> Evaluation:
    return lambda x, w, b: F.gelu(product(x, w.t()) + b)


def _row_sum(product: ar.Product) -> Evaluation:
    return lambda x, w: ar.sum_pairs(product(x, w.t()))


def _rows(n: int) -> Iterator[Problem]:
    shape = ((20, n),)
    lossy = {"fp16 accumulator": ar.sum_in(torch.float16), "bf16": ar.sum_in(torch.bfloat16)}
    yield Problem(f"sum, {n}", lambda x: x.sum(-1), shape, dict(ar.SUMS), lossy)
    yield Problem(
        f"layer norm, {n}",
        lambda x: F.layer_norm(x, x.shape[-1:], eps=EPS),
        shape,
        {name: _layer_norm(total) for name, total in ar.SUMS.items()}
        | {"Welford": _welford, "as x * s + t": _layer_norm(ar.sum_lanes, scaled=True)},
        {"one pass": _one_pass, "12 bits of 1 / sd": _layer_norm(ar.sum_pairs, coarse=True)},
    )
    yield Problem(
        f"RMS norm, {n}",
        lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS),
        shape,
        {name: _rms_norm(total) for name, total in ar.SUMS.items()},
        {"fp16 accumulator": _rms_norm(ar.sum_in(torch.float16))},
    )
    yield Problem(
        f"variance, {n}",
        lambda x: x.var(-1),
        shape,
        {name: _variance(total) for name, total in ar.SUMS.items()},
        {"one pass": _one_pass_variance},
    )
    yield Problem(
        f"softmax, {n}",
        lambda x: F.softmax(x, -1),
        shape,
        {name: _softmax(total) for name, total in ar.SUMS.items()}
        | {"ex2 of x log2(e)": _softmax(ar.sum_lanes, ar.exp_scaled), "online": _online},
        {
            "no maximum": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
            "truncated series": _softmax(ar.sum_pairs, ar.exp_series),
            "fp16 exponential": _softmax(ar.sum_pairs, ar.exp_half),
            "12 bits of 1 / sum": _softmax(ar.sum_pairs, coarse=True),
        },
    )
    yield Problem(
        f"cumulative sum, {n}",
        lambda x: x.cumsum(-1),
        shape,
        {"chain": _scan_chain, "blocks of 64": _scan_blocks},
        {"fp16 accumulator": lambda x: x.half().cumsum(-1).float()},
    )


def _mean(total: ar.Sum, x: torch.Tensor) -> torch.Tensor:
    return (total(x) / x.shape[-1])[..., None]


def _layer_norm(total: ar.Sum, *, scaled: bool = False, coarse: bool = False) -> Evaluation:
    def norm(x: torch.Tensor) -> torch.Tensor:
        mean = _mean(total, x)
        deviation = torch.sqrt(_mean(total, (x - mean).square()) + EPS)
        scale = ar.reciprocal_12_bits(deviation) if coarse else 1 / deviation
        return x * scale - mean * scale if scaled else (x - mean) * scale

    return norm


def _welford(x: torch.Tensor) -> torch.Tensor:
    """In chains of at most 4,096 terms, which are merged as Chan, Golub and LeVeque (1979) do."""
    mean, spread, seen = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0]), 0
    for block in x.split(ar.CHAIN, dim=-1):
        part, around = torch.zeros_like(mean), torch.zeros_like(mean)
        for count, term in enumerate(block.unbind(-1), 1):
            delta = term - part
            part = part + delta / count
            around = around + delta * (term - part)
        share = block.shape[-1] / (seen + block.shape[-1])
        spread = spread + around + (part - mean).square() * (seen * share)
        mean = mean + (part - mean) * share
        seen += block.shape[-1]
    return (x - mean[..., None]) * torch.rsqrt(spread / x.shape[-1] + EPS)[..., None]


def _one_pass(x: torch.Tensor) -> torch.Tensor:
    mean = _mean(ar.sum_pairs, x)
    variance = _mean(ar.sum_pairs, x.square()) - mean.square()
    return (x - mean) * torch.rsqrt(variance + EPS)


def _one_pass_variance(x: torch.Tensor) -> torch.Tensor:
    mean = ar.sum_pairs(x) / x.shape[-1]
    square = ar.sum_pairs(x.square()) / x.shape[-1]
    return (square - mean.square()) * (x.shape[-1] / (x.shape[-1] - 1))


def _variance(total: ar.Sum) -> Evaluation:
    return lambda x: total((x - _mean(total, x)).square()) / (x.shape[-1] - 1)


def _rms_norm(total: ar.Sum) -> Evaluation:
    return lambda x: x / torch.sqrt(_mean(total, x.square()) + EPS)


def _softmax(total: ar.Sum, exp: Exp = torch.exp, *, coarse: bool = False) -> Evaluation:
    def softmax(x: torch.Tensor) -> torch.Tensor:
        grown = exp(x - x.amax(-1, keepdim=True))
        whole = total(grown)[..., None]
        return grown * ar.reciprocal_12_bits(whole) if coarse else grown / whole

    return softmax


def _online(x: torch.Tensor) -> torch.Tensor:
    """One pass over blocks of 64 with a running maximum."""
    best = torch.full_like(x[..., :1], -math.inf)
    whole = torch.zeros_like(best)
    for block in x.split(64, dim=-1):
        new = torch.maximum(best, block.amax(-1, keepdim=True))
        grown = ar.sum_pairs(ar.exp_scaled(block - new))[..., None]
        whole = whole * ar.exp_scaled(best - new) + grown
        best = new
    return ar.exp_scaled(x - best) / whole


def _scan_chain(x: torch.Tensor) -> torch.Tensor:
    total, found = torch.zeros_like(x[..., 0]), []
    for term in x.unbind(-1):
        total = total + term
        found.append(total)
    return torch.stack(found, -1)


def _scan_blocks(x: torch.Tensor) -> torch.Tensor:
    carry, found = torch.zeros_like(x[..., :1]), []
    for block in x.split(64, dim=-1):
        inner = _scan_chain(block) + carry
        carry = inner[..., -1:]
        found.append(inner)
    return torch.cat(found, -1)


def _losses(n: int) -> Iterator[Problem]:
    flat = {name: _flat(total) for name, total in ar.SUMS.items()}
    yield Problem(
        f"mean squared error, 20 x {n}",
        F.mse_loss,
        ((20, n), (20, n)),
        {name: _squares(total) for name, total in flat.items()},
        {"fp16 accumulator": _squares(ar.sum_in(torch.float16)), "bf16": _bf16_loss},
    )
    yield Problem(
        f"cross-entropy, 20 x {n}",
        F.cross_entropy,
        ((20, n),),
        {name: _cross_entropy(total) for name, total in ar.SUMS.items()},
        {
            "no maximum": _no_maximum,
            "maximum added again": _added,
            "fp16 exponential": _cross_entropy(ar.sum_pairs, ar.exp_half),
        },
        targets=n,
    )


def _flat(total: ar.Sum) -> ar.Sum:
    return lambda x: total(x.reshape(-1))


def _squares(total: ar.Sum) -> Evaluation:
    return lambda x, y: total((x - y).square().reshape(-1)) / x.numel()


def _bf16_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.bfloat16() - y.bfloat16()).float().square().mean()


def _cross_entropy(total: ar.Sum, exp: Exp = torch.exp) -> Evaluation:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        best = x.amax(-1, keepdim=True)
        logs = torch.log(total(exp(x - best)))
        return ar.sum_pairs(logs - (x - best).gather(-1, y[:, None])[:, 0]) / x.shape[0]

    return loss


def _added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (torch.logsumexp(x, -1) - x.gather(-1, y[:, None])[:, 0]).mean()


def _no_maximum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logs = torch.log(x.exp().sum(-1))
    return (logs - x.gather(-1, y[:, None])[:, 0]).mean()


def _narrow(k: int) -> Iterator[Problem]:
    bf16, fp16 = torch.bfloat16, torch.float16
    for dtype in (bf16, fp16):
        name = str(dtype).removeprefix("torch.")
        yield Problem(
            f"matmul {name}, K {k}",
            torch.matmul,
            ((24, k), (k, 40)),
            {n: _in_fp32(product, dtype) for n, product in ar.PRODUCTS.items()},
            {"narrow accumulator": _narrow_product(dtype)} if k >= 1000 else {},
            dtype=dtype,
        )
        yield Problem(
            f"layer norm {name}, {k}",
            lambda x: F.layer_norm(x, x.shape[-1:], eps=EPS),
            ((20, k),),
            {n: _in_fp32(_layer_norm(total), dtype) for n, total in ar.SUMS.items()},
            {},
            dtype=dtype,
        )
        yield Problem(
            f"softmax {name}, {k}",
            lambda x: F.softmax(x, -1),
            ((20, k),),
            {"ex2 of x log2(e)": _in_fp32(_softmax(ar.sum_lanes, ar.exp_scaled), dtype)},
            {"no maximum": _in_fp32(lambda x: x.exp() / x.exp().sum(-1, keepdim=True), dtype)},
            dtype=dtype,
        )


def _in_fp32(evaluation: Evaluation, dtype: torch.dtype) -> Evaluation:
    return lambda *given: evaluation(*(x.float() for x in given)).to(dtype)


def _narrow_product(dtype: torch.dtype) -> Evaluation:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = a.new_zeros(a.shape[0], b.shape[1])
        for k in range(0, a.shape[1], 16):
            piece = a[:, k : k + 16].float() @ b[k : k + 16].float()
            total = (total.float() + piece).to(dtype)
        return total

    return product


def _attention(length: int) -> Iterator[Problem]:
    shape = (2, 2, length, 32)

    def attend(product: ar.Product, exp: Exp, total: ar.Sum, *, best: bool = True) -> Evaluation:
        def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            scores = product(q * 32**-0.5, k.transpose(-1, -2))
            grown = exp(scores - scores.amax(-1, keepdim=True) if best else scores)
            return product(grown, v) / total(grown)[..., None]

        return run

    yield Problem(
        f"attention, {length}",
        F.scaled_dot_product_attention,
        (shape, shape, shape),
        {
            name: attend(product, exp, total)
            for name, product, exp, total in (
                ("chain", ar.PRODUCTS["chain, FMA"], torch.exp, ar.sum_chain),
                ("tiles, ex2", ar.PRODUCTS["tiles of 16"], ar.exp_scaled, ar.sum_lanes),
                ("library", torch.matmul, torch.exp, ar.sum_pairs),
            )
        },
        {
            "TF32": attend(ar.product_tf32(True), torch.exp, ar.sum_pairs),
            "bf16x3": attend(ar.product_bf16(3), torch.exp, ar.sum_pairs),
            "no maximum": attend(torch.matmul, torch.exp, ar.sum_pairs, best=False),
        },
    )


def _convolutions() -> Iterator[Problem]:
    for channels in (8, 32):
        shapes = ((2, channels, 14, 14), (24, channels, 3, 3))
        honest = {name: _unfolded(product) for name, product in ar.PRODUCTS.items()}
        tf32 = {
            "TF32 to nearest": _unfolded(ar.product_tf32(True)),
            "TF32 truncated": _unfolded(ar.product_tf32(False)),
        }
        bf16 = {"bf16": _unfolded(ar.product_bf16(1))}
        yield Problem(f"convolution, {channels} channels", F.conv2d, shapes, honest, bf16 | tf32)
        yield Problem(
            f"convolution where TF32 is permitted, {channels} channels",
            F.conv2d,
            shapes,
            honest | tf32,
            bf16,
            permits=frozenset({"conv"}),
        )


def _unfolded(product: ar.Product) -> Evaluation:
    def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        columns = F.unfold(x, 3)
        rows = w.reshape(w.shape[0], -1).expand(x.shape[0], -1, -1)
        return product(rows, columns).reshape(x.shape[0], w.shape[0], 12, 12)

    return convolve


def _pointwise() -> Iterator[Problem]:
    shape = ((50, 300),)
    yield Problem(
        "exponential",
        torch.exp,
        shape,
        {"rounded": ar.correct(torch.exp)},
        {"ex2 of x log2(e)": ar.exp_scaled, "truncated series": ar.exp_series},
    )
    yield Problem(
        "tanh",
        torch.tanh,
        shape,
        {"rounded": ar.correct(torch.tanh), "by expm1": ar.tanh_by_exp},
        {"2 sigmoid(2 x) - 1": ar.tanh_by_sigmoid},
    )
    yield Problem(
        "sigmoid",
        torch.sigmoid,
        shape,
        {
            "rounded": ar.correct(torch.sigmoid),
            "by ex2": lambda x: 1 / (1 + ar.exp_scaled(-x)),
        },
        {"12 bits of the quotient": lambda x: ar.reciprocal_12_bits(1 + torch.exp(-x))},
    )
    yield Problem(
        "GELU",
        F.gelu,
        shape,
        {
            "rounded": ar.correct(F.gelu),
            "by erf": lambda x: 0.5 * x * (1 + torch.erf(x * 0.5**0.5)),
        },
        {
            "tanh form": lambda x: F.gelu(x, approximate="tanh"),
            "truncated erf": lambda x: 0.5 * x * (1 + ar.erf_series(x * 0.5**0.5)),
        },
    )
    yield Problem(
        "SiLU",
        F.silu,
        shape,
        {"rounded": ar.correct(F.silu), "by ex2": lambda x: x / (1 + ar.exp_scaled(-x))},
        {"12 bits of the quotient": lambda x: x * ar.reciprocal_12_bits(1 + torch.exp(-x))},
    )
    yield Problem(
        "quotient",
        torch.div,
        (shape[0], shape[0]),
        {"rounded": ar.correct(torch.div), "times 1 / y": lambda x, y: x * (1 / y)},
        {"12 bits of 1 / y": lambda x, y: x * ar.reciprocal_12_bits(y)},
    )
