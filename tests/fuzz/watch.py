"""A watch over one reading of foreign files: what it writes, what code runs, how long it takes and
how much memory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import sysconfig
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import agentkernel

MOST_S = 10.0
MOST_BYTES = 10**9
PACKAGE = str(Path(agentkernel.__file__).parent)
OWN_CODE = tuple(
    {
        PACKAGE,
        *(os.path.realpath(path) for path in sysconfig.get_paths().values()),
        *(
            os.path.realpath(path)
            for path in sys.path
            if path.endswith(("-packages", "lib-dynload"))
        ),
    }
)
"""Where the code lies that may run."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
STARTS = re.compile(
    r"subprocess\.Popen|os\.(system|exec|fork|forkpty|posix_spawn|spawn|startfile)|pty\.spawn"
    r"|pickle\.find_class|socket\.connect|ctypes\.dlopen|webbrowser\.open"
)
CHANGES = re.compile(
    r"os\.(rename|remove|mkdir|rmdir|link|symlink|truncate|chmod|chown|utime|mkfifo|mknod"
    r"|setxattr|removexattr)|shutil\.\w+"
)


class Fault(BaseException):
    """What no reading of a foreign file may do. No `except Exception` stops it."""


class Watch:
    """Of this process. `begin` is called once: nothing takes an audit hook away again."""

    def __init__(self, writable: Sequence[Path]) -> None:
        self.faults: list[str] = []
        self._writable = tuple(os.path.realpath(path) for path in writable)
        self._watching = False
        self._begin = self._worked = self._looked = 0.0
        self._most_s = MOST_S

    def begin(self) -> None:
        """Hear of what Python does from now on."""
        sys.addaudithook(self._heard)
        signal.signal(signal.SIGALRM, self._late)

    @contextmanager
    def watching(self, most_s: float = MOST_S) -> Iterator[None]:
        """Raises Fault for what happens inside."""
        self.faults.clear()
        self._begin, resident = time.monotonic(), _resident("VmRSS")
        self._worked = self._looked = time.process_time()
        # The high-water mark begins anew (proc_pid_clear_refs(5)).
        Path("/proc/self/clear_refs").write_text("5")
        self._most_s = most_s
        signal.setitimer(signal.ITIMER_REAL, most_s, most_s)
        self._watching = True
        try:
            yield
        finally:
            self._watching = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        grown = _resident("VmHWM") - resident
        if grown > MOST_BYTES:
            self.faults.append(f"it took {grown:,} bytes of memory")
        if self.faults:
            raise Fault("\n".join(self.faults))

    def _heard(self, event: str, given: tuple[object, ...]) -> None:
        if not self._watching:
            return
        if STARTS.fullmatch(event) or (event == "exec" and not _is_own(given[0], sys._getframe(1))):
            self._fault(f"it ran code: {event} {given!r:.300}")
        elif event == "open":
            path, _, flags = given
            named = isinstance(path, str | bytes | os.PathLike)
            if named and isinstance(flags, int) and flags & WRITES:
                self._check(event, path, linked=not flags & (os.O_NOFOLLOW | os.O_EXCL))
        elif event == "sqlite3.connect":
            place = str(given[0])
            if place != ":memory:" and "mode=ro" not in place:
                self._check(event, place.removeprefix("file:").partition("?")[0])
        elif CHANGES.fullmatch(event):
            for path in given[1:2] if event == "os.symlink" else given[:2]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._check(event, path, linked=event in ("os.truncate", "os.chmod"))

    def _check(
        self, event: str, path: str | bytes | os.PathLike[str], *, linked: bool = True
    ) -> None:
        place = os.fsdecode(path)
        folder, name = os.path.split(place)
        real = os.path.realpath(place if linked else folder or ".")
        if not linked:
            real = os.path.join(real, name)
        if place != os.devnull and not any(_below(real, allowed) for allowed in self._writable):
            self._fault(f"it wrote outside: {event} {place!r} ({real!r})")

    def _fault(self, words: str) -> None:
        self._watching = False
        words += "\n" + "".join(traceback.format_stack(sys._getframe(2))[-12:])
        self.faults.append(words)
        raise Fault(words)

    def _late(self, number: int, frame: FrameType | None) -> None:
        wall, worked = time.monotonic() - self._begin, time.process_time()
        # On a busy machine what goes on is given more time, but not what waits for nothing.
        waits = worked - self._looked < 0.01
        self._looked = worked
        late = waits or worked - self._worked > self._most_s or wall > 6 * self._most_s
        if self._watching and late:
            self._watching = False
            raise Fault("it hangs at\n" + "".join(traceback.format_stack(frame)[-12:]))


def _is_own(code: object, frame: FrameType) -> bool:
    """Whether it lies in a file of an installed package or of Python, or one of those made it."""
    if not isinstance(code, CodeType):
        return False
    name = code.co_filename
    if name.startswith("<frozen "):
        return True
    if name.startswith("<"):  # a dataclass, a template
        name = frame.f_code.co_filename
        return name.startswith("<") or (_in_package(name) and not _below(name, PACKAGE))
    return _in_package(name)


def _in_package(name: str) -> bool:
    real = os.path.realpath(name)
    return any(_below(real, folder) for folder in OWN_CODE)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _resident(name: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM the most."""
    with open("/proc/self/status") as file, contextlib.suppress(StopIteration):
        line = next(line for line in file if line.startswith(name))
        return int(line.split()[1]) * 1024
    return 0
