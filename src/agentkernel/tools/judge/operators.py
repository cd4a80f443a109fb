"""Which torch operators did a call run, and which of them compute?

Two logs: torch's own profiler, which sees every thread and runs below Python, and a dispatch mode,
which also knows dtypes and devices. Each must contain the operator that the witness slips in after
the call: a log that was switched off shows.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch.autograd import profiler
from torch.utils._python_dispatch import TorchDispatchMode

TINY_ELEMENTS = 64
SMALL_WORK = 16 * TINY_ELEMENTS
"""Elements that operators on tiny tensors may take in one call, all together."""
"""Arithmetic on tensors up to this size is bookkeeping."""
CAST_ELEMENTS = 4096
"""A change of dtype up to this size is bookkeeping."""
PREFIX = "aten::"
CANARY = "aten::erfinv"
FREE = {
    "_local_scalar_dense",
    "_to_copy",
    "_unsafe_view",
    "alpha_dropout",
    "arange",
    "clone",
    "copy_",
    "detach_",
    "dropout",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "eye",
    "feature_dropout",
    "fill_",
    "full",
    "full_like",
    "is_nonzero",
    "item",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "ones_like",
    "record_stream",
    "resize_",
    "result_type",
    "scalar_tensor",
    "set_",
    "zero_",
    "zeros",
    "zeros_like",
}
"""Allocation, filling, copying, questions. Views are known by their schema."""
FRESH = {
    f"{PREFIX}{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    )
}
"""What they give has not been written to."""
LIBRARY = {
    "_addmm_activation",
    "_convolution",
    "_scaled_mm",
    "addbmm",
    "addmm",
    "addmv",
    "baddbmm",
    "bilinear",
    "bmm",
    "chain_matmul",
    "convolution",
    "linear",
    "matmul",
    "mm",
    "mv",
}
LIBRARY_PREFIXES = (
    "_scaled_dot_product",
    "scaled_dot_product_attention",
    "_flash_attention",
    "_efficient_attention",
    "_cudnn_attention",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_",
    "conv_transpose",
    "cudnn_convolution",
    "miopen_convolution",
    "mkldnn_convolution",
    "mkldnn_linear",
    "_conv_depthwise",
    "slow_conv",
    "_slow_conv",
    "thnn_conv",
)


@dataclass
class Operators:
    """What one call ran, in order: `compute` and `library` name operators with the elements of
    their largest input, `moved` casts and copies off the device. `hidden`: a log was tampered
    with, and how that showed."""

    compute: list[str] = field(default_factory=list)
    library: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    hidden: str = ""


class Event(Protocol):
    """One event of torch's profiler."""

    name: str
    input_shapes: object
    cpu_children: Sequence[Event]
    cpu_parent: Event | None


def is_free(name: str) -> bool:
    """True for an operator (without "aten::") that allocates, copies or looks."""
    return name in FREE or _is_view(name)


def is_library(name: str) -> bool:
    """True for a library's matrix product, convolution or attention."""
    return name in LIBRARY or name.startswith(LIBRARY_PREFIXES)


@functools.cache
def _is_view(name: str) -> bool:
    """Every overload that takes a tensor first returns an alias of it and writes to none."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    schemas = [item for item in schemas if _takes_tensor(item)]
    return bool(schemas) and all(_returns_alias(schema) for schema in schemas)


def _takes_tensor(schema: torch._C.FunctionSchema) -> bool:
    arguments = schema.arguments
    out = any(item.is_out for item in arguments)
    return not out and bool(arguments) and str(arguments[0].type) == "Tensor"


def _returns_alias(schema: torch._C.FunctionSchema) -> bool:
    aliases = [item.alias_info for item in schema.returns]
    return bool(aliases) and all(item is not None and not item.is_write for item in aliases)


def elements(shapes: object) -> int:
    """Elements of the largest shape in the profiler's nested lists."""
    if not isinstance(shapes, list | tuple) or not shapes:
        return 0
    if all(isinstance(size, int) for size in shapes):
        count = 1
        for size in shapes:
            count *= size
        return count
    return max(elements(item) for item in shapes)


