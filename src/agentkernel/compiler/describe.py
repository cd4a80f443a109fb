"""How does a kernel introduce itself: which operations, over which dimensions, walked how?"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from agentkernel.compiler.ir import Node
from agentkernel.compiler.region import Region
from agentkernel.compiler.schedule import Schedule

WIDTH = 95
OPERATION_NAMES = {
    "layer_norm": "LayerNorm", "native_layer_norm": "LayerNorm", "rms_norm": "RMSNorm",
    "group_norm": "GroupNorm", "instance_norm": "InstanceNorm", "batch_norm": "BatchNorm",
    "softmax": "softmax", "log_softmax": "log-softmax", "logsumexp": "log-sum-exp",
    "cross_entropy_loss": "cross-entropy", "nll_loss_nd": "negative log likelihood",
    "nll_loss": "negative log likelihood", "mse_loss": "mean squared error",
    "l1_loss": "mean absolute error", "smooth_l1_loss": "smooth L1 loss",
    "huber_loss": "Huber loss",
    "kl_div": "KL divergence", "binary_cross_entropy": "binary cross-entropy",
    "binary_cross_entropy_with_logits": "binary cross-entropy from logits",
    "cosine_similarity": "cosine similarity", "gelu": "GELU", "relu": "ReLU", "silu": "SiLU",
    "elu": "ELU", "selu": "SELU", "celu": "CELU", "mul": "multiply", "sub": "subtract",
    "div": "divide", "neg": "negate", "linalg_vector_norm": "vector norm", "amax": "maximum",
    "amin": "minimum", "var": "variance", "std": "standard deviation",
}  # fmt: skip
"""ATen's name -> the field's."""
UNNAMED_OPS = frozenset((
    "view", "reshape", "permute", "transpose", "expand", "unsqueeze", "squeeze", "to",
    "_to_copy", "t", "unsafe_view", "flatten", "clone", "contiguous", "alias", "slice",
    "select", "split", "chunk", "unbind",
))  # fmt: skip


def operation_name(origin: str) -> str:
    """What people call an ATen operation."""
    return OPERATION_NAMES.get(origin, origin.strip("_").replace("_", " "))


def kernel_docstring(region: Region, schedule: Schedule) -> list[str]:
    """The kernel's docstring as lines, quotes included."""
    text = f"{_capital(_what(region))}{_where(region)}.{_how(region, schedule)}"
    if len(text) + 6 <= WIDTH:
        return [f'"""{text}"""']
    head, _, rest = text.partition(". ")
    lines = [f'"""{head.removesuffix(".")}.']
    if rest:
        lines += ["", *textwrap.wrap(rest, WIDTH)]
    return [*lines, '"""']


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _what(region: Region) -> str:
    """The operations in order, the reducing ones first among equals: `LayerNorm, GELU, add`."""
    names = _distinct(operation_name(node.origin) for node in region.nodes if _telling(node))
    if len(names) > 6:
        names = [*names[:5], f"{len(names) - 5} more"]
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names)) or ["copy"]


def _telling(node: Node) -> bool:
    return bool(node.origin) and node.origin not in UNNAMED_OPS and node.op != "copy"


def _where(region: Region) -> str:
    """` over the last dimension`, where all reductions agree."""
    found = {
        (node.attrs[0], len(node.args[0].shape)) for node in region.nodes if node.kind == "reduce"
    }
    if len(found) != 1:
        return ""
    axes, rank = next(iter(found))
    assert isinstance(axes, tuple)
    if len(axes) == rank:
        return " over all elements" if rank != 1 else ""
    if axes == (rank - 1,):
        return " over the last dimension"
    if axes == tuple(range(rank - len(axes), rank)):
        return f" over the last {len(axes)} dimensions"
    return f" over dimension{'s' if len(axes) > 1 else ''} {', '.join(map(str, axes))}"


def _how(region: Region, schedule: Schedule) -> str:
    statistics = _statistics(region, schedule)
    rows = "BLOCK_M rows" if schedule.block_rows > 1 else "one row"
    match schedule.form:
        case "flat":
            return ""
        case "tile":
            return ""
        case "persistent":
            return f" A program holds {rows} in registers{statistics}."
        case "looped":
            return f" A program walks {rows} in tiles of BLOCK_N{statistics}."
    return f" CHUNKS programs share a row{statistics}."


def _statistics(region: Region, schedule: Schedule) -> str:
    """How the statistics are gathered, where that takes more than one sum."""
    ops = {node.op for node in region.nodes}
    whole = schedule.form == "persistent"
    parts: list[str] = []
    if "moments" in ops:
        parts.append(
            "the mean, then the variance about it" if whole else "mean and variance in one read"
        )
    if "expsum" in ops:
        parts.append(
            "the maximum, then the sum of exponentials"
            if whole
            else "a running maximum and a sum that is rescaled when it grows"
        )
    return f": {', '.join(parts)}" if parts else ""
