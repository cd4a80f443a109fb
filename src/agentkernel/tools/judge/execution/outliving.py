"""Does anything that the candidate started go on after its call, or run beside it?

Threads and processes: who asks for one is seen when it is asked for (Python's audit events cannot
be unhooked), and what is there after a call is counted. Streams: what is not yet done when the
current one is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, cast

from agentkernel.tools.sandbox.census import children_of

if TYPE_CHECKING:
    import torch

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
NATIVE = {"ctypes.dlopen"}
FRAME_EVENTS = {"gc.get_objects", "gc.get_referents", "gc.get_referrers", "sys._getframe"}
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
        if busy or event not in EVENTS:
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

    from agentkernel.tools.judge.cases.values import pieces
    from agentkernel.tools.judge.execution.checksum import Checksum

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
