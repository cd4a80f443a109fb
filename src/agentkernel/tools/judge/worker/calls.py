"""One call of the candidate in the worker, with all that is to be seen of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.autograd.graph import increment_version
from torch.utils._pytree import tree_flatten, tree_map

from agentkernel.tools.judge.comparison.state import flat, read_state, set_state
from agentkernel.tools.judge.worker.launches import begin_launches, refusal, seen_in_launches
from agentkernel.tools.judge.worker.storage import (
    call_inputs,
    check_hoard,
    check_kept,
    check_storage,
    count_writes,
    deliver,
    describe,
    fill_fresh_memory,
    is_ref,
    owners_of,
    recall,
    trim_kept,
)
from agentkernel.tools.problem.structures import register_dataclasses, tree_text

if TYPE_CHECKING:
    from agentkernel.tools.judge.execution.tracer import Tracer
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


def run(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Call the model once; outputs that fit go to the parent's buffers, the reply describes all.

    Optional parts of the payload: `views` (where an input lies in its shared storage), `training`,
    `gradients` (recorded, as they are unless someone says otherwise), `kind` (what autograd knows
    of the tensors, see `cases.Kind`),
    `draws` (a seed for torch's generator), `default` (the caller's default dtype),
    `moved` (the weights are others than in the call before), `recall` (buffers that the outputs of
    the call before go to, once more, after this one), `kept` (the next call recalls this one's
    outputs), `hidden` (values of buffers and attributes
    that no state dict holds) and `hidden_after` (buffers for what the call leaves of them).
    """
    model = cast("nn.Module", state.memory["model"])
    state.memory["calls"] = cast("int", state.memory.get("calls", 0)) + 1
    values = call_inputs(payload, state)
    if payload.get("kind") == "written":
        _write_before(values)
    if payload.get("gradients") or payload.get("kind") == "activations":
        values = _activations(values, state)
    called = _in_inference if payload.get("inference") else _plainly
    with _marked(str(payload.get("kind")), state):
        return watched(lambda: called(model, values), values, payload, state)


def _plainly(model: nn.Module, values: Sequence[object]) -> object:
    return model(*values)


def _in_inference(model: nn.Module, values: Sequence[object]) -> object:
    """The call with inputs that were made in that mode, over the same memory."""
    with torch.inference_mode():
        given = [
            torch.empty(0, dtype=item.dtype, device=item.device).set_(item)  # type: ignore[call-overload]
            if isinstance(item, torch.Tensor)
            else item
            for item in values
        ]
        return model(*given)


def _write_before(values: Sequence[object]) -> None:
    """Let the inputs count a write, once each: between two calls on the same memory none shows."""
    for item in values:
        if isinstance(item, torch.Tensor) and not item._version:
            increment_version(item)


def _activations(values: Sequence[object], state: WorkerState) -> list[object]:
    """The inputs as a layer in the middle of a network gets them: those of floats require a
    gradient and are no leaves. The same object for the same tensor as in the call before."""
    kept = cast("dict[int, tuple[object, object]]", state.memory.get("activations", {}))
    used: dict[int, tuple[object, object]] = {}
    for item in values:
        if isinstance(item, torch.Tensor) and item.dtype.is_floating_point:
            if id(item) not in kept:
                leaf = item.detach().requires_grad_()
                with torch.enable_grad():
                    kept[id(item)] = item, leaf.view_as(leaf)
            used[id(item)] = kept[id(item)]
    state.memory["activations"] = used
    return [used[id(item)][1] if id(item) in used else item for item in values]


@contextlib.contextmanager
def _marked(kind: str, state: WorkerState) -> Iterator[None]:
    """The parameters frozen, or with gradients, meanwhile."""
    parameters = cast("Sequence[nn.Parameter]", state.memory["parameters"])
    wanted = [item for item in parameters if item.requires_grad]
    if kind == "frozen":
        for item in wanted:
            item.requires_grad_(False)
    elif kind == "graded":
        for item in wanted:
            item.grad = item.new_zeros(()).expand(item.shape)
    try:
        yield
    finally:
        for item in wanted:
            item.grad = None
            item.requires_grad_(True)


def watched(
    call: Callable[[], object],
    values: Sequence[object],
    payload: Mapping[str, object],
    state: WorkerState,
) -> dict[str, JSON]:
    """`call`, a call of the model on `values`, with all that is to be seen of it."""
    model = cast("nn.Module", state.memory["model"])
    tracer = cast("Tracer", state.memory["witness"])
    buffers = cast("Sequence[object]", payload["outputs"])
    if not payload.get("recall"):
        trim_kept(state)
    rooms = [None if item is None else state.open(item) for item in buffers]
    owners = owners_of(values, state)
    fill_fresh_memory(state, rooms)
    if payload.get("moved"):
        count_writes(state)
    if payload.get("draws") is not None:
        torch.manual_seed(cast(int, payload["draws"]))
    check_kept(state, set(owners), payload)
    launches = begin_launches(state, str(payload["order"]), owners)
    marks = _marks(values, state)
    try:
        with torch.set_grad_enabled(bool(payload.get("gradients"))):
            answer = tracer.call(
                lambda: _called(model, call, rooms, payload, state),
                owners,
                _on_host(rooms),
                max((x.numel() for x in values if isinstance(x, torch.Tensor)), default=0),
            )
    except Exception as error:
        refused = refusal(state)
        if refused is None:
            raise
        raise refused from error
    tracer.inspect(answer.leaves)
    outputs: list[JSON] = [describe(leaf) for leaf in answer.leaves]
    places: dict[int, int] = {}
    for index, (leaf, described) in enumerate(zip(answer.leaves, outputs, strict=True)):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            place = leaf.untyped_storage().data_ptr()
            told = cast("dict[str, JSON]", described)
            told["shares"] = owners.get(place)
            told["with"] = places.setdefault(place, index)
            told["pretends"] = leaf.requires_grad and not _reaches(leaf, owners)
    recall(payload, state)
    check_storage(state, set(owners), answer.leaves, keep=bool(payload.get("kept")))
    check_hoard(state, [*values, *answer.leaves])
    seen = seen_in_launches(state)
    stored = cast("Sequence[str]", seen.pop("wrote"))
    wrote = sorted({*tracer.wrote(), *stored, *_changed(marks, values, state)})
    return {
        "tree": answer.tree,
        "outputs": outputs,
        "launches": cast("JSON", list(launches)),
        **seen,
        "wrote": cast("JSON", wrote),
        "hidden": answer.hidden,
    }


