"""Operations of the sandboxed worker for the judge: build, load weights, call, differentiate.

The worker never sees the reference output. Inputs, weights and outputs lie in memory that the
parent shares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType

    import torch
    from torch import nn
    from torch.multiprocessing.reductions import StorageWeakRef

    from agentkernel.domain.problem import DataStructure
    from agentkernel.tools.judge.execution.tracer import Tracer
    from agentkernel.tools.judge.gradients import RecordedForward
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


def build(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build `ModelNew` under the given seed and write its initial state into the parent's buffers.

    The reply names every entry of the state dict with dtype and shape.
    """
    import torch

    from agentkernel.tools.judge.execution.tracer import install_tracer

    if state.interpret:
        from agentkernel.tools.judge.interpreter.hooks import install_hooks, seed_masked_lanes

        hardened = install_hooks()
        hardened.unnamed_dot_allowed = bool(payload["unnamed_dot_allowed"])
        hardened.casts_as_here = bool(payload.get("casts_as_here"))
        seed_masked_lanes(cast("int | None", payload.get("leftovers")))
    else:
        _hook_launches(state)
        state.memory.setdefault("allocated", torch.cuda.memory_allocated)
    # As use_deterministic_algorithms(True, warn_only=True), which imports all of torch._inductor.
    torch.set_deterministic_debug_mode("warn")
    state.memory["leftovers"] = payload.get("leftovers")
    tracer = install_tracer(state)
    source = str(payload["source"])
    namespace = cast("ModuleType", tracer.loading(lambda: state.execute(source)))

    def make() -> nn.Module:
        built = tracer.loading(
            lambda: state.built(
                namespace,
                "ModelNew",
                cast("Sequence[object]", payload["init_args"]),
                cast("Mapping[str, object]", payload["init_kwargs"]),
                cast(int, payload["seed"]),
                cast("DataStructure | None", payload.get("arguments")),
            )
        )
        return cast("nn.Module", built)

    model = make()
    tracer.loaded(source)
    state.memory["make"] = make
    state.memory["model"] = model
    state.memory["training"] = False
    state.memory["aside"] = {}
    state.memory["counts"] = {}
    state.memory["given"] = {}
    refs = cast("Mapping[str, object]", payload["initial"])
    found: dict[str, JSON] = {}
    for name, value in model.state_dict().items():
        found[name] = [str(value.dtype).removeprefix("torch."), list(value.shape)]
        if name in refs:
            buffer = state.open(refs[name])
            if buffer.shape == value.shape and buffer.dtype == value.dtype:
                buffer.copy_(value)
    return {"state": found, "parameters": cast("JSON", parameter_roles(model))}


def parameter_roles(model: nn.Module) -> dict[str, list[object]]:
    """Of each parameter by name: whether it requires a gradient, and the first name of the same
    object."""
    first: dict[int, str] = {}
    return {
        name: [bool(value.requires_grad), first.setdefault(id(value), name)]
        for name, value in model.named_parameters(remove_duplicate=False)
    }


