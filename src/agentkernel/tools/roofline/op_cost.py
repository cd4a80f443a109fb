"""Bytes and floating-point operations of one torch op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from agentkernel.domain.profile import OpCost
from agentkernel.tools.problem import composite_operators

if TYPE_CHECKING:
    import torch

Kind = Literal["matmul", "convolution", "attention", "pointwise", "reduction", "copy"]
SizeOf = Callable[[object], int]
"""Turns a size, symbolic or not, into elements."""

FIRST_OPERAND = {
    "aten.mm": 0,
    "aten.bmm": 0,
    "aten.matmul": 0,
    "aten.linear": 0,
    "aten.mv": 0,
    "aten.dot": 0,
    "aten.addmm": 1,
    "aten.baddbmm": 1,
    "aten.addmv": 1,
    "aten.addbmm": 1,
}
"""Matrix products -> which argument is the left matrix, whose last dimension is contracted."""
ATTENTION = ("aten.scaled_dot_product_attention", "aten._scaled_dot_product")
EINSUM = "aten.einsum"
RECURRENT = tuple(f"aten.{name}" for name in composite_operators.RECURRENT)
LOOKUPS = ("aten.embedding", "aten.index_select", "aten.gather", "aten.index")
FLOPS_PER_ELEMENT = {
    "aten.native_layer_norm": 8,
    "aten.layer_norm": 8,
    "aten.native_group_norm": 8,
    "aten.group_norm": 8,
    "aten.instance_norm": 8,
    "aten.rms_norm": 5,
    "aten._fused_rms_norm": 5,
    "aten.batch_norm": 4,
    "aten.native_batch_norm": 4,
    "aten._native_batch_norm_legit_no_training": 4,
    "aten._softmax": 5,
    "aten.softmax": 5,
    "aten._log_softmax": 5,
    "aten.log_softmax": 5,
    "aten.logsumexp": 4,
    "aten.cross_entropy_loss": 5,
    "aten.var": 4,
    "aten.var_mean": 4,
    "aten.std": 4,
}
"""Composite ops -> operations for each element of the input, a transcendental counted as 1."""
REDUCTIONS = frozenset(
    {f"aten.{name}" for name in ("sum", "mean", "amax", "amin", "max", "min", "prod", "argmax")}
    | {f"aten.{name}" for name in ("argmin", "any", "all", "norm", "linalg_vector_norm", "cumsum")}
    | {f"aten.{name}" for name in ("cumprod", "nll_loss", "nll_loss_forward", "max_pool2d")}
    | {f"aten.{name}" for name in ("avg_pool2d", "max_pool2d_with_indices", "max_pool3d", "topk")}
    | {f"aten.{name}" for name in ("adaptive_avg_pool2d", "_adaptive_avg_pool2d", "avg_pool3d")}
)
COPIES = frozenset(
    {f"aten.{name}" for name in ("clone", "copy", "copy_", "_to_copy", "to", "cat", "stack")}
    | {f"aten.{name}" for name in ("contiguous", "flip", "roll", "repeat", "constant_pad_nd")}
    | {f"aten.{name}" for name in ("index_select", "gather", "embedding", "index", "pad")}
)
FILLS = frozenset(
    f"aten.{name}"
    for name in ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "fill_", "zero_")
) | {"aten.new_zeros", "aten.new_full", "aten.new_ones", "aten.arange", "aten.fill"}
ALLOCATIONS = frozenset(
    f"aten.{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
) | {"aten.empty_permuted", "aten.resize_", "aten.set_", "aten.lift_fresh", "aten.lift_fresh_copy"}
MAYBE_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "reshape",
        "flatten",
        "view_as",
        "unflatten",
        "_reshape_alias",
        "_unsafe_view",
        "dropout",
        "numpy_T",
    )
) | {"aten.detach", "aten.alias", "aten.chunk", "aten.split", "aten.expand_as", "aten.movedim"}
"""Ops that are views, or identities in eval mode, for the contiguous tensors they mostly get."""


def op_name(op: object) -> str:
    """`aten.mm` for the overload `aten.mm.default`; custom ops keep their namespace."""
    return ".".join(str(op).split(".")[:2])


def is_free(op: object) -> bool:
    """True for views, allocations and Python-level helpers: no device work."""
    name = op_name(op)
    if name in ALLOCATIONS or name in MAYBE_VIEWS or not hasattr(op, "_schema"):
        return True
    if name.startswith(("aten.sym_", "aten._assert", "aten.item", "aten._local_scalar")):
        return True
    return bool(getattr(op, "is_view", False)) or name in ("aten.sym_size", "prims.device_put")


def is_fill(op: object) -> bool:
    """True for ops that only write a constant: a launch, but no computation."""
    return op_name(op) in FILLS


def op_cost(op: object, args: Sequence[object], out: object, size_of: SizeOf) -> OpCost:
    """Bytes and operations of one call of `op`; tensors may be real, meta or fake.

    Bytes count every operand and result once, a broadcast operand at its stored size, a table that
    is looked up at the size of what is read. Operations: 2mnk for a product of matrices, and the
    like for convolutions and attention; one an element for pointwise ops and reductions.
    """
    name = op_name(op)
    inputs, outputs = list(_tensors(args)), list(_tensors([out]))
    dtype = str((outputs or inputs)[0].dtype).removeprefix("torch.") if outputs or inputs else ""
    if inputs and not inputs[0].dtype.is_floating_point and outputs:
        dtype = str(outputs[0].dtype).removeprefix("torch.")
    kind = _kind(name)
    moved = sum(stored_bytes(item, size_of) for item in outputs)
    if name.startswith(LOOKUPS):
        moved += moved + sum(stored_bytes(item, size_of) for item in inputs[1:])
    elif name not in FILLS:
        moved += sum(stored_bytes(item, size_of) for item in inputs)
    flops = _flops(name, kind, args, inputs, outputs, size_of)
    channels = _group_channels(name, args, inputs, size_of) if kind == "convolution" else None
    steps = _recurrent_steps(args, size_of) if name in RECURRENT else None
    return OpCost(
        op=name, dtype=dtype, bytes_moved=moved, flops=flops, kind=kind, channels=channels,
        steps=steps,
    )  # fmt: skip


def _recurrent_steps(args: Sequence[object], size_of: SizeOf) -> int:
    """Steps one after the other of a recurrent layer's call: those through time of each layer in
    both directions, and of a stack in one direction those of its diagonals."""
    *_, layers, _, _, bidirectional, batch_first = args
    assert isinstance(layers, int)
    steps = size_of(next(_tensors(args)).shape[1 if batch_first else 0])
    return steps * layers if bidirectional else steps + layers - 1


def numel(tensor: torch.Tensor, size_of: SizeOf) -> int:
    """Elements of `tensor`."""
    return math.prod(size_of(size) for size in tensor.shape)


def stored_bytes(tensor: torch.Tensor, size_of: SizeOf) -> int:
    """Bytes that the elements of `tensor` take in memory: broadcast dimensions count once."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    sizes = [size_of(size) for size, stride in pairs if size_of(stride) != 0]
    return math.prod(sizes) * tensor.element_size()


