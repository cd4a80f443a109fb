"""Structure of a captured graph: its canonical ops and composites, and their similarity.

A layer norm written out as its formula and `F.layer_norm` are the same problem. Composites are
recognised by patterns over canonical names and expand to their parts, so that both spellings
share the features that they are found by. A structure's vector has length 1, and dot products of
two such vectors come near their similarity.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.knowledge import ReductionClass, Structure
from agentkernel.knowledge.op_names import (
    FAMILIES,
    canonical_op,
    expansion,
    family,
    names_of_ops,
    reduction_of,
    strongest,
    weight,
)

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from agentkernel.domain.plan import RooflineClass


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


MOST_OPS = 256
WIDTH = 384
OPS_SHARE = 0.5
ORDER_SHARE = 0.3
FACT_SHARES = {"reduction": 0.1, "rank": 0.04, "dtype": 0.03, "roofline": 0.03}
"""How much of a similarity each part makes up; a part that one side does not know is left out."""
FACT_SLOTS = 32
"""Of a vector's width, the slots that hold the small parts; what ops leave is for pairs."""
FAMILY_SHARE = 0.2
"""What the family of an op counts, against the op: a running product is near a running sum."""
RELATED = frozenset(
    ("contraction", "normalisation", "scan", "loss", "pool", "activation", "lookup")
)
"""Families whose kernels are built alike. Their features are named `~scan`."""
OP_PLACES = {
    op: place
    for place, op in enumerate([*sorted(names_of_ops()), *(f"~{name}" for name in FAMILIES)])
}
OP_SLOTS = 192
VECTORS = f"4-{zlib.crc32(' '.join(OP_PLACES).encode()):08x}"
"""Raised with every change of `op_vector`: an index made with another one is made anew."""
PART_SHARE = 0.5
"""What a part of a composite counts, against the same op written out."""
Features = Mapping[str, float]
KEPT_FEATURES = 2048
"""Structures whose features are kept: a search compares one with 200 others (2 KB each)."""


class CapturedGraph(Protocol):
    """What `agentkernel.tools.problem.capture` gives, as far as it is read here."""

    @property
    def graph(self) -> GraphModule: ...

    @property
    def user_inputs(self) -> tuple[str, ...]: ...


def structure_of_graph(captured: CapturedGraph, roofline: RooflineClass | None = None) -> Structure:
    """The structure of a captured forward; `roofline` from its analysis, where there is one.

    Ops on sizes alone (Python numbers) and ops that compute nothing are left out.
    """
    ops: list[str] = []
    reductions: list[ReductionClass] = []
    for node in captured.graph.graph.nodes:
        found = _ops_of(node) if node.op == "call_function" else ()
        for op in found:
            ops.append(op)
            reductions.append(reduction_of(op, _dims(node), _rank(_first_tensor(node))))
    inputs = [_value(node) for node in _inputs(captured)]
    tensors = [value for value in inputs if hasattr(value, "dtype") and hasattr(value, "ndim")]
    names = dict.fromkeys(
        str(getattr(value, "dtype", "")).removeprefix("torch.") for value in tensors
    )
    return Structure(
        ops=tuple(ops[:MOST_OPS]),
        reduction=strongest(reductions) if ops else None,
        dtypes=tuple(sorted(names, key=lambda name: "float" not in name)),
        rank=_rank(tensors[0]) if tensors else None,
        roofline=roofline,
    )


def similarity(a: Structure, b: Structure) -> float:
    """How alike two structures are, in [0, 1]; symmetric, and 1 for equal ones.

    The cosine of the damped, weighted op counts, that of the pairs of neighbours (the order), and
    small parts for the reduction, the rank, the dtype and the roofline class. 0 where one has no
    ops: nothing is known of it.
    """
    if not a.ops or not b.ops:
        return 0.0
    total = OPS_SHARE + ORDER_SHARE
    score = OPS_SHARE * _cosine(_op_features(a), _op_features(b))
    score += ORDER_SHARE * _cosine(_pair_features(a), _pair_features(b))
    left, right = _facts(a), _facts(b)
    for name, share in FACT_SHARES.items():
        if name in left and name in right:
            total += share
            score += share * (left[name] == right[name])
    return min(1.0, score / total)


def op_vector(structure: Structure) -> NDArray[np.float32]:
    """float32[WIDTH] of length 1 (0 without ops) whose dot products come near `similarity`.

    Pairs are hashed with CRC-32, so the same on every machine and in every process.
    """
    vector = np.zeros(WIDTH, dtype=np.float32)
    if not structure.ops:
        return vector
    room = WIDTH - FACT_SLOTS
    _add(vector[:OP_SLOTS], _op_features(structure), OPS_SHARE, _op_slot)
    _add(vector[OP_SLOTS:room], _pair_features(structure), ORDER_SHARE, _slot)
    for name, value in _facts(structure).items():
        vector[room + _slot(f"{name}={value}") % FACT_SLOTS] += math.sqrt(FACT_SHARES[name])
    return vector / np.float32(np.linalg.norm(vector))


