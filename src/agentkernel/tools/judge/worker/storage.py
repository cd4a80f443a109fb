"""Memory of calls in the worker: whose it is, what is kept of it, and what may not be held."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.tensors import TensorRef
    from agentkernel.tools.sandbox.worker import WorkerState

KEPT_BYTES = 1 << 30
HOARD_BYTES = 256 << 20
HOARD_FACTOR = 8
"""Packed weights, work space and what is kept for several shapes lie far below."""
MOST_HELD = 16
"""Inputs of so many calls may be held when their caller has let go of them."""
KEPT_CALLS = 64
"""Outputs of so many calls, up to this size, are kept: later calls must not write over them. That
is more than a judgement makes in one form. Those of the last call are kept at any size where the
parent is going to ask for them again."""


def is_ref(item: object) -> bool:
    """Whether `item` names a tensor of the parent's shared memory."""
    return type(item).__name__ == "TensorRef"


def call_inputs(payload: Mapping[str, object], state: WorkerState) -> list[object]:
    """The call's inputs; the same tensor as the same object, so that caching by identity shows."""
    given = cast("Sequence[object]", payload["inputs"])
    views = cast("Sequence[object]", payload.get("views") or [None] * len(given))
    kept = cast("dict[object, torch.Tensor]", state.memory.get("views", {}))
    found: list[object] = []
    used: dict[object, torch.Tensor] = {}
    for item, view in zip(given, views, strict=True):
        if not is_ref(item):
            found.append(item)
            continue
        tensor = state.open(item)
        _note_given(item, tensor, state)
        if view is not None:
            key = (item.number, view)  # type: ignore[attr-defined]
            tensor = used[key] = kept.get(key, tensor.as_strided(*view))  # type: ignore[misc]
        found.append(tensor)
    state.memory["views"] = used
    return found


def _note_given(item: object, tensor: torch.Tensor, state: WorkerState) -> None:
    """A weak reference to the memory of an input, with the number of the call."""
    given = cast("dict[int, tuple[int, object]]", state.memory["given"])
    number = cast("TensorRef", item).number
    if state.interpret and number not in given:
        calls = cast("int", state.memory.get("calls", 0))
        given[number] = (calls, StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]


def _check_given(state: WorkerState) -> None:
    """Inputs of a few calls may be held: the last ones of each form, say. All of them may not."""
    given = cast("dict[int, tuple[int, StorageWeakRef]]", state.memory.get("given", {}))

    def held() -> set[int]:
        gone = [number for number in given if not state.tensors.holds(number)]
        for number in gone:
            if given[number][1].expired():  # type: ignore[no-untyped-call]
                del given[number]
        return {given[number][0] for number in gone if number in given}

    if len(held()) > MOST_HELD:
        gc.collect()
        calls = held()
        if len(calls) > MOST_HELD:
            raise HoardedMemory(f"inputs of {len(calls)} calls are held after nobody uses them")


def weights_of(state: WorkerState) -> Mapping[str, torch.Tensor]:
    """The parent's tensors behind parameters and buffers. The module is not asked: what it answers
    with is code of the candidate."""
    return cast("Mapping[str, torch.Tensor]", state.memory["weights"])


def count_up(value: torch.Tensor, version: int) -> None:
    """Let `value` count writes up to `version`."""
    with torch.no_grad():
        while value._version < version:
            value.copy_(value)


def count_writes(state: WorkerState) -> None:
    """The parent has written to the weights: say so, as an optimiser's step would. A module that
    takes its turn counts as many writes as the one before it."""
    counts = cast("Mapping[str, int]", state.memory["counts"])
    with torch.no_grad():
        for name, value in weights_of(state).items():
            value.copy_(value)
            count_up(value, counts.get(name, 0))


def fill_fresh_memory(state: WorkerState, buffers: Sequence[torch.Tensor | None]) -> None:
    """Leave NaN in the memory that the allocator will hand out for outputs."""
    if state.device != "cuda":
        return
    tensors = [item for item in buffers if item is not None]
    if sum(item.nbytes for item in tensors) > KEPT_BYTES:
        return
    rooms = [torch.empty_like(item) for item in tensors if item.dtype.is_floating_point]
    for room in rooms:
        room.fill_(torch.nan)


def owners_of(values: Sequence[object], state: WorkerState) -> dict[int, str]:
    """Storages of inputs, parameters and buffers, and what to call them."""
    named = {f"input {i}": item for i, item in enumerate(values) if isinstance(item, torch.Tensor)}
    named |= weights_of(state)
    return {item.untyped_storage().data_ptr(): name for name, item in named.items() if item.numel()}


def recall(payload: Mapping[str, object], state: WorkerState) -> None:
    """Deliver the outputs of the call before once more: they must still be what they were."""
    calls = cast("list[list[torch.Tensor | None]]", state.memory.get("earlier", []))
    buffers = cast("Sequence[object]", payload.get("recall") or [])
    for leaf, buffer in zip(calls[-1] if calls else [], buffers, strict=False):
        if leaf is not None and buffer is not None:
            deliver(leaf, state.open(buffer))