def adopt(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Make the parent's shared tensors the model's own parameters and buffers."""
    refs = cast("Mapping[str, object]", payload["state"])
    model = cast("nn.Module", state.memory["model"])
    weights = {name: state.open(ref) for name, ref in refs.items()}
    model.load_state_dict(weights, assign=True)
    state.memory["weights"] = weights
    state.memory["parameters"] = list(model.parameters())
    return {}


def turn(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """From now on module number `to` is called, after number `from`: one that is built from the
    same file where `state` names the parent's tensors behind it; `built` anew over its tensors;
    with other parameter objects, where these are to be `replaced`.

    What is new shows the count of writes that was shown before it, as modules do that were loaded
    from two checkpoints.
    """
    aside = cast("dict[object, dict[str, object]]", state.memory["aside"])
    left = dict(_weights(state))
    if payload["to"] != payload["from"]:
        aside[payload["from"]] = {
            key: state.memory[key] for key in ("model", "weights", "parameters", "training")
        }
        state.memory["counts"] = {name: value._version for name, value in left.items()}
        state.memory.update(aside.pop(payload["to"], {}))
    refs = cast("Mapping[str, object] | None", payload.get("state"))
    if refs is None:
        weights = {name: value.detach() for name, value in _weights(state).items()}
    else:
        weights = {name: state.open(ref) for name, ref in refs.items()}
        for name, value in weights.items():
            _count_up(value, left[name]._version)
    if payload["built"] or (refs is not None and not payload["replaced"]):
        state.memory["model"] = cast("Callable[[], nn.Module]", state.memory["make"])()
        state.memory["training"] = False
    elif not payload["replaced"]:
        return {}
    model = cast("nn.Module", state.memory["model"])
    # A parameter that the candidate keeps under a name of its own is no part of what is loaded.
    model.load_state_dict(weights, strict=not payload["replaced"], assign=True)
    state.memory["weights"] = weights
    state.memory["parameters"] = list(model.parameters())
    return {}


def _count_up(value: torch.Tensor, version: int) -> None:
    import torch

    with torch.no_grad():
        while value._version < version:
            value.copy_(value)


def look(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """The hidden state that the constructor has left."""
    model = cast("nn.Module", state.memory["model"])
    return {"hidden": _read_hidden(model, payload, state)}


def disturb(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Call the model with tensors without dimensions of the dtypes `kinds` (None: `scalars` has the
    value), then with None in their places. What it raises is nobody's matter."""
    import torch

    model = cast("nn.Module", state.memory["model"])
    kinds = cast("Sequence[str | None]", payload["kinds"])
    scalars = cast("Sequence[object]", payload["scalars"])
    single = [
        value if kind is None else torch.zeros((), dtype=getattr(torch, kind))
        for kind, value in zip(kinds, scalars, strict=True)
    ]
    for values in (single, scalars):
        with contextlib.suppress(Exception), torch.no_grad():
            model(*values)
    return {}


def method(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Call a method of the module with nothing."""
    import torch

    with torch.no_grad():
        getattr(cast("nn.Module", state.memory["model"]), str(payload["name"]))()
    return {}


def rest(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """After a large call: give back the device memory that is held and not used."""
    import torch

    if state.device == "cuda":
        torch.cuda.empty_cache()
    return {}


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
    values = _inputs(payload, state)
    if payload.get("kind") == "written":
        _write_before(values)
    if payload.get("gradients") or payload.get("kind") == "activations":
        values = _activations(values, state)
    called = _in_inference if payload.get("inference") else _plainly
    with _marked(str(payload.get("kind")), state):
        return _watched(lambda: called(model, values), values, payload, state)


def _plainly(model: nn.Module, values: Sequence[object]) -> object:
    return model(*values)


def _in_inference(model: nn.Module, values: Sequence[object]) -> object:
    """The call with inputs that were made in that mode, over the same memory."""
    import torch

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
    import torch
    from torch.autograd.graph import increment_version

    for item in values:
        if isinstance(item, torch.Tensor) and not item._version:
            increment_version(item)


def _activations(values: Sequence[object], state: WorkerState) -> list[object]:
    """The inputs as a layer in the middle of a network gets them: those of floats require a
    gradient and are no leaves. The same object for the same tensor as in the call before."""
    import torch

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


def _watched(
    call: Callable[[], object],
    values: Sequence[object],
    payload: Mapping[str, object],
    state: WorkerState,
) -> dict[str, JSON]:
    """`call`, a call of the model on `values`, with all that is to be seen of it."""
    import torch

    model = cast("nn.Module", state.memory["model"])
    tracer = cast("Tracer", state.memory["witness"])
    buffers = cast("Sequence[object]", payload["outputs"])
    if not payload.get("recall"):
        _trim(state)
    rooms = [None if item is None else state.open(item) for item in buffers]
    owners = _owners(values, state)
    _spoil(state, rooms)
    if payload.get("moved"):
        _bump(state)
    if payload.get("draws") is not None:
        torch.manual_seed(cast(int, payload["draws"]))
    _check_kept(state, set(owners), payload)
    launches = _start(state, str(payload["order"]), owners)
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
        refusal = _refusal(state)
        if refusal is None:
            raise
        raise refusal from error
    tracer.inspect(answer.leaves)
    outputs: list[JSON] = [_describe(leaf) for leaf in answer.leaves]
    places: dict[int, int] = {}
    for index, (leaf, described) in enumerate(zip(answer.leaves, outputs, strict=True)):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            place = leaf.untyped_storage().data_ptr()
            told = cast("dict[str, JSON]", described)
            told["shares"] = owners.get(place)
            told["with"] = places.setdefault(place, index)
            told["pretends"] = leaf.requires_grad and not _reaches(leaf, owners)
    _recall(payload, state)
    _check_storage(state, set(owners), answer.leaves, keep=bool(payload.get("kept")))
    _check_hoard(state, [*values, *answer.leaves])
    return {
        "tree": answer.tree,
        "outputs": outputs,
        "launches": cast("JSON", list(launches)),
        "loads_outside": cast("JSON", _loads_outside(state)),
        "products": cast("JSON", _products(state)),
        "races": cast("JSON", _races(state)),
        "wrote": cast(
            "JSON", sorted({*tracer.wrote(), *_stored(state), *_changed(marks, values, state)})
        ),
        "hidden": answer.hidden,
    }


def _marks(values: Sequence[object], state: WorkerState) -> dict[str, tuple[bool, int]]:
    """Of each input and parameter whether it requires a gradient, and how many hooks it has."""
    import torch

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
    from torch import nn

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
    import torch
    from torch.utils._pytree import tree_flatten

    from agentkernel.tools.problem.structures import register_dataclasses, tree_text

    _set_hidden(model, payload, state)
    _set_mode(model, bool(payload.get("training")), state)
    with _default_dtype(str(payload.get("default") or "")):
        result = call()
    register_dataclasses(result)
    leaves, spec = tree_flatten(result)
    for leaf, room in zip(leaves, rooms, strict=False):
        if isinstance(leaf, torch.Tensor) and room is not None:
            _deliver(leaf, room)
    return CallResult(leaves, tree_text(spec), _read_hidden(model, payload, state))


@contextlib.contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    """torch's default dtype is `name` inside; "" leaves it as it is. What the call itself sets is
    left for those who look after it."""
    import torch

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


def _set_hidden(model: nn.Module, payload: Mapping[str, object], state: WorkerState) -> None:
    """Bring buffers and attributes to the values that the call starts from."""
    from torch.utils._pytree import tree_map

    from agentkernel.tools.judge.comparison.state import set_state

    for name, value in cast("Mapping[str, object]", payload.get("hidden") or {}).items():
        given = tree_map(lambda x: state.open(x).clone() if _is_ref(x) else x, value)
        set_state(model, name, given)


def _read_hidden(model: nn.Module, payload: Mapping[str, object], state: WorkerState) -> JSON:
    """Describe what the call has left of them; tensors that fit go to the parent's buffers."""
    import torch

    from agentkernel.tools.judge.comparison.state import flat, read_state

    found: dict[str, JSON] = {}
    wanted = cast("Mapping[str, Sequence[object]]", payload.get("hidden_after") or {})
    for name, buffers in wanted.items():
        leaves, tree = flat(read_state(model, name))
        found[name] = {"tree": tree, "leaves": [_describe(leaf) for leaf in leaves]}
        for leaf, buffer in zip(leaves, buffers, strict=False):
            if isinstance(leaf, torch.Tensor) and buffer is not None:
                _deliver(leaf, state.open(buffer))
    return found


def _is_ref(item: object) -> bool:
    return type(item).__name__ == "TensorRef"


def differentiate(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Differentiate one call in the `way` that `gradients.Pass` says, for `ends`, gradients of its
    outputs in each round; those of inputs and parameters go to the buffers in `gradients` after the
    last one. The call is watched; its outputs are delivered as by `run`, and once more after the
    backward passes. `refuses_changes` says that a round of changed inputs raised."""
    import torch
    from torch.utils._pytree import tree_leaves

    from agentkernel.tools.judge.gradients import BackwardPass, gradients, record_forward, rolled

    model = cast("nn.Module", state.memory["model"])
    way = BackwardPass(**cast("dict[str, bool]", payload["way"]))  # type: ignore[arg-type]
    refs = cast("Mapping[str, Sequence[object]]", payload["ends"])
    rounds = {
        name: [None if ref is None else state.open(ref) for ref in ends]
        for name, ends in refs.items()
    }
    rooms = cast("Mapping[str, Mapping[str, object]]", payload["gradients"])
    values = _inputs(payload, state)
    named = dict(model.named_parameters())
    recorded: list[RecordedForward] = []

    def call() -> object:
        recorded.append(record_forward(model, named, values, way.wanted))
        return recorded[-1].result

    reply = _watched(call, values, payload, state)
    first = next(iter(rounds.values()))
    second = record_forward(model, named, rolled(values), way.wanted) if way.beside else None
    beside = () if second is None else tree_leaves(second.result)
    if second is not None and way.beside == "first":
        gradients(second, beside, first)
    leaves = tree_leaves(recorded[0].result)
    found: dict[str, Mapping[str, torch.Tensor]] = {}
    for name, ends in rounds.items():
        last = name == [*rounds][-1] and "changed" not in rooms
        found[name] = gradients(recorded[0], leaves, ends, way.twice, last)
    if second is not None and way.beside == "last":
        gradients(second, beside, first)
    # The caller still holds the outputs: what the backward passes did to them counts.
    for leaf, ref in zip(leaves, cast("Sequence[object]", payload["outputs"]), strict=False):
        if isinstance(leaf, torch.Tensor) and _is_ref(ref):
            with torch.no_grad():
                _deliver(leaf, state.open(ref))
    if "changed" in rooms:
        changed = _once_changed(recorded[0], leaves, first, named)
        found["changed"] = changed or {}
        reply["refuses_changes"] = changed is None
    with torch.no_grad():
        for name, wanted in rooms.items():
            for place, ref in wanted.items():
                if place in found[name]:
                    _deliver(found[name][place], state.open(ref))
    return reply


def _once_changed(
    recorded: RecordedForward,
    leaves: Sequence[object],
    ends: Sequence[torch.Tensor | None],
    named: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor] | None:
    """The gradients after inputs and parameters were written to in place; None where that raises,
    as eager does where it needs the old values."""
    from agentkernel.tools.judge.gradients import change, gradients

    put_back = change([*{id(x): x for x in (*recorded.leaves.values(), *named.values())}.values()])
    try:
        return gradients(recorded, leaves, ends)
    except Exception:  # noqa: BLE001 - whatever it raises, the caller gets no wrong gradient
        return None
    finally:
        put_back()


def _inputs(payload: Mapping[str, object], state: WorkerState) -> list[object]:
    """The call's inputs; the same tensor as the same object, so that caching by identity shows."""
    given = cast("Sequence[object]", payload["inputs"])
    views = cast("Sequence[object]", payload.get("views") or [None] * len(given))
    kept = cast("dict[object, torch.Tensor]", state.memory.get("views", {}))
    found: list[object] = []
    used: dict[object, torch.Tensor] = {}
    for item, view in zip(given, views, strict=True):
        if not _is_ref(item):
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
    from torch.multiprocessing.reductions import StorageWeakRef

    given = cast("dict[int, tuple[int, object]]", state.memory["given"])
    number = cast("TensorRef", item).number
    if state.interpret and number not in given:
        calls = cast("int", state.memory.get("calls", 0))
        given[number] = (calls, StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]


def _check_given(state: WorkerState) -> None:
    """Inputs of a few calls may be held: the last ones of each form, say. All of them may not."""
    import gc

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


def _weights(state: WorkerState) -> Mapping[str, torch.Tensor]:
    """The parent's tensors behind parameters and buffers. The module is not asked: what it answers
    with is code of the candidate."""
    return cast("Mapping[str, torch.Tensor]", state.memory["weights"])


def _bump(state: WorkerState) -> None:
    """The parent has written to the weights: say so, as an optimiser's step would. A module that
    takes its turn counts as many writes as the one before it."""
    import torch

    counts = cast("Mapping[str, int]", state.memory["counts"])
    with torch.no_grad():
        for name, value in _weights(state).items():
            value.copy_(value)
            _count_up(value, counts.get(name, 0))


def _spoil(state: WorkerState, buffers: Sequence[torch.Tensor | None]) -> None:
    """Leave NaN in the memory that the allocator will hand out for outputs."""
    import torch

    if state.device != "cuda":
        return
    tensors = [item for item in buffers if item is not None]
    if sum(item.nbytes for item in tensors) > KEPT_BYTES:
        return
    rooms = [torch.empty_like(item) for item in tensors if item.dtype.is_floating_point]
    for room in rooms:
        room.fill_(torch.nan)


def _owners(values: Sequence[object], state: WorkerState) -> dict[int, str]:
    """Storages of inputs, parameters and buffers, and what to call them."""
    import torch

    named = {f"input {i}": item for i, item in enumerate(values) if isinstance(item, torch.Tensor)}
    named |= _weights(state)
    return {item.untyped_storage().data_ptr(): name for name, item in named.items() if item.numel()}


def _recall(payload: Mapping[str, object], state: WorkerState) -> None:
    """Deliver the outputs of the call before once more: they must still be what they were."""
    calls = cast("list[list[torch.Tensor | None]]", state.memory.get("earlier", []))
    buffers = cast("Sequence[object]", payload.get("recall") or [])
    for leaf, buffer in zip(calls[-1] if calls else [], buffers, strict=False):
        if leaf is not None and buffer is not None:
            _deliver(leaf, state.open(buffer))


class ReusedStorage(Exception):
    """An output lies where an earlier call's output still lies: a later call would change it."""


def _check_storage(
    state: WorkerState, own: set[int], leaves: Sequence[object], *, keep: bool
) -> None:
    """Compare with the outputs of earlier calls, which are kept alive until now; `keep` says that
    this call's are kept however large they are."""
    import torch

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
    _trim(state, least=int(keep))


def _check_kept(state: WorkerState, own: set[int], payload: Mapping[str, object]) -> None:
    """Let go of the outputs of the calls before, and see whether their memory goes too: what
    somebody still holds will be handed out, or written over, again."""
    import gc

    from torch.multiprocessing.reductions import StorageWeakRef

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


def _trim(state: WorkerState, least: int = 0) -> None:
    """Keep outputs of as many calls as lie within `KEPT_BYTES`, and of `least` at any size."""
    calls = cast("list[list[torch.Tensor | None]]", state.memory.get("earlier", []))
    while len(calls) > least and _bytes(calls) > KEPT_BYTES:
        calls = calls[1:]
    state.memory["earlier"] = calls


class HoardedMemory(Exception):
    """Between calls the candidate holds more device memory than its work can need."""


def _check_hoard(state: WorkerState, tensors: Sequence[object]) -> None:
    """What is held beyond the outputs that are kept here. The parent's own tensors are no part of
    what the allocator counts."""
    import torch

    if state.device != "cuda":
        return
    kept = _bytes(cast("list[list[torch.Tensor | None]]", state.memory.get("earlier", [])))
    seen = cast("dict[tuple[object, ...], int]", state.memory.setdefault("needs", {}))
    known = [item for item in tensors if isinstance(item, torch.Tensor)]
    seen[tuple(item.shape for item in known)] = sum(item.nbytes for item in known)
    weights = sum(item.nbytes for item in _weights(state).values())
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


def _deliver(leaf: torch.Tensor, buffer: torch.Tensor) -> None:
    if leaf.shape == buffer.shape and leaf.dtype == buffer.dtype:
        buffer.copy_(leaf.detach())


def _describe(leaf: object) -> JSON:
    import torch

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


def _start(state: WorkerState, order: str, owners: Mapping[int, str]) -> list[str]:
    if state.interpret:
        from agentkernel.tools.judge.execution.launches import Order, launch_state

        launch_state.reset(cast("Order", order), owners)
        return launch_state.launches
    launches = cast("list[str]", state.memory["launches"])
    launches.clear()
    return launches


def _refusal(state: WorkerState) -> Exception | None:
    if not state.interpret:
        return None
    from agentkernel.tools.judge.execution.launches import launch_state

    return launch_state.refusal


def _loads_outside(state: WorkerState) -> list[str]:
    if not state.interpret:
        return []
    from agentkernel.tools.judge.execution.launches import launch_state

    return sorted(set(launch_state.loads_outside))[:5]


def _races(state: WorkerState) -> list[str]:
    if not state.interpret:
        return []
    from agentkernel.tools.judge.execution.launches import launch_state

    return launch_state.traces.races[:5]


def _stored(state: WorkerState) -> set[str]:
    """What of the caller's memory a kernel stored to."""
    if not state.interpret:
        return set()
    from agentkernel.tools.judge.execution.launches import launch_state

    return launch_state.wrote


def _products(state: WorkerState) -> list[str]:
    if not state.interpret:
        return []
    from agentkernel.tools.judge.execution.launches import launch_state

    return sorted(set(launch_state.products))[:5]


def _hook_launches(state: WorkerState) -> None:
    """Note the name of every kernel that is launched on the device."""
    if "launches" in state.memory:
        return
    from triton.runtime.jit import JITFunction

    from agentkernel.tools.judge.execution.launches import named_as

    launches: list[str] = []
    state.memory["launches"] = launches
    original = JITFunction.run

    def watched(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup"):
            launches.append(str(self.fn.__name__))  # type: ignore[attr-defined]
        return original(self, *args, **kwargs)

    JITFunction.run = named_as(original, watched)