def _kind(name: str) -> Kind:
    if name in FIRST_OPERAND or name in RECURRENT or name == EINSUM:
        return "matmul"
    if "conv" in name.split(".")[-1]:
        return "convolution"
    if name.startswith(ATTENTION):
        return "attention"
    if name in COPIES or name in FILLS:
        return "copy"
    if name in REDUCTIONS or name in FLOPS_PER_ELEMENT:
        return "reduction"
    return "pointwise"


def _flops(
    name: str,
    kind: Kind,
    args: Sequence[object],
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    size_of: SizeOf,
) -> int:
    if kind == "copy" or not outputs:
        return 0
    written = numel(outputs[0], size_of)
    if name == EINSUM:
        return _einsum_flops(str(args[0]), inputs, size_of)
    if name in RECURRENT:
        weights = sum(numel(item, size_of) for item in inputs[1:] if item.ndim == 2)
        steps = numel(inputs[0], size_of) // max(1, size_of(inputs[0].shape[-1]))
        return 2 * weights * steps
    if kind == "matmul":
        left = inputs[FIRST_OPERAND[name]]
        bias = written if FIRST_OPERAND[name] or len(inputs) > 2 else 0
        return 2 * written * size_of(left.shape[-1]) + bias
    if kind == "convolution":
        return _convolution_flops(name, args, inputs, written, size_of)
    if kind == "attention":
        return _attention_flops(inputs, args, size_of)
    read = max((numel(item, size_of) for item in inputs), default=written)
    if kind == "reduction":
        return read * FLOPS_PER_ELEMENT.get(name, 1)
    return max(read, *(numel(item, size_of) for item in outputs))


def _einsum_flops(equation: str, inputs: list[torch.Tensor], size_of: SizeOf) -> int:
    """Multiply and add for every combination of the letters; an ellipsis counts once."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    batch = 1
    for term, tensor in zip(terms, inputs, strict=False):
        shape = [size_of(size) for size in tensor.shape]
        before, dots, after = term.partition("...")
        sizes |= dict(zip(before, shape, strict=False))
        sizes |= dict(zip(reversed(after), reversed(shape), strict=False))
        if dots:
            batch = max(batch, math.prod(shape[len(before) : len(shape) - len(after)]))
    return 2 * batch * math.prod(sizes.values())


def _convolution_flops(
    name: str,
    args: Sequence[object],
    inputs: list[torch.Tensor],
    written: int,
    size_of: SizeOf,
) -> int:
    """2 x (outputs) x (taps an output); a transposed one scatters each input over the taps."""
    taps = numel(inputs[1], size_of) // size_of(inputs[1].shape[0])
    positions = numel(inputs[0], size_of) if _is_transposed(name, args) else written
    return 2 * positions * taps + (written if len(inputs) > 2 else 0)


def _is_transposed(name: str, args: Sequence[object]) -> bool:
    generic = name in ("aten.convolution", "aten._convolution")
    return "transpose" in name or (generic and len(args) > 6 and bool(args[6]))


def _group_channels(
    name: str, args: Sequence[object], inputs: list[torch.Tensor], size_of: SizeOf
) -> int:
    """Channels that come into a group, 0 where each is a group of its own: the weight has [out, in
    of a group, *taps], a transposed one's [in, out of a group, *taps]."""
    channels = size_of(inputs[0].shape[1 - inputs[1].dim()])
    if not _is_transposed(name, args):
        own = size_of(inputs[1].shape[1])
    else:
        place = 8 if name in ("aten.convolution", "aten._convolution") else 6
        groups = args[place] if len(args) > place else 1
        own = channels // (groups if isinstance(groups, int) else 1)
    return 0 if own == 1 < channels else own


def _attention_flops(inputs: list[torch.Tensor], args: Sequence[object], size_of: SizeOf) -> int:
    """Both products, softmax left out; half of it where the call is causal (sixth argument)."""
    query, key, value = inputs[:3]
    keys, width = size_of(key.shape[-2]), size_of(query.shape[-1])
    rows = numel(query, size_of) // width
    whole = 2 * rows * keys * (width + size_of(value.shape[-1]))
    causal = len(args) > 5 and args[5] is True
    return whole // 2 if causal else whole


def _tensors(values: Sequence[object]) -> Iterator[torch.Tensor]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
