"""Whether Triton's compiler takes the kernels of a candidate in the forms in which they ran in the
interpreter, which runs any Python. (Works in a sandboxed worker, never here.)

The file is executed and its kernels are compiled to Triton IR; nothing is launched, and no GPU is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, cast

import torch
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction

from agentkernel.domain.target import Target
from agentkernel.tools.compile.kernels import explain
from agentkernel.tools.compile.pretend import gpu_target, pretend_gpu
from agentkernel.tools.compile.recorder import record_launches

if TYPE_CHECKING:
    from agentkernel.tools.sandbox.protocol import JSON
    from agentkernel.tools.sandbox.worker import WorkerState

Target.model_rebuild()  # before the fork, not in each worker's first op


def take(payload: Mapping[str, object], state: WorkerState) -> dict[str, JSON]:
    """`payload`: the source, a target as JSON, and forms of `judge.forms`. The reply has what the
    compiler refuses first, with its line, and how many forms it took."""
    target = Target.model_validate_json(str(payload["target"]))
    source = str(payload["source"])
    gpu = gpu_target(target)
    taken = 0
    with pretend_gpu(target):
        with _kernels_made() as kernels:
            state.execute(source)
        for form in cast("Sequence[Sequence[Sequence[object]]]", payload["forms"]):
            name, line = cast("tuple[str, int]", tuple(form[0]))
            kernel = kernels.get(line)
            if kernel is None:
                return {"missing": name}
            try:
                _frontend(kernel, form[1], kernels, gpu)
            except Exception as error:  # noqa: BLE001 - whatever the compiler raises is its answer
                text, at = explain(error, source, kernel.src)
                return {"refused": f"kernel {name}: {text}", "line": at or line}
            taken += 1
    return {"taken": taken}


@contextmanager
def _kernels_made() -> Iterator[dict[int, JITFunction]]:
    """The kernels that the block makes, by their first line."""
    made: dict[int, JITFunction] = {}
    original = JITFunction.__init__

    def init(self: JITFunction, fn: FunctionType, *args: object, **named: object) -> None:
        original(self, fn, *args, **named)
        made[fn.__code__.co_firstlineno] = self

    JITFunction.__init__ = init
    try:
        yield made
    finally:
        JITFunction.__init__ = original


def _frontend(
    kernel: JITFunction,
    words: Sequence[object],
    kernels: Mapping[int, JITFunction],
    gpu: GPUTarget,
) -> None:
    """Raises what Triton raises for one form."""
    from triton._C.libtriton import ir

    given = {
        name: _argument(value, kernels)
        for name, value in cast("Sequence[tuple[str, Sequence[object]]]", words)
    }
    with record_launches(gpu) as launches:
        kernel.run(grid=(1,), warmup=False, **given)
    (launch,) = launches
    backend = make_backend(gpu)
    options = backend.parse_options(dict(launch.options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(options)
    launch.source.make_ir(gpu, options, functions, backend.get_module_map(), context)


def _argument(words: Sequence[object], kernels: Mapping[int, JITFunction]) -> object:
    kind, *values = words
    if kind == "tensor":
        return torch.empty(16, dtype=getattr(torch, str(values[0])), device="meta")
    if kind == "dtype":
        return next(x for x in vars(tl).values() if isinstance(x, tl.dtype) and x.name == values[0])
    return kernels[cast(int, values[1])] if kind == "kernel" else values[0]