def _marks(values: Sequence[object], state: WorkerState) -> dict[str, tuple[bool, int]]:
    """Of each input and parameter whether it requires a gradient, and how many hooks it has."""
    parameters = cast("Sequence[nn.Parameter]", state.memory["parameters"])
    named = {f"input {place}": item for place, item in enumerate(values)}
    named |= {f"parameter {place}": item for place, item in enumerate(parameters)}
    return {
        name: (item.requires_grad, len(item._backward_hooks or ()))
        for name, item in named.items()
        if isinstance(item, torch.Tensor)
    }


def _changed(
    marks: Mapping[str, tuple[bool, int]], values: Sequence[object], state: WorkerState
) -> list[str]:
    """What the call has left otherwise and no operator shows: gradients switched on or off, hooks,
    the mode of a module. A property that a class puts in the mode's place is not asked."""
    found = [name for name, mark in _marks(values, state).items() if marks[name] != mark]
    model, training = cast("nn.Module", state.memory["model"]), state.memory["training"]
    modes = {item.__dict__.get("training", training) for item in nn.Module.modules(model)}
    return found + ["the mode of a module"] * (modes != {training})


def _reaches(leaf: torch.Tensor, owners: Mapping[int, str]) -> bool:
    """Whether a gradient of `leaf`, which requires one, comes to any of the memory of `owners`."""
    if leaf.untyped_storage().data_ptr() in owners:
        return True
    left = [leaf.grad_fn]
    seen = set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        # Only its name tells it from a node of the candidate's own, which has what it likes.
        end = node.variable if node.name() == "torch::autograd::AccumulateGrad" else None  # type: ignore[attr-defined]
        if end is not None and end.untyped_storage().data_ptr() in owners:
            return True
        left += [following for following, _ in node.next_functions]
    return False


@dataclass(frozen=True)
class CallResult:
    """What a call gave, as it was when the call returned: the leaves of its result and how they
    are held, and the hidden state that it left."""

    leaves: list[object]
    tree: str
    hidden: JSON


def _called(
    model: nn.Module,
    call: Callable[[], object],
    rooms: Sequence[torch.Tensor | None],
    payload: Mapping[str, object],
    state: WorkerState,
) -> CallResult:
    """The call, and all else that runs code of the candidate: setters and getters of its state, the
    change of its mode, the taking apart of what it returned. The outputs are copied before anything
    else of it may run."""
    set_hidden(model, payload, state)
    _set_mode(model, bool(payload.get("training")), state)
    with _default_dtype(str(payload.get("default") or "")):
        result = call()
    register_dataclasses(result)
    leaves, spec = tree_flatten(result)
    for leaf, room in zip(leaves, rooms, strict=False):
        if isinstance(leaf, torch.Tensor) and room is not None:
            deliver(leaf, room)
    return CallResult(leaves, tree_text(spec), read_hidden(model, payload, state))


@contextlib.contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    """torch's default dtype is `name` inside; "" leaves it as it is. What the call itself sets is
    left for those who look after it."""
    before = torch.get_default_dtype()
    inside = getattr(torch, name) if name else before
    if name:
        torch.set_default_dtype(inside)
    try:
        yield
    finally:
        if name and torch.get_default_dtype() == inside:
            torch.set_default_dtype(before)


def _on_host(rooms: Sequence[torch.Tensor | None]) -> set[int]:
    """The storages of those that lie there, since the device has no room for them."""
    return {
        room.untyped_storage().data_ptr()
        for room in rooms
        if room is not None and not room.is_cuda and room.numel()
    }


def _set_mode(model: nn.Module, training: bool, state: WorkerState) -> None:
    """Only where it is another than in the call before: `train` may be the candidate's own."""
    if state.memory["training"] is not training:
        state.memory["training"] = training
        model.train(training)


def set_hidden(model: nn.Module, payload: Mapping[str, object], state: WorkerState) -> None:
    """Bring buffers and attributes to the values that the call starts from."""
    for name, value in cast("Mapping[str, object]", payload.get("hidden") or {}).items():
        given = tree_map(lambda x: state.open(x).clone() if is_ref(x) else x, value)
        set_state(model, name, given)


def read_hidden(model: nn.Module, payload: Mapping[str, object], state: WorkerState) -> JSON:
    """Describe what the call has left of them; tensors that fit go to the parent's buffers."""
    found: dict[str, JSON] = {}
    wanted = cast("Mapping[str, Sequence[object]]", payload.get("hidden_after") or {})
    for name, buffers in wanted.items():
        leaves, tree = flat(read_state(model, name))
        found[name] = {"tree": tree, "leaves": [describe(leaf) for leaf in leaves]}
        for leaf, buffer in zip(leaves, buffers, strict=False):
            if isinstance(leaf, torch.Tensor) and buffer is not None:
                deliver(leaf, state.open(buffer))
    return found
