"""What does the process look like around the candidate, and what has it changed there?

Flags by value, functions by identity: taken before the candidate is loaded, compared after it was
loaded and after each call.
"""

from __future__ import annotations

import builtins
import gc
import operator
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

MODULES = (
    "agentkernel",
    "builtins",
    "gc",
    "inspect",
    "json",
    "linecache",
    "math",
    "numpy",
    "os",
    "random",
    "signal",
    "socket",
    "sys",
    "threading",
    "time",
    "torch",
    "torch._C._autograd",
    "torch.autograd.profiler",
    "torch.cuda",
    "torch.cuda.graphs",
    "torch.cuda.memory",
    "torch.cuda.random",
    "torch.cuda.streams",
    "torch.functional",
    "torch.nn.functional",
    "torch.profiler.profiler",
    "torch.random",
    "torch.testing",
    "torch.utils._python_dispatch",
    "torch.utils._pytree",
    "traceback",
    "triton",
    "triton.compiler.compiler",
    "triton.runtime.interpreter",
    "triton.runtime.jit",
    "triton.testing",
)
"""Functions and classes of these modules are compared; "agentkernel" stands for all of its own."""
CLASSES = (
    "torch:Tensor",
    "torch:Generator",
    "torch.autograd.profiler:profile",
    "torch.cuda:CUDAGraph",
    "torch.cuda:Event",
    "torch.cuda:ExternalStream",
    "torch.cuda:Stream",
    "torch.nn:Module",
    "torch.nn:Parameter",
    "torch.utils._python_dispatch:TorchDispatchMode",
    "triton.compiler.compiler:CompiledKernel",
    "triton.runtime.interpreter:GridExecutor",
    "triton.runtime.interpreter:InterpretedFunction",
    "triton.runtime.interpreter:InterpreterBuilder",
    "triton.runtime.jit:JITFunction",
    "triton.runtime.jit:KernelInterface",
    "json:JSONDecoder",
    "json:JSONEncoder",
    "socket:socket",
    "threading:Thread",
)
SINGLE = (
    "torch._C:_cuda_jiterator_compile_and_launch_kernel",
    "torch._C:_cuda_memoryStats",
    "torch._C:_cuda_sleep",
)
"""Functions that are compared by themselves."""
FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    staticmethod,
    classmethod,
    property,
    type,
)
LATE_VARIABLES = ("KINETO", "KMP", "TORCHINDUCTOR")
"""Environment variables that libraries set when they are first used."""
DENORMAL = 1e-40
SHOWN_CHARS = 120


@dataclass(frozen=True)
class ProcessState:
    """Flags by name; for each module and class above, what its names stood for."""

    flags: Mapping[str, str]
    items: Mapping[str, Mapping[str, object]]


def read_process_state() -> ProcessState:
    """The process as it is now."""
    return ProcessState(read_flags(), read_items())


def process_changes(before: ProcessState, now: ProcessState) -> list[str]:
    """What differs, in words. A module's new names do not count: much is loaded late; a class's
    do, as they hide what it inherits."""
    found = [
        f"{name} {_was_is(value, str(now.flags.get(name)))}"
        for name, value in before.flags.items()
        if now.flags.get(name) != value
    ]
    for place, items in before.items.items():
        there = now.items.get(place, {})
        if _identical(items, there):
            continue
        # Identity first: few ever differ.
        found += [
            f"{place}.{name} is another object than before"
            for name, item in items.items()
            if there.get(name) is not item and isinstance(item, FUNCTIONS)
        ]
    for place in (place.replace(":", ".") for place in CLASSES):
        items = before.items.get(place, {})
        if _identical(items, now.items.get(place, {})):
            continue
        found += [
            f"{place}.{name} is new"
            for name, item in now.items.get(place, {}).items()
            if items.get(name) is not item
            and isinstance(item, FUNCTIONS)
            and not isinstance(items.get(name), FUNCTIONS)
            and _foreign(item)
        ]
    return found


