"""The fork server: imports what workers need, then forks one after the other.

Runs by path with `python -I`, inside bubblewrap where that is the tier. It never receives a
candidate, and what it forks closes its descriptors before it builds isolation of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import NoReturn

MOST_WORDS = 1 << 18
LOOK_S = 0.2
CUDA_ERROR_NOT_INITIALIZED = 3
FDS = ("socket_fd", "life_fd", "status_fd", "output_fd", "answer_fd")
"""What comes with a request, in this order."""


def main() -> NoReturn:
    """Import as argv[1] (JSON) says, then fork for whoever asks on its line, until that closes."""
    wish = json.loads(sys.argv[1])
    sys.path[:] = wish["paths"] + [path for path in sys.path if path not in wish["paths"]]
    sys.path[:] = _launcher().import_order(sys.path, wish["paths"])
    line = socket.socket(fileno=int(wish["line_fd"]))
    # Most workers that compile do so for the front end alone: the rest is imported on request.
    least = wish["device"] == "cpu" and not wish["interpret"]
    _import(line, wish, least)
    if wish["device"] == "cuda" and _cuda_has_started():
        sys.exit("an import started CUDA, which does not live on in a fork")
    # Nobody waits for what is forked here: whoever asked holds a descriptor of the process.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        words, fds, _, _ = socket.recv_fds(line, MOST_WORDS, len(FDS))
        if not words:
            os._exit(0)
        request = json.loads(words)
        if least and not request["config"].get("frontend"):
            least = False
            _import(line, wish, least)
        _fork(line, request, fds)


def _import(line: socket.socket, wish: dict[str, object], frontend: bool) -> None:
    """What `worker.imports` says, as no work of the garbage collector's in what is forked."""
    with _watching(line):
        importlib.import_module("agentkernel.tools.sandbox.worker").imports(
            wish["device"], wish["interpret"], frontend
        )
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _watching(line: socket.socket) -> Iterator[None]:
    """End with the parent, which may go away in the seconds before anything is read from it. No
    thread may do it: what forks has one."""
    ends = select.poll()
    ends.register(line, 0)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0) if ends.poll(0) else None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _cuda_has_started() -> bool:
    """By a question that the driver refuses before cuInit, and that starts nothing."""
    with open("/proc/self/maps") as maps:
        if "/libcuda.so" not in maps.read():
            return False
    context = ctypes.c_void_p()
    asked = ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    return bool(asked != CUDA_ERROR_NOT_INITIALIZED)


def _fork(line: socket.socket, request: dict[str, object], fds: list[int]) -> None:
    """Fork one launcher; answer with its number and a descriptor of it, before it can end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        _become(request, dict(zip(FDS, fds, strict=True)))
    os.close(reader)
    process = os.pidfd_open(pid)
    with socket.socket(fileno=fds.pop()) as answer, contextlib.suppress(OSError):
        socket.send_fds(answer, [str(pid).encode()], [process])
    for fd in (*fds, process, writer):
        os.close(fd)


def _become(request: dict[str, object], fds: dict[str, int]) -> NoReturn:
    """A launcher, as if started anew: its own session, words, variables and descriptors."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(fds["output_fd"], 1)
        os.dup2(fds["output_fd"], 2)
        kept = {name: fds[name] for name in ("socket_fd", "life_fd", "status_fd")}
        launcher = _launcher()
        launcher.close_all_but(kept.values())
        os.environ.clear()
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        tempfile.tempdir = None
        sys.argv = ["launcher"]
        code = launcher.start({**request["config"], **kept})  # type: ignore[dict-item]
    except BaseException:  # noqa: BLE001 - nothing of this process may go back into the loop
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _launcher() -> ModuleType:
    return importlib.import_module("agentkernel.tools.sandbox.launcher")


if __name__ == "__main__":
    main()
