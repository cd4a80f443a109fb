"""Which known operation is a sequence of small ones, written out by hand?

A layer norm from its formula and `F.layer_norm` are the same problem. Sequences are recognised by
patterns over canonical names, and composites know what they are made of, so that both ways to write
one thing share what they are found by.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from agentkernel.domain.knowledge import ReductionClass, Structure

GAP = r"(?:\w+ ){0,2}"
"""A scale, an epsilon, a mask or a cast may stand between two steps."""
MASKED = r"(?:(?!softmax|matmul|linear)\w+ ){0,9}"
"""Between the products of an attention: a scale, a bias by position, a causal or banded mask."""
POINTWISE = "(?:add|sub|mul|div|pow|compare|logical)"
SQUARE = r"(?:pow|square|mul)"
ROOT = r"(?:r?sqrt)"
NORM = "norm?"
"""Which norm it is, what is reduced tells."""
NORMS: Mapping[ReductionClass, tuple[str, ...]] = {
    "row": ("layer_norm",),
    "spatial": ("instance_norm", "batch_norm", "group_norm"),
    "column": ("batch_norm",),
}
RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(rf"\b{pattern}"))
    for name, pattern in (
        ("log_softmax", r"max sub exp sum log sub "),
        ("softmax", rf"(?:(?:amax|max) {GAP}sub )?exp sum {GAP}div "),
        ("logsumexp", rf"(?:(?:amax|max) {GAP}sub )?exp sum {GAP}log "),
        ("log_softmax", "softmax log "),
        ("log_softmax", "logsumexp sub "),
        ("scaled_dot_product_attention", rf"matmul {MASKED}softmax {GAP}matmul "),
        ("cross_entropy", rf"log_softmax {GAP}(?:nll_loss |gather neg mean |gather mean neg )"),
        ("norm", rf"{SQUARE} sum {GAP}sqrt "),
        ("cosine_similarity", rf"mul sum {GAP}norm {GAP}norm (?:mul |clamp |maximum ){{0,3}}div "),
        (
            "binary_cross_entropy_with_logits",
            "(?:clamp|relu) mul sub (?:abs neg|neg abs) exp (?:add )?log add (?:mean|sum) $",
        ),
        ("huber_loss", rf"sub abs (?:{POINTWISE} )*where (?:mean|sum) $"),
        ("gelu", "(?:pow |mul ){1,2}mul add mul tanh add mul (?:mul )?"),
        ("gelu", "(?:mul |div )erf add (?:mul mul |mul |div )"),
        ("softplus", "exp (?:add )?log "),
        ("mish", "softplus tanh mul "),
        ("hardswish", "add (?:relu6|clamp) (?:mul div|div mul) "),
        ("hardsigmoid", "add (?:relu6|clamp) div "),
        ("sigmoid", "neg exp add div "),
        (NORM, rf"mean {GAP}sub {GAP}{SQUARE} {GAP}mean {GAP}{ROOT} {GAP}(?:div|mul) "),
        (NORM, rf"(?:mean {GAP})?(?:var_mean|var|std) {GAP}(?:{ROOT} {GAP})?(?:div|mul) "),
        ("rms_norm", rf"(?<!sub ){SQUARE} mean {GAP}{ROOT} (?:div|mul) "),
        ("mse_loss", rf"sub {SQUARE} mean $"),
        ("l1_loss", "sub abs mean $"),
        ("silu", "sigmoid mul "),
    )
)
"""From the whole to the small: what an earlier rule took is one op for the later ones."""
MOMENTS = ("mean", "sub", "pow", "rsqrt", "mul")
PARTS: Mapping[str, tuple[str, ...]] = {
    "layer_norm": MOMENTS,
    "instance_norm": MOMENTS,
    "group_norm": MOMENTS,
    "batch_norm": MOMENTS,
    "rms_norm": ("pow", "mean", "rsqrt", "mul"),
    "softmax": ("amax", "sub", "exp", "sum", "div"),
    "log_softmax": ("amax", "sub", "exp", "sum", "log"),
    "logsumexp": ("amax", "sub", "exp", "sum", "log"),
    "scaled_dot_product_attention": ("matmul", "softmax", "matmul"),
    "mse_loss": ("sub", "pow", "mean"),
    "l1_loss": ("sub", "abs", "mean"),
    "huber_loss": ("sub", "abs", "where", "mean"),
    "kl_div": ("log", "sub", "mul", "sum"),
    "cosine_similarity": ("mul", "sum", "norm", "div"),
    "cross_entropy_loss": ("log_softmax", "nll_loss"),
    "var": ("mean", "sub", "pow"),
    "var_mean": ("mean", "sub", "pow"),
    "std": ("mean", "sub", "pow", "sqrt"),
    "norm": ("pow", "sum", "sqrt"),
    "silu": ("sigmoid", "mul"),
    "mish": ("softplus", "tanh", "mul"),
    "hardswish": ("hardsigmoid", "mul"),
    "linear": ("matmul", "add"),
    "adaptive_avg_pool1d": ("mean",),
    "adaptive_avg_pool2d": ("mean",),
    "adaptive_avg_pool3d": ("mean",),
}
"""What a composite is made of, as people write it."""


def with_composites(structure: Structure) -> tuple[str, ...]:
    """The ops with each recognised sequence as the one op that it is."""
    return _contracted(structure.ops, structure.reduction)


def composite_names(structure: Structure) -> tuple[str, ...]:
    """The composites that were recognised, each once: what nobody wrote by its name."""
    return tuple(
        name for name in dict.fromkeys(with_composites(structure)) if name not in structure.ops
    )


@lru_cache(maxsize=16_384)
def _contracted(ops: tuple[str, ...], reduction: ReductionClass | None) -> tuple[str, ...]:
    text = "".join(f"{op} " for op in ops)
    for name, pattern in RULES:
        names = _names(name, reduction)
        if names:
            text = pattern.sub("".join(f"{item} " for item in names), text)
    return tuple(text.split())


def _names(name: str, reduction: ReductionClass | None) -> tuple[str, ...]:
    if name == NORM:
        return NORMS.get(reduction, ()) if reduction is not None else ()
    if name.endswith("_loss") and reduction != "whole":
        return ()
    return (name,)