class ReusedStorage(Exception):
    """An output lies where an earlier call's output still lies: a later call would change it."""


def check_storage(
    state: WorkerState, own: set[int], leaves: Sequence[object], *, keep: bool
) -> None:
    """Compare with the outputs of earlier calls, which are kept alive until now; `keep` says that
    this call's are kept however large they are."""
    tensors = [item if isinstance(item, torch.Tensor) and item.numel() else None for item in leaves]
    # What a graph holds on to is let go of.
    tensors = [x.detach() if x is not None and x.requires_grad else x for x in tensors]
    calls = cast("list[list[torch.Tensor | None]]", state.memory.pop("earlier", []))
    kept = [item for call in calls for item in call if item is not None]
    taken = {item.untyped_storage().data_ptr() for item in kept} - own
    for index, item in enumerate(tensors):
        if item is not None and item.untyped_storage().data_ptr() in taken:
            raise ReusedStorage(f"output {index} lies in the storage of an earlier call's output")
    state.memory["earlier"] = [*calls, tensors][-KEPT_CALLS:]
    trim_kept(state, least=int(keep))


def check_kept(state: WorkerState, own: set[int], payload: Mapping[str, object]) -> None:
    """Let go of the outputs of the calls before, and see whether their memory goes too: what
    somebody still holds will be handed out, or written over, again."""
    calls = cast("list[list[torch.Tensor | None]]", state.memory.get("earlier", []))
    released = bool(payload.get("release"))
    if not released or len(calls) < 1 or payload.get("recall"):
        return
    storages = {
        item.untyped_storage().data_ptr(): StorageWeakRef(item.untyped_storage())  # type: ignore[no-untyped-call]
        for call in calls
        for item in call
        if item is not None
    }
    calls.clear()
    state.memory["earlier"] = []
    _check_given(state)
    held = [ref for place, ref in storages.items() if place not in own and not ref.expired()]  # type: ignore[no-untyped-call]
    if held:
        gc.collect()
        held = [ref for ref in held if not ref.expired()]  # type: ignore[no-untyped-call]
    if held:
        raise ReusedStorage(f"{len(held)} outputs of earlier calls are held after nobody uses them")


def trim_kept(state: WorkerState, least: int = 0) -> None:
    """Keep outputs of as many calls as lie within `KEPT_BYTES`, and of `least` at any size."""
    calls = cast("list[list[torch.Tensor | None]]", state.memory.get("earlier", []))
    while len(calls) > least and _bytes(calls) > KEPT_BYTES:
        calls = calls[1:]
    state.memory["earlier"] = calls


class HoardedMemory(Exception):
    """Between calls the candidate holds more device memory than its work can need."""


def check_hoard(state: WorkerState, tensors: Sequence[object]) -> None:
    """What is held beyond the outputs that are kept here. The parent's own tensors are no part of
    what the allocator counts."""
    if state.device != "cuda":
        return
    kept = _bytes(cast("list[list[torch.Tensor | None]]", state.memory.get("earlier", [])))
    seen = cast("dict[tuple[object, ...], int]", state.memory.setdefault("needs", {}))
    known = [item for item in tensors if isinstance(item, torch.Tensor)]
    seen[tuple(item.shape for item in known)] = sum(item.nbytes for item in known)
    weights = sum(item.nbytes for item in weights_of(state).values())
    allocated = cast("Callable[[], int]", state.memory["allocated"])
    refuse_hoard(allocated() - kept, weights + sum(seen.values()))


def refuse_hoard(held: int, needed: int) -> None:
    """`needed`: bytes of the weights, and of the inputs and outputs of each form of call so far:
    static buffers and work space are kept for each. Raises HoardedMemory."""
    if held > HOARD_BYTES + HOARD_FACTOR * needed:
        raise HoardedMemory(
            f"{held >> 20} MB of device memory are held after calls on {needed >> 20} MB of "
            "inputs, outputs and weights"
        )


def _bytes(calls: Sequence[Sequence[torch.Tensor | None]]) -> int:
    return sum(x.untyped_storage().nbytes() for call in calls for x in call if x is not None)


def deliver(leaf: torch.Tensor, buffer: torch.Tensor) -> None:
    """Copy `leaf` to the parent's buffer where shape and dtype are as expected."""
    if leaf.shape == buffer.shape and leaf.dtype == buffer.dtype:
        buffer.copy_(leaf.detach())


def describe(leaf: object) -> JSON:
    """Dtype, shape, strides, device and class of a tensor; of anything else its text."""
    if isinstance(leaf, torch.Tensor):
        return {
            "dtype": str(leaf.dtype).removeprefix("torch."),
            "shape": [int(size) for size in leaf.shape],
            "stride": [int(step) for step in leaf.stride()],
            "device": leaf.device.type,
            "type": type(leaf).__name__,
        }
    if leaf is None or type(leaf) in (bool, int, float, str):
        return {"literal": repr(leaf)}
    return {"literal": f"<{type(leaf).__name__}>"}
