"""What does a captured graph compute, and how alike are two structures?"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.knowledge import ReductionClass, Structure
from agentkernel.knowledge.composites import PARTS, with_composites
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


def op_vector(structure: Structure, width: int = WIDTH) -> NDArray[np.float32]:
    """float32[width] of length 1 (0 without ops) whose dot products come near `similarity`.

    Pairs are hashed with CRC-32, so the same on every machine and in every process. `width` is at
    least 256.
    """
    vector = np.zeros(width, dtype=np.float32)
    if not structure.ops:
        return vector
    room = width - FACT_SLOTS
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
