"""What does the sandboxed worker do for the profiler? It holds the candidate and times it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from agentkernel.tools.profiler.timing.arena import Buffers, Layout
from agentkernel.tools.profiler.timing.bench import Call, CallTimer
from agentkernel.tools.profiler.timing.volley import Function, open_batch_memory
from agentkernel.tools.profiler.timing.workbench import TimingServer
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.tensors import TensorRef

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.domain.structure import DataStructure
    from agentkernel.tools.sandbox.worker import WorkerState

CANDIDATE = "candidate"
WARM_UP_CALLS = 3


def load(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build the candidate with the shared weights. Payload: source, class_name, init_args,
    init_kwargs, seed, arguments, state (name -> TensorRef), flush_bytes."""
    state.memory["workbench"] = TimingServer(
        CallTimer(state.device, cast(int, payload["flush_bytes"]))
    )
    module = state.built(
        state.execute(str(payload["source"])),
        str(payload["class_name"]),
        cast("Sequence[object]", payload["init_args"]),
        cast("Mapping[str, object]", payload["init_kwargs"]),
        cast(int, payload["seed"]),
        cast("DataStructure | None", payload.get("arguments")),
    )
    take_weights(module, cast("Mapping[str, TensorRef]", payload["state"]), state)
    state.memory["module"] = module
    return {}


def prepare(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Take the inputs of a shape set (TensorRefs and scalars in order), and call the candidate
    often enough that compilation is over. Payload: inputs, large."""
    import torch

    bench = _workbench(state)
    bench.tidy = bool(payload["large"])
    call = bind(state.memory["module"], cast("Sequence[object]", payload["inputs"]), state)
    with torch.no_grad():
        for _ in range(WARM_UP_CALLS):
            call()
    bench.bench.wait()
    bench.settle()
    bench.add(CANDIDATE, call, cast(Function, state.memory["module"]))
    return {}


def ground(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Take the memory that volleys share. Payload: layout, values (the inputs, None for tensors),
    buffers (name -> TensorRef), limit_s."""
    refs = cast("Mapping[str, TensorRef]", payload["buffers"])
    _workbench(state).ground = open_batch_memory(
        cast(Layout, payload["layout"]),
        cast("Sequence[object]", payload["values"]),
        Buffers(**{name: state.open(ref) for name, ref in refs.items()}),
        cast(float, payload["limit_s"]),
    )
    return {}


def forget(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Drop the candidate's call with its inputs, and give cached device memory back."""
    _workbench(state).drop(CANDIDATE)
    _workbench(state).ground = None
    _workbench(state).bench.give_back()
    return {}


def measure(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """A timing request (see Workbench.answer)."""
    return _workbench(state).answer(payload)


def take_weights(module: object, shared: Mapping[str, TensorRef], state: WorkerState) -> None:
    """Let the module's parameters and buffers be the shared tensors themselves: no second copy."""
    weights = {name: state.open(ref) for name, ref in shared.items()}
    cast("nn.Module", module).load_state_dict(weights, strict=True, assign=True)


def bind(module: object, inputs: Sequence[object], state: WorkerState) -> Call:
    """The call `module(*inputs)` with shared tensors opened."""
    values = tuple(state.open(item) if isinstance(item, TensorRef) else item for item in inputs)
    function = cast("nn.Module", module)
    return lambda: function(*values)


def _workbench(state: WorkerState) -> TimingServer:
    return cast(TimingServer, state.memory["workbench"])
