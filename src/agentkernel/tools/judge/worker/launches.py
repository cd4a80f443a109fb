"""Launches of a call in the worker: which kernels ran, and what the interpreter saw of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from triton.runtime.jit import JITFunction

from agentkernel.tools.judge.execution.launches import Order, launch_state, named_as

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


def begin_launches(state: WorkerState, order: str, owners: Mapping[int, str]) -> list[str]:
    """The names of the kernels that are launched from now on, as they come."""
    if state.interpret:
        launch_state.reset(cast("Order", order), owners)
        return launch_state.launches
    launches = cast("list[str]", state.memory["launches"])
    launches.clear()
    return launches


def refusal(state: WorkerState) -> Exception | None:
    """Why the interpreter refused a launch of this call."""
    return launch_state.refusal if state.interpret else None


def seen_in_launches(state: WorkerState) -> dict[str, JSON]:
    """What the interpreter saw: loads outside of tensors, products by `tl.dot`, races, and what of
    the caller's memory a kernel stored to. A GPU shows none of it."""
    if not state.interpret:
        return {"loads_outside": [], "products": [], "races": [], "wrote": []}
    return {
        "loads_outside": cast("JSON", sorted(set(launch_state.loads_outside))[:5]),
        "products": cast("JSON", sorted(launch_state.products)[:5]),
        "races": cast("JSON", launch_state.traces.races[:5]),
        "wrote": cast("JSON", sorted(launch_state.wrote)),
    }


def hook_launches(state: WorkerState) -> None:
    """Note the name of every kernel that is launched on the device."""
    if "launches" in state.memory:
        return
    launches: list[str] = []
    state.memory["launches"] = launches
    original = JITFunction.run

    def watched(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup"):
            launches.append(str(self.fn.__name__))  # type: ignore[attr-defined]
        return original(self, *args, **kwargs)

    JITFunction.run = named_as(original, watched)
