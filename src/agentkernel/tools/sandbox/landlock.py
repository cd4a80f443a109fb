"""Which files may this thread still touch? Landlock (kernel documentation, userspace-api/landlock):
what no rule names is refused, TCP and signals to the outside with it. Standard library only."""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from agentkernel.tools.sandbox.syscalls import syscall_number

Access = Literal["read", "run", "device", "own", "names"]
"""read: read a file, list a folder. run: also execute. device: read, write, ioctl.
own: everything but device nodes. names: read, and write what exists."""

OLDEST_ABI = 3
"""Truncation is refused from here on; with less, a file outside could be emptied."""
SIGNALS_ABI = 6
ALL_THREADS_ABI = 8

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG = 16, 32, 64, 128, 256
MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = 512, 1024, 2048, 4096
REFER, TRUNCATE, IOCTL_DEV = 8192, 16384, 32768
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
TCP_BIND_AND_CONNECT = 3
ABSTRACT_SOCKETS_AND_SIGNALS = 3
ALL_THREADS = 8
"""LANDLOCK_RESTRICT_SELF_TSYNC."""
VERSION = 1
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

RIGHTS: dict[Access, int] = {
    "read": READ_FILE | READ_DIR,
    "run": READ_FILE | READ_DIR | EXECUTE,
    "names": READ_FILE | READ_DIR | WRITE_FILE,
    "device": READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
    "own": (
        EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | REMOVE_DIR | REMOVE_FILE | MAKE_DIR
        | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER | TRUNCATE | IOCTL_DEV
    ),
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class FileRule:
    """What may be done to `path` and everything below it."""

    path: str
    access: Access


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


@functools.cache
def landlock_abi() -> int:
    """The kernel's Landlock ABI; 0 where it has none."""
    create = syscall_number("landlock_create_ruleset")
    if create is None:
        return 0
    return max(0, int(libc.syscall(create, None, ctypes.c_size_t(0), VERSION)))


def restrict_files(rules: Iterable[FileRule]) -> int:
    """Lock this thread and all that it will start, for good; the ABI that holds.

    From ABI 8 on all threads of the process. Paths that do not exist are left out. Raises OSError.
    """
    version = landlock_abi()
    if version == 0:
        raise OSError("the kernel has no Landlock")
    ruleset = _make_ruleset(version)
    try:
        for rule in rules:
            _add(ruleset, rule, _handled(version))
        _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        flags = ALL_THREADS if version >= ALL_THREADS_ABI else 0
        _call("landlock_restrict_self", ruleset, flags)
    finally:
        os.close(ruleset)
    return version


def _handled(version: int) -> int:
    """Every right that this ABI knows: what a ruleset does not handle stays allowed."""
    rights = (1 << 13) - 1
    for since, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        if version >= since:
            rights |= right
    return rights


def _make_ruleset(version: int) -> int:
    attributes = _Ruleset(
        _handled(version),
        TCP_BIND_AND_CONNECT if version >= 4 else 0,
        ABSTRACT_SOCKETS_AND_SIGNALS if version >= SIGNALS_ABI else 0,
    )
    size = 24 if version >= SIGNALS_ABI else 16 if version >= 4 else 8
    return _call("landlock_create_ruleset", ctypes.byref(attributes), ctypes.c_size_t(size), 0)


def _add(ruleset: int, rule: FileRule, handled: int) -> None:
    try:
        parent = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = RIGHTS[rule.access] & handled
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= FILE_RIGHTS
        beneath = struct.pack("=Qi", rights, parent)
        _call("landlock_add_rule", ruleset, PATH_BENEATH, beneath, 0)
    finally:
        os.close(parent)


def _call(name: str, *arguments: object) -> int:
    return _checked(int(libc.syscall(syscall_number(name), *arguments)), name)


def _checked(code: int, what: str) -> int:
    if code < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return code
