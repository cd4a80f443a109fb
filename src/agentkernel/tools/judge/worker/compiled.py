"""Kernels that one worker of a judgement compiled, for the next workers of the same candidate.

They are as good as what compiled them: the same text, in a process with the same walls, which the
next worker would run as well. Nothing of them goes to another candidate, nor to who times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from agentkernel.tools.compile.binaries import Binary, enter, kept

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


def give_kernels(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: what lies in this worker's cache."""
    del payload, state
    return {"kernels": cast("JSON", kept())}


def take_kernels(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: enter `kernels` into this worker's cache, before it knows the candidate."""
    del state
    enter(cast("Sequence[Binary]", payload["kernels"]))
    return {}