def sort_events(
    events: Iterable[Event], found: Operators, canary: Sequence[int] | None = None
) -> bool:
    """Sort the profiler's events into `found`; True where the operator slipped in, on a tensor of
    shape `canary`, is among them. An operator that only calls others is left to them; what a
    library operator calls is the library's."""
    seen = False
    small = 0
    for event in events:
        if "Torch-Compiled" in event.name or "CompiledFunction" in event.name:
            found.compute.append(f"{event.name} (compiled)")
            continue
        if event.name == CANARY and canary in _lists(event.input_shapes):
            seen = True
            continue
        if not event.name.startswith(PREFIX):
            continue
        name = event.name.removeprefix(PREFIX)
        if any(is_library(item) for item in _callers(event)):
            continue
        count = elements(event.input_shapes)
        if is_library(name):
            if not any(_own_name(child) == name for child in event.cpu_children):
                found.library.append(name)
        elif not is_free(name) and not _only_calls(event):
            if count > TINY_ELEMENTS:
                found.compute.append(f"{name} ({count} elements)")
            else:
                small += count
    if small > SMALL_WORK:
        found.compute.append(f"many operators on a few elements each ({small} elements)")
    return seen


def _own_name(event: Event) -> str:
    return event.name.removeprefix(PREFIX)


def _callers(event: Event) -> Iterator[str]:
    parent = event.cpu_parent
    while parent is not None:
        if parent.name != event.name:
            yield _own_name(parent)
        parent = parent.cpu_parent


def _only_calls(event: Event) -> bool:
    """True where the work is done by operators that it calls."""
    inner = [item for item in event.cpu_children if item.name.startswith(PREFIX)]
    return any(not is_free(_own_name(item)) for item in inner)


class Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands every operator below autograd to `note` after it ran."""

    def __init__(self, note: Callable[[str, Sequence[object], object], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func` as it is."""
        result = func(*args, **(kwargs or {}))
        self._note(func._schema.name, args, result)
        return result


def moved_data(name: str, args: Sequence[object], result: object) -> str:
    """What a copy did beyond copying: a cast, or a way off the device; "" for neither."""
    if name == "aten::_to_copy":
        source, target = args[0], result
    elif name == "aten::copy_" and len(args) > 1:
        source, target = args[1], args[0]
    else:
        return ""
    if not isinstance(source, torch.Tensor) or not isinstance(target, torch.Tensor):
        return ""
    count = source.numel()
    if source.is_cuda and not target.is_cuda and count > TINY_ELEMENTS:
        return f"copy to the host ({count} elements)"
    if source.dtype != target.dtype and count > CAST_ELEMENTS:
        return f"cast from {source.dtype} to {target.dtype} ({count} elements)"
    return ""


def record_operators(
    call: Callable[[], object],
    found: Operators,
    fresh: Callable[[torch.Tensor], object] | None = None,
    *,
    _profile: type[profiler.profile] = profiler.profile,
    _mode: type[Dispatched] = Dispatched,
    _canary: Callable[[torch.Tensor], torch.Tensor] = torch.erfinv,
) -> object:
    """What `call()` returns; `found` is filled in. `fresh` gets all memory that an operator gave
    unwritten. What is used is bound before any candidate is loaded, so that replacing it in its
    module changes nothing here."""
    seen: list[list[int]] = []
    mark = [random.SystemRandom().randrange(2, 1 << 12), 1, 3]

    def note(name: str, args: Sequence[object], result: object) -> None:
        if fresh is not None and name in FRESH:
            fresh(cast("torch.Tensor", result))
        if name == CANARY:
            seen.append(list(cast("torch.Tensor", args[0]).shape))
        text = moved_data(name, args, result)
        found.moved.extend([text] if text else [])

    log = _profiler(_profile)
    answer: list[object] = []
    try:
        with log if log is not None else contextlib.nullcontext(), _mode(note):
            answer.append(call())
            _canary(torch.zeros(mark))
    except RuntimeError as error:
        if not answer:
            raise
        found.hidden = f"a log of operators was ended by the call: {str(error)[:120]}"
        return answer[0]
    if log is not None:
        events = cast("Sequence[Event]", log.function_events or ())
        in_profile = sort_events(events, found, mark)
    else:
        in_profile = True
    if mark not in seen or not in_profile:
        found.hidden = "a log of operators was switched off during the call"
    return answer[0]


def _lists(shapes: object) -> list[object]:
    return list(shapes) if isinstance(shapes, list | tuple) else []


def _profiler(kind: type[profiler.profile]) -> profiler.profile | None:
    """A profiler of all threads; None where this torch has none."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        config = _ExperimentalConfig(profile_all_threads=True)
        return kind(record_shapes=True, experimental_config=config)
    except (ImportError, TypeError):
        return None


__all__ = ["Operators", "elements", "is_free", "is_library", "record_operators", "sort_events"]
