"""The candidate's module in the worker: built, given weights, exchanged for another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.tools.judge.execution.tracer import install_tracer
from agentkernel.tools.judge.worker.calls import read_hidden
from agentkernel.tools.judge.worker.launches import hook_launches
from agentkernel.tools.judge.worker.storage import count_up, weights_of

if TYPE_CHECKING:
    from types import ModuleType

    from torch import nn

    from agentkernel.domain.problem import DataStructure
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


def build(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build `ModelNew` under the given seed and write its initial state into the parent's buffers.

    The reply names every entry of the state dict with dtype and shape.
    """
    if state.interpret:
        # Triton's interpreter is there in an interpreting worker alone.
        from agentkernel.tools.judge.interpreter.hooks import install_hooks, seed_masked_lanes

        hardened = install_hooks()
        hardened.unnamed_dot_allowed = bool(payload["unnamed_dot_allowed"])
        hardened.casts_as_here = bool(payload.get("casts_as_here"))
        seed_masked_lanes(cast("int | None", payload.get("leftovers")))
    else:
        hook_launches(state)
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
    left = dict(weights_of(state))
    if payload["to"] != payload["from"]:
        aside[payload["from"]] = {
            key: state.memory[key] for key in ("model", "weights", "parameters", "training")
        }
        state.memory["counts"] = {name: value._version for name, value in left.items()}
        state.memory.update(aside.pop(payload["to"], {}))
    refs = cast("Mapping[str, object] | None", payload.get("state"))
    if refs is None:
        weights = {name: value.detach() for name, value in weights_of(state).items()}
    else:
        weights = {name: state.open(ref) for name, ref in refs.items()}
        for name, value in weights.items():
            count_up(value, left[name]._version)
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


def look(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """The hidden state that the constructor has left."""
    model = cast("nn.Module", state.memory["model"])
    return {"hidden": read_hidden(model, payload, state)}


def disturb(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Call the model with tensors without dimensions of the dtypes `kinds` (None: `scalars` has the
    value), then with None in their places. What it raises is nobody's matter."""
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
    with torch.no_grad():
        getattr(cast("nn.Module", state.memory["model"]), str(payload["name"]))()
    return {}


def rest(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """After a large call: give back the device memory that is held and not used."""
    if state.device == "cuda":
        torch.cuda.empty_cache()
    return {}
