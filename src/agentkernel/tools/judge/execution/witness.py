"""What did the worker see the candidate do? Launches, operators, threads, flags, forms of outputs.

Installed before the candidate is loaded; what it uses is bound by then, and what it notes lies in
closures that no module names. A candidate in the same process can still reach them by walking
frames or objects: some ways of doing that are noted, none is prevented.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from agentkernel.tools.judge.child import CallResult
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState


@dataclass(frozen=True)
class Tracer:
    """What `child` calls: `loading` around all that loads the candidate, `loaded` afterwards,
    `call` around all of a call that runs its code, `inspect` on its outputs; `drain` and `ablate`
    are the parent's."""

    loading: Callable[[Callable[[], object]], object]
    loaded: Callable[[str], None]
    call: Callable[[Callable[[], CallResult], Mapping[int, str], set[int], int], CallResult]
    inspect: Callable[[Sequence[object]], None]
    drain: Callable[[], dict[str, JSON]]
    ablate: Callable[[Sequence[int] | None, bool], None]
    wrote: Callable[[], list[str]]
    forms: Callable[[], dict[str, JSON]]


def install_tracer(state: WorkerState) -> Tracer:
    """The worker's witness, hooked in on the first call; each call starts a new record."""
    found = state.memory.get("witness")
    if not isinstance(found, Tracer):
        found = _make_tracer(state)
        state.memory["witness"] = found
    found.drain()
    return found


def drain(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: what was seen since the candidate was built, or since the last time."""
    del payload
    return cast(Tracer, state.memory["witness"]).drain()


def forms(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: the forms in which kernels were launched in the interpreter."""
    del payload
    return cast(Tracer, state.memory["witness"]).forms()


def ablate(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """Op: from now on launches of these kernels (by number; None for all) do nothing, and with
    `zeros` fresh memory holds zeros."""
    kernels = cast("list[int] | None", payload["kernels"])
    cast(Tracer, state.memory["witness"]).ablate(kernels, payload["zeros"] is True)
    return {}


def _make_tracer(state: WorkerState) -> Tracer:
    from agentkernel.tools.judge.execution.outliving import watch_events, watch_threads
    from agentkernel.tools.judge.execution.record import CallRecorder
    from agentkernel.tools.sandbox.worker import CANDIDATE_FILE

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # two lines a call otherwise
    file = str(state.scratch / CANDIDATE_FILE)
    leftovers = cast("int | None", state.memory.get("leftovers"))
    record = CallRecorder(state.device, state.interpret, file, leftovers)
    _hook_launches(state, record.launched, record.within, record.form)
    _hook_numbers(record.left_torch)
    watch_events(file, lambda: record.calling, record.note)
    watch_threads(file, record.note)
    if state.device == "cuda":
        record.watch_device()
        _hook_jiterator(record.left_torch)
    return Tracer(
        record.loading,
        record.loaded,
        record.call,
        record.inspect,
        record.drain,
        record.ablate,
        record.wrote,
        record.forms,
    )


def _hook_launches(
    state: WorkerState,
    launched: Callable[[object], bool],
    within: Callable[[int], None],
    form: Callable[[object, Sequence[object], Mapping[str, object]], bool],
) -> None:
    from agentkernel.tools.judge.execution.watch import named_as

    hidden_arrays: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    if state.interpret:
        from triton.runtime.interpreter import InterpretedFunction as Kind

        from agentkernel.tools.judge.interpreter.interpreter import hidden_arrays
    else:
        from triton.runtime.jit import JITFunction as Kind

        _hook_compiled(launched)
    original = Kind.run

    def run(self: object, *args: object, **kwargs: object) -> object:
        if not kwargs.get("warmup") and launched(self):
            return None
        noted = form(self, args, kwargs)
        within(1)
        try:
            with contextlib.nullcontext() if noted else hidden_arrays():
                return original(self, *args, **kwargs)
        finally:
            within(-1)

    Kind.run = named_as(original, run)


def _hook_compiled(launched: Callable[[object], bool]) -> None:
    """`kernel.warmup(...)[grid](...)` launches without JITFunction.run."""
    from triton.compiler.compiler import CompiledKernel

    original = CompiledKernel.__getitem__

    def runner(self: object, grid: object) -> Callable[..., object]:
        run = original(self, grid)

        def start(*args: object, **kwargs: object) -> object:
            kernel = getattr(getattr(self, "src", None), "fn", None)
            return None if launched(kernel) else run(*args, **kwargs)

        return start

    CompiledKernel.__getitem__ = runner


def _hook_numbers(left_torch: Callable[[str, int | None], None]) -> None:
    """Ways from a tensor to numbers that torch's operators do not show."""
    import torch

    def seen(kind: type, name: str) -> Callable[..., object]:
        original = getattr(kind, name)

        def read(self: torch.Tensor, *args: object, **kwargs: object) -> object:
            left_torch(f"{kind.__name__}.{name}", _count(self, name))
            return original(self, *args, **kwargs)

        return read

    storages = (torch.UntypedStorage, torch.TypedStorage)
    for kind, names in (
        (torch.Tensor, ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__")),
        *((kind, ("__getitem__", "tolist")) for kind in storages),
    ):
        for name in names:
            setattr(kind, name, seen(kind, name))


def _count(source: object, name: str) -> int:
    """Numbers that a reading of a tensor or a storage may take."""
    if name == "__getitem__":
        return 1
    count = getattr(source, "numel", None) or getattr(source, "size")  # noqa: B009 - a storage's
    return int(count())


def _hook_jiterator(left_torch: Callable[[str], None]) -> None:
    """torch.cuda.jiterator compiles and launches below the operators."""
    import torch

    name = "_cuda_jiterator_compile_and_launch_kernel"
    original = getattr(torch._C, name)

    def launch(*args: object, **kwargs: object) -> object:
        left_torch("torch.cuda.jiterator")
        return original(*args, **kwargs)

    setattr(torch._C, name, launch)


__all__ = ["Tracer", "ablate", "drain", "forms", "install_tracer"]
