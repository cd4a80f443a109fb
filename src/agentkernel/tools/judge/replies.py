"""Failures by what the worker replies, and by what it says of the module that it built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.verdict import CompileFailed, Failure, LoadFailed, RunFailed
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed

if TYPE_CHECKING:
    import torch


COMPILE_ERRORS = (
    "CompilationError",
    "UnsupportedLanguageConstruct",
    "CompileTimeAssertionFailure",
    "PTXASError",
    "OutOfResources",
    "LaunchRefused",
    "NotCompiled",
    "MissingPrecision",
)
NOT_BUILT = COMPILE_ERRORS[:5]
"""Triton's own errors over a kernel at some sizes."""
JUDGE_ERRORS = ("OutOfBounds", "ReusedStorage", "HoardedMemory")
"""What the worker raises over a call that the candidate did not refuse."""


def compare_states(
    wanted: Mapping[str, torch.Tensor],
    found: Mapping[str, torch.Tensor],
    described: JSON,
    *,
    check_values: bool,
) -> str | None:
    """What is wrong with the candidate's state dict; None where nothing is."""
    import torch

    theirs = described if isinstance(described, dict) else {}
    missing = [name for name in wanted if name not in theirs]
    extra = [name for name in theirs if name not in wanted]
    if missing or extra:
        return f"state_dict differs: missing {missing[:5]}, unexpected {extra[:5]}"
    for name, value in wanted.items():
        meta = [str(value.dtype).removeprefix("torch."), list(value.shape)]
        if theirs[name] != meta:
            return f"{name} is {theirs[name]}; expected {meta}"
        if check_values and not torch.equal(found[name], value):
            return (
                f"{name}: the same seed gives other initial values than the original's constructor"
            )
    return None


def compare_roles(wanted: Mapping[str, Sequence[object]], described: JSON) -> str | None:
    """What an optimiser would do otherwise with the candidate's parameters; None for nothing."""
    theirs = described if isinstance(described, dict) else {}
    missing = [name for name in wanted if name not in theirs]
    extra = [name for name in theirs if name not in wanted]
    if missing or extra:
        return f"parameters differ: missing {missing[:5]}, unexpected {extra[:5]}"
    for name, (requires, first) in wanted.items():
        found = theirs[name]
        got = found if isinstance(found, list) and len(found) == 2 else [None, None]
        if got[0] is not requires:
            return f"{name}: requires_grad is {got[0]}; expected {requires}"
        if got[1] != first:
            same = f"the same object as {first}" if first != name else "an object of its own"
            return f"{name} is another parameter than in the original: expected {same}"
    return None


def is_not_built(reply: WorkerFailed) -> bool:
    """True where no kernel came of the source at such sizes: a tile that is no power of two, a
    static assertion, more memory than there is."""
    return reply.reason == "raised" and reply.error in NOT_BUILT


def is_refusal(reply: WorkerFailed) -> bool:
    """True where the candidate itself raised, and the worker lives."""
    return reply.reason == "raised" and reply.error not in (*COMPILE_ERRORS, *JUDGE_ERRORS)


def load_failure(reply: WorkerFailed) -> Failure:
    """Of a module that was not built."""
    if reply.error in COMPILE_ERRORS:
        return CompileFailed(log=reply.log, line=reply.line)
    prefix = "" if reply.reason == "raised" else f"{reply.reason}: "
    return LoadFailed(log=prefix + reply.log)


def run_failure(reply: WorkerFailed, case: str) -> Failure:
    """Of a call of `case` that gave nothing."""
    if reply.error in COMPILE_ERRORS:
        return CompileFailed(log=reply.log, line=reply.line)
    if reply.error == "OutOfBounds":
        return RunFailed(reason="out_of_bounds", log=reply.log, case=case)
    return RunFailed(reason=reply.reason, log=reply.log, case=case)
