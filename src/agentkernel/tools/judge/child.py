"""What does the worker do for the judge? Build, load weights, call; it never sees the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch
    from torch import nn

    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState

KEPT_BYTES = 1 << 30
"""Outputs up to this size are kept until the next call, to see whether it writes over them."""


def build(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Build `ModelNew` under the given seed and write its initial state into the parent's buffers.

    The reply names every entry of the state dict with dtype and shape.
    """
    import torch

    if state.interpret:
        from agentkernel.tools.judge.interpreter import harden

        harden().unnamed_dot_allowed = bool(payload["unnamed_dot_allowed"])
    else:
        _hook_launches(state)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = state.load(
        str(payload["source"]),
        "ModelNew",
        cast("Sequence[object]", payload["init_args"]),
        cast("Mapping[str, object]", payload["init_kwargs"]),
        cast(int, payload["seed"]),
    )
    state.memory["model"] = model
    refs = cast("Mapping[str, object]", payload["initial"])
    found: dict[str, JSON] = {}
    for name, value in model.state_dict().items():
        found[name] = [str(value.dtype).removeprefix("torch."), list(value.shape)]
        if name in refs:
            buffer = state.open(refs[name])
            if buffer.shape == value.shape and buffer.dtype == value.dtype:
                buffer.copy_(value)
    return {"state": found}


def adopt(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Make the parent's shared tensors the model's own parameters and buffers."""
    refs = cast("Mapping[str, object]", payload["state"])
    model = cast("nn.Module", state.memory["model"])
    model.load_state_dict({name: state.open(ref) for name, ref in refs.items()}, assign=True)
    return {}


def run(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Call the model once; outputs that fit go to the parent's buffers, the reply describes all."""
    import torch
    from torch.utils._pytree import tree_flatten

    model = cast("nn.Module", state.memory["model"])
    values = [
        state.open(item) if type(item).__name__ == "TensorRef" else item
        for item in cast("Sequence[object]", payload["inputs"])
    ]
    launches = _start(state, str(payload["order"]))
    try:
        with torch.no_grad():
            result = model(*values)
    except Exception as error:
        refusal = _refusal(state)
        if refusal is None:
            raise
        raise refusal from error
    leaves, spec = tree_flatten(result)
    _check_storage(state, model, values, leaves)
    buffers = cast("Sequence[object]", payload["outputs"])
    outputs: list[JSON] = []
    for index, leaf in enumerate(leaves):
        outputs.append(_describe(leaf))
        if index < len(buffers) and isinstance(leaf, torch.Tensor) and buffers[index] is not None:
            _deliver(leaf, state.open(buffers[index]))
    return {
        "tree": _tree_text(spec),
        "outputs": outputs,
        "launches": cast("JSON", list(launches)),
        "loads_outside": cast("JSON", _loads_outside(state)),
    }


class ReusedStorage(Exception):
    """An output lies where an earlier call's output still lies: a later call would change it."""


def _check_storage(
    state: WorkerState, model: nn.Module, inputs: Sequence[object], leaves: Sequence[object]
) -> None:
    """Compare with the outputs of the call before, which are kept alive until now."""
    import torch

    tensors = [item for item in leaves if isinstance(item, torch.Tensor) and item.numel()]
    given = [item for item in inputs if isinstance(item, torch.Tensor)]
    own = {item.untyped_storage().data_ptr() for item in [*given, *model.state_dict().values()]}
    earlier = cast("list[torch.Tensor]", state.memory.pop("earlier", []))
    taken = {item.untyped_storage().data_ptr() for item in earlier} - own
    for index, item in enumerate(tensors):
        if item.untyped_storage().data_ptr() in taken:
            raise ReusedStorage(f"output {index} lies in the storage of an earlier call's output")
    small = sum(item.untyped_storage().nbytes() for item in tensors) <= KEPT_BYTES
    state.memory["earlier"] = tensors if small else []


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
    if leaf is None or isinstance(leaf, bool | int | float | str):
        return {"literal": repr(leaf)}
    return {"literal": f"<{type(leaf).__name__}>"}


def _tree_text(spec: object) -> str:
    return str(spec).replace("\n", "").replace(" ", "")


def _start(state: WorkerState, order: str) -> list[str]:
    if state.interpret:
        from agentkernel.tools.judge.watch import Order, watch

        watch.reset(cast("Order", order))
        return watch.launches
    launches = cast("list[str]", state.memory["launches"])
    launches.clear()
    return launches


def _refusal(state: WorkerState) -> Exception | None:
    if not state.interpret:
        return None
    from agentkernel.tools.judge.watch import watch

    return watch.refusal


def _loads_outside(state: WorkerState) -> list[str]:
    if not state.interpret:
        return []
    from agentkernel.tools.judge.watch import watch

    return sorted(set(watch.loads_outside))[:5]


def _hook_launches(state: WorkerState) -> None:
    """Note the name of every kernel that is launched on the device."""
    if "launches" in state.memory:
        return
    from triton.runtime.jit import JITFunction

    launches: list[str] = []
    state.memory["launches"] = launches
    original = JITFunction.run

    def watched(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup"):
            launches.append(str(self.fn.__name__))  # type: ignore[attr-defined]
        return original(self, *args, **kwargs)

    JITFunction.run = watched
