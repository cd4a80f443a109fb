"""Which ops has a worker from the start? Loading a module and calling it on shared tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


def execute(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Run `source`; its `result` (JSON-able) is the reply. `tensors` are bound by name first."""
    refs = cast("Mapping[str, object]", payload.get("tensors", {}))
    state.memory["tensors"] = {name: state.open(ref) for name, ref in refs.items()}
    module = state.execute(str(payload["source"]))
    run = getattr(module, "run", None)
    value = run(state.memory["tensors"]) if callable(run) else getattr(module, "result", None)
    return {"result": cast("JSON", value)}
