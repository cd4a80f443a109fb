"""State of the process around the candidate: flags, functions, threads, streams, late writes.

Flags are compared by value, functions by identity: taken before the candidate is loaded,
compared after it was loaded and after each call.

Background work: who starts a thread or a process is seen when it starts (Python's audit events
cannot be unhooked), and what exists after a call is counted. Streams are checked for what is not
done when the current one is. Checksums over the bits of a tensor show any later write to it.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import operator
import os
import secrets
import signal
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import cast

import torch

from agentkernel.tools.judge.cases.values import pieces
from agentkernel.tools.sandbox.watchdog import children_of

PIECE_BYTES = 64 << 20
WORD = 8
HALF = 32


class Checksum:
    """Sums with numbers that only this process knows: no other can write what leaves them alike."""

    def __init__(self) -> None:
        seed = secrets.randbits(63)
        self._generator = torch.Generator().manual_seed(seed)
        self._factors: dict[torch.device, torch.Tensor] = {}

    def of(self, flat: torch.Tensor) -> int:
        """The sum of a contiguous tensor of any dtype."""
        total = flat.nbytes
        for number, piece in enumerate(self.sums(flat).tolist()):
            total = (total * 1_000_003 + piece + number) % (1 << 64)
        return total

    def sums(self, flat: torch.Tensor) -> torch.Tensor:
        """One number for each `PIECE_BYTES` of a contiguous tensor of any dtype, int64, on its
        device and in the order of the current stream: nothing waits for them."""
        data = flat.reshape(-1).view(torch.uint8)
        starts = range(0, data.numel(), PIECE_BYTES)
        found = [self._sum(data[start : start + PIECE_BYTES]) for start in starts]
        return torch.stack(found) if found else data.new_zeros(0, dtype=torch.int64)

    def _sum(self, data: torch.Tensor) -> torch.Tensor:
        words = data.numel() // WORD
        factors = self._for(data.device, words)
        aligned = data[: words * WORD]
        if aligned.data_ptr() % WORD:
            aligned = aligned.clone()
        # The factors are odd: every bit of a word moves the sum. What is shifted down lets two
        # changes of the highest bits not make up for each other.
        mixed = aligned.view(torch.int64) * factors[:words]
        mixed ^= mixed >> HALF
        mixed *= factors[:words]
        tail = data[words * WORD :].to(torch.int64)
        return mixed.sum() + (tail * factors[: tail.numel()]).sum()

    def _for(self, device: torch.device, words: int) -> torch.Tensor:
        """Random odd numbers on `device`, each made once: the same bytes have the same sum again,
        whatever was summed meanwhile."""
        known = self._factors.get(device, torch.empty(0, dtype=torch.int64, device=device))
        missing = max(words, WORD) - known.numel()
        if missing > 0:
            drawn = torch.randint(-(1 << 62), 1 << 62, (missing,), generator=self._generator)
            self._factors[device] = known = torch.cat((known, (drawn * 2 + 1).to(device)))
        return known


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


PROCESSES = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
}
NATIVE = {
    "ctypes.cdata",
    "ctypes.cdata/buffer",
    "ctypes.dlopen",
    "ctypes.dlsym",
    "ctypes.string_at",
    "ctypes.wstring_at",
}
ATTRIBUTE = "object.__getattr__"
FRAMES = {"ag_frame", "cr_frame", "gi_frame", "tb_frame"}
"""Attributes that lead to a frame: reading them is an event too."""
FRAME_EVENTS = {
    ATTRIBUTE,
    "gc.get_objects",
    "gc.get_referents",
    "gc.get_referrers",
    "sys._current_exceptions",
    "sys._current_frames",
    "sys._getframe",
}
TRACING = {"sys.setprofile", "sys.settrace", "sys.addaudithook"}
EVENTS = PROCESSES | NATIVE | FRAME_EVENTS | TRACING
STANDARD = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
DELAY_CYCLES = 50_000_000
"""25 ms at 2 GHz: the Python of a warm call takes less."""
BUSY_CYCLES = 10_000_000
Note = Callable[[str, str], None]
"""Takes a rule of ExecutionFailed and what happened."""


def watch_events(file: str, calling: Callable[[], bool], note: Note) -> None:
    """From now on, for as long as the process lives: what the candidate in `file` asks of the
    system. Looking at frames counts only while `calling()`: decorators look at them too."""
    busy = False

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal busy
        if busy or event not in EVENTS or (event == ATTRIBUTE and args[1] not in FRAMES):
            return
        busy = True
        try:
            frame = sys._getframe(1)
            if event in FRAME_EVENTS and (not calling() or not _reads_frames(frame, file)):
                return
            if asked_by(frame, file):
                note(*_meaning(event, args))
        finally:
            busy = False

    sys.addaudithook(hook)


def _meaning(event: str, args: tuple[object, ...]) -> tuple[str, str]:
    if event in PROCESSES:
        return "side-work", f"starts a process ({event})"
    if event in NATIVE:
        return "side-work", f"calls native code ({event} {str(args[:1])[:80]})"
    if event in TRACING:
        return "global-state", f"installs a tracer ({event})"
    return "global-state", f"looks at frames or objects that are not its own ({event})"


def asked_by(frame: FrameType | None, file: str) -> bool:
    """True where the nearest frame outside of the standard library is of `file`."""
    while frame is not None and _standard(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == file


def _reads_frames(frame: FrameType | None, file: str) -> bool:
    """True where `file` itself looks, or has `inspect` or `traceback` look for it."""
    while frame is not None and frame.f_code.co_filename.endswith(("inspect.py", "traceback.py")):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == file


def _standard(path: str) -> bool:
    return path.startswith(STANDARD) and "site-packages" not in path


def watch_threads(file: str, note: Note) -> None:
    """From now on: threads that the candidate starts, and functions that it leaves for the end."""
    import _thread
    import atexit

    def seen(original: Callable[..., object], what: str) -> Callable[..., object]:
        def start(*args: object, **kwargs: object) -> object:
            if asked_by(sys._getframe(1), file):
                note("side-work", what)
            return original(*args, **kwargs)

        return start

    for module, name in (
        (threading, "_start_new_thread"),
        (threading, "_start_joinable_thread"),
        (_thread, "start_new_thread"),
        (_thread, "start_joinable_thread"),
    ):
        if hasattr(module, name):
            setattr(module, name, seen(getattr(module, name), "starts a thread"))
    atexit.register = seen(atexit.register, "registers a function for the process's end")  # type: ignore[assignment]


def python_threads() -> int:
    """Threads that Python knows of."""
    return threading.active_count()


def system_threads() -> int:
    """Threads of this process, native ones included."""
    return len(os.listdir("/proc/self/task"))


def children() -> list[int]:
    """Process ids of this process's children, ended but unreaped ones included."""
    return children_of(os.getpid())


