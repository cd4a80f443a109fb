"""Do the locks hold here? Tried in a process of its own. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict

from agentkernel.tools.sandbox.locks import lock_calls, lock_files


def try_locks(config: Mapping[str, object]) -> int:
    """Lock this process as a worker would, see whether that refuses what it must, and print what
    holds as JSON; "cuda" is cuInit's answer. Raises OSError where the tier needs more."""
    outside = os.path.join(os.path.dirname(str(config["scratch"])), "outside")
    ours, theirs = socket.socketpair()
    abi = lock_files(config)
    cuda = _start_cuda() if config["cuda"] else 0
    locks = lock_calls(config, abi, theirs)
    ours.close()
    if locks.landlock and _opens(outside):
        raise OSError("Landlock lets a file outside of the scratch be written")
    if locks.seccomp and _connects():
        raise OSError("seccomp lets a socket be made")
    print(json.dumps(asdict(locks) | {"cuda": cuda}))
    return 0


def _start_cuda() -> int:
    """cuInit's error code; 0 where there is no driver to ask."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    return int(library.cuInit(0))


def _opens(path: str) -> bool:
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        return True
    return False


def _connects() -> bool:
    with contextlib.suppress(OSError):
        socket.socket(socket.AF_INET).close()
        return True
    return False