def _add(
    part: NDArray[np.float32], features: Features, share: float, slot_of: Callable[[str], int]
) -> None:
    """Put features into `part` so that its squared length is near `share`."""
    length = math.sqrt(sum(value * value for value in features.values()))
    for name, value in features.items():
        slot = slot_of(name)
        sign = 1.0 if slot & 0x8000_0000 else -1.0
        part[slot % len(part)] += sign * value / length * math.sqrt(share)


def _op_slot(op: str) -> int:
    """A canonical op has a slot of its own: most problems are few ops."""
    return OP_PLACES[op] if op in OP_PLACES else _slot(op)


@lru_cache(maxsize=65_536)
def _slot(feature: str) -> int:
    return zlib.crc32(feature.encode())


@lru_cache(maxsize=KEPT_FEATURES)
def _op_features(structure: Structure) -> Features:
    """Op -> weight; the tenth call says less than the first, so loops taken once stay near.

    A recognised sequence counts as the composite that it is, and a composite, recognised or called,
    as a little of what it is made of.
    """
    features = _damped(with_composites(structure))
    for op, value in _damped(structure.ops).items():
        features[op] = max(features.get(op, 0.0), PART_SHARE * value)
    for op in tuple(features):
        for part in PARTS.get(op, ()):
            features[part] = max(features.get(part, 0.0), PART_SHARE * weight(part))
    for op in tuple(features):
        if family(op) in RELATED:
            name = f"~{family(op)}"
            features[name] = max(features.get(name, 0.0), FAMILY_SHARE * features[op])
    return features


def _damped(ops: Sequence[str]) -> dict[str, float]:
    return {op: weight(op) * (1 + math.log(count)) for op, count in Counter(ops).items()}


@lru_cache(maxsize=KEPT_FEATURES)
def _pair_features(structure: Structure) -> Features:
    """Neighbours, as they are written and with each recognised sequence as one."""
    features: dict[str, float] = {}
    for ops in {structure.ops, with_composites(structure)}:
        counts = Counter(pairwise(["^", *ops, "$"]))
        for (left, right), count in counts.items():
            value = _pair_weight(left, right) * (1 + math.log(count))
            features[f"{left}>{right}"] = max(features.get(f"{left}>{right}", 0.0), value)
    return features


@lru_cache(maxsize=65_536)
def _pair_weight(left: str, right: str) -> float:
    """The ends of a program weigh as much as a pointwise op."""
    ends = [weight(op) for op in (left, right) if op not in ("^", "$")]
    return math.sqrt(math.prod(ends))


def _facts(structure: Structure) -> dict[str, str]:
    known = {
        "reduction": structure.reduction,
        "rank": None if structure.rank is None else str(structure.rank),
        "dtype": structure.dtypes[0] if structure.dtypes else None,
        "roofline": structure.roofline,
    }
    return {name: value for name, value in known.items() if value is not None}


def _cosine(a: Features, b: Features) -> float:
    dot = sum(value * b.get(name, 0.0) for name, value in a.items())
    lengths = math.hypot(*a.values()) * math.hypot(*b.values())
    return dot / lengths if lengths else 0.0


def _ops_of(node: Node) -> tuple[str, ...]:
    name = str(node.target)
    if not name.startswith(("aten.", "prims.")) or not _is_tensor(_value(node)):
        return ()
    if not any(_is_tensor(_value(item)) for item in node.all_input_nodes):
        return ()
    op = canonical_op(name)
    return () if op is None else expansion(name)


def _dims(node: Node) -> tuple[int, ...] | None:
    """The value of the call's `dim` or `dims`, whichever way it was passed."""
    schema = getattr(node.target, "_schema", None)
    for index, argument in enumerate(schema.arguments if schema else ()):
        if argument.name in ("dim", "dims", "axis"):
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            value = argument.default_value if value is None else value
            items: Sequence[object] = value if isinstance(value, list | tuple) else [value]
            whole = [item for item in items if isinstance(item, int)]
            return tuple(whole) or None
    return None


def _inputs(captured: CapturedGraph) -> Iterator[Node]:
    wanted = set(captured.user_inputs)
    for node in captured.graph.graph.nodes:
        if node.op == "placeholder" and node.name in wanted:
            yield node


def _first_tensor(node: Node) -> object:
    return next((_value(item) for item in node.all_input_nodes if _is_tensor(_value(item))), None)


def _value(node: Node) -> object:
    return node.meta.get("val")


def _is_tensor(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_tensor(item) for item in value)
    return hasattr(value, "dtype") and hasattr(value, "ndim")


def _rank(value: object) -> int | None:
    rank = getattr(value, "ndim", None)
    return int(rank) if isinstance(rank, int) else None