class Streams:
    """The CUDA streams that the process has made so far, but the default one.

    Work on a stream that nobody waits for is done too soon to be seen, if it is small; and a timed
    call finds its stream busy, where a judged one would not. So every other call begins behind a
    kernel of `DELAY_CYCLES` on each stream, and behind a shorter one on its own: what is joined
    takes longer, what is not is late for sure.
    """

    def __init__(self) -> None:
        import torch

        self._made: dict[int, torch.cuda.Stream] = {}
        self._delays: list[torch.cuda.Event] = []
        self._delayed: set[int] | None = None
        self._sleep = cast("Callable[[int], None]", torch.cuda._sleep)
        self._current = torch.cuda.current_stream

    def watch(self, kind: type) -> None:
        """Note every stream that `kind` (torch.cuda.Stream or ExternalStream) makes."""
        original = kind.__new__

        def make(cls: type, *args: object, **kwargs: object) -> object:
            stream = original(cls, *args, **kwargs)
            with contextlib.suppress(AttributeError):
                handle = stream.cuda_stream  # type: ignore[attr-defined]
                if handle:
                    self._made.setdefault(handle, stream)  # type: ignore[arg-type]
            return stream

        kind.__new__ = staticmethod(make)  # type: ignore[assignment]

    def delay(self) -> None:
        """Keep all streams busy for a while, the current one less long than the others."""
        import torch

        current = self._current().cuda_stream
        self._delayed = {current}
        self._sleep(BUSY_CYCLES)
        for handle, stream in list(self._made.items()):
            if handle != current:
                with torch.cuda.stream(stream):
                    self._wait_here(stream)

    def forget(self) -> None:
        """A call begins: without delays, until `delay` says otherwise."""
        self._delayed, self._delays = None, []

    def meet(self) -> None:
        """A kernel is launched on the current stream: one that turned up during a delayed call,
        torch's pool has many, is delayed before its first kernel."""
        import torch

        if self._delayed is None or torch.cuda.is_current_stream_capturing():
            return
        stream = self._current()
        if stream.cuda_stream not in self._delayed:
            self._made.setdefault(stream.cuda_stream, stream)
            self._wait_here(stream)

    def _wait_here(self, stream: torch.cuda.Stream) -> None:
        """`stream` is the current one."""
        import torch

        if self._delayed is not None:
            self._delayed.add(stream.cuda_stream)
        self._sleep(DELAY_CYCLES)
        self._delays.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
        self._delays[-1].record(stream)

    def unfinished(self) -> int:
        """Streams with work that is not done, once each has taken its delay."""
        for event in self._delays:
            event.synchronize()
        return sum(not stream.query() for stream in list(self._made.values()))


def background_work(
    leaves: Sequence[object],
    streams: Streams,
    wait_current: Callable[[], None],
    wait_all: Callable[[], None],
) -> str:
    """What was not done when the current stream was; "" where all was. Called right after a call:
    sums over the outputs' bits are taken in stream order, and once more when the whole device is
    idle. Copies would take as much memory as the outputs."""
    import torch

    known = Checksum()

    def sums() -> list[torch.Tensor]:
        return [
            torch.cat([known.sums(piece) for piece in pieces(item.detach())])
            for item in leaves
            if isinstance(item, torch.Tensor)
        ]

    early = sums()
    wait_current()
    running = streams.unfinished()
    wait_all()
    for index, (before, after) in enumerate(zip(early, sums(), strict=True)):
        if not torch.equal(before, after):
            return f"output {index} was still being written when the current stream was done"
    if running:
        return f"{running} streams were still at work when the current one was done"
    return ""