def _identical(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """The same names in the same order for the same objects: ten thousand are compared after each
    call."""
    return (
        len(one) == len(other)
        and all(map(operator.is_, one.values(), other.values()))
        and list(one) == list(other)
    )


def _was_is(before: str, now: str) -> str:
    long = max(len(before), len(now)) > SHOWN_CHARS
    return "is not what it was" if long else f"was {before}, is {now}"


def _foreign(item: object) -> bool:
    """True for what neither torch nor triton adds late to its own classes."""
    home = str(getattr(item, "__module__", "")).partition(".")[0]
    return home not in ("torch", "triton")


def read_flags() -> dict[str, str]:
    """Every flag by name; one that cannot be read here is left out."""
    values: dict[str, str] = {}
    for name, read in _readers().items():
        try:
            values[name] = repr(read())
        except (AttributeError, RuntimeError, AssertionError, ImportError):
            continue
    values["environment"] = repr(
        sorted(item for item in os.environ.items() if not item[0].startswith(LATE_VARIABLES))
    )
    return values


def _readers() -> dict[str, Callable[[], object]]:
    return _torch_flags() | _python_flags()


def _torch_flags() -> dict[str, Callable[[], object]]:
    backends = torch.backends
    return {
        "torch.backends.cuda.matmul.allow_tf32": torch._C._get_cublas_allow_tf32,
        "fp16 reduced precision reduction": (
            lambda: backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "bf16 reduced precision reduction": (
            lambda: backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
        "torch.backends.cudnn.allow_tf32": torch._C._get_cudnn_allow_tf32,
        "torch.backends.cudnn.benchmark": lambda: backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": lambda: backends.cudnn.deterministic,
        "torch.backends.cudnn.enabled": lambda: backends.cudnn.enabled,
        "torch.backends.mkldnn.enabled": lambda: backends.mkldnn.enabled,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "default dtype": torch.get_default_dtype,
        "default device": torch.get_default_device,
        "grad mode": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "autocast": lambda: [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        "threads": torch.get_num_threads,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "fill of uninitialised memory": (torch._C._get_deterministic_fill_uninitialized_memory),
        "scaled dot product backends": _attention_backends,
        "flush of denormals": flushes_denormals,
        "dispatch modes": torch._C._len_torch_dispatch_stack,
        "function modes": torch._C._len_torch_function_stack,
        "current stream": _stream,
    }


def _attention_backends() -> list[bool]:
    cuda = torch.backends.cuda
    return [
        cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
        cuda.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
    ]


def _stream() -> tuple[int, int] | None:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream


def _python_flags() -> dict[str, Callable[[], object]]:
    return {
        "sys.settrace": sys.gettrace,
        "sys.setprofile": sys.getprofile,
        "sys.meta_path": lambda: [id(item) for item in sys.meta_path],
        "sys.path_hooks": lambda: [id(item) for item in sys.path_hooks],
        "sys.path": lambda: list(sys.path),
        "sys.excepthook": lambda: id(sys.excepthook),
        "sys.stdout": lambda: (id(sys.stdout), id(sys.stderr)),
        "threading.settrace": lambda: (threading.gettrace(), threading.getprofile()),
        "signal handlers": lambda: [id(signal.getsignal(n)) for n in signal.valid_signals()],
        "signal timers": lambda: signal.getitimer(signal.ITIMER_REAL)[1],
        "gc": lambda: (gc.isenabled(), gc.get_threshold(), [id(item) for item in gc.callbacks]),
        "builtins.__import__": lambda: id(builtins.__import__),
        "switch interval": sys.getswitchinterval,
    }


def flushes_denormals() -> bool:
    """True where a product that is denormal comes out as zero."""
    value = torch.tensor([DENORMAL, DENORMAL], dtype=torch.float32)
    return not bool((value * 0.5).count_nonzero())


def read_items() -> dict[str, dict[str, object]]:
    """What names stand for in the modules and classes above, as far as loaded."""
    found: dict[str, dict[str, object]] = {}
    for name in _module_names():
        module = sys.modules.get(name)
        if module is not None:
            found[name] = dict(vars(module))
    for place in CLASSES:
        name, _, attribute = place.partition(":")
        kind = getattr(sys.modules.get(name), attribute, None)
        if isinstance(kind, type):
            found[f"{name}.{attribute}"] = dict(vars(kind))
    for place in SINGLE:
        name, _, attribute = place.partition(":")
        if hasattr(sys.modules.get(name), attribute):
            item = getattr(sys.modules[name], attribute)
            found.setdefault(name, {})[attribute] = item
    return found


def _module_names() -> list[str]:
    own = [name for name in list(sys.modules) if name.startswith("agentkernel.")]
    return [*MODULES, *own]
