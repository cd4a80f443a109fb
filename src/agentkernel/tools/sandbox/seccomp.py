"""Which system calls may this process still make? A filter of the kernel's own (seccomp(2)),
assembled here word by word. Standard library only."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentkernel.tools.sandbox.syscalls import AUDIT_ARCH, machine, syscall_number

SET_MODE_FILTER = 1
TSYNC, SPEC_ALLOW, NEW_LISTENER, TSYNC_ESRCH = 1, 4, 8, 16
PR_SET_NO_NEW_PRIVS = 38
ALLOW, ASK, REFUSE, KILL = 0x7FFF0000, 0x7FC00000, 0x00050000, 0x80000000
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER_AT, ARCH_AT, ARGUMENTS_AT = 0, 4, 16
FOREIGN_ABI = 0x40000000
"""x32 calls have this bit on x86-64: the same calls by other numbers."""

NAMESPACES_AND_SIBLINGS = 0x7E028000
"""CLONE_NEW* (cgroup, uts, ipc, user, pid, net, mount) and CLONE_PARENT."""
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET = 1, 1, 5
PR_SET_PDEATHSIG, PR_SET_MM, PR_SET_CHILD_SUBREAPER = 1, 35, 36
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
WORD = 0xFFFFFFFF

NEVER = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease",
    "pidfd_getfd", "pidfd_send_signal", "kcmp",
    "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "setns", "unshare",
    "open_by_handle_at", "quotactl", "quotactl_fd", "acct", "swapon", "swapoff",
    "bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load", "create_module",
    "init_module", "finit_module", "delete_module", "add_key", "request_key", "keyctl",
    "reboot", "sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "uselib", "syslog",
    "settimeofday", "adjtimex", "clock_settime", "clock_adjtime", "fanotify_init",
    "lookup_dcookie", "vhangup", "memfd_secret",
    "shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop",
    "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
    "connect", "bind", "listen", "accept", "accept4",
    "setsid", "setpgid",
)  # fmt: skip
"""setsid and setpgid: one process group is what ends a whole candidate at once."""
UNKNOWN = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Answered as by an older kernel, so that libraries take the way that the filter can read."""
OF_FILES = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
    "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr",
    "fremovexattr", "removexattrat", "file_setattr", "utime", "utimes", "futimesat", "utimensat",
)  # fmt: skip
"""Landlock does not see them: where nothing mounts the disk read-only they are refused here."""
OF_OTHERS = ("sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr")
FORKS = ("clone", "fork", "vfork")


@dataclass(frozen=True)
class ArgumentTest:
    """Argument `index`, its low word masked, must be one of `values` (or none of them)."""

    index: int
    values: tuple[int, ...]
    mask: int = WORD
    inside: bool = True


@dataclass(frozen=True)
class FilterOptions:
    """`shared_host`: no namespace hides files and processes. `memory_files`: CUDA makes them.
    `scoped`: Landlock keeps signals inside; without, only the process itself may be signalled."""

    shared_host: bool
    memory_files: bool
    scoped: bool


def refusal_filter(wishes: FilterOptions) -> bytes:
    """The filter that refuses what nothing here needs."""
    plain = dict.fromkeys(NEVER, errno.EPERM) | dict.fromkeys(UNKNOWN, errno.ENOSYS)
    if not wishes.memory_files:
        plain |= {"memfd_create": errno.EPERM, "socket": errno.EPERM}
    local = (ArgumentTest(0, (AF_UNIX,)), ArgumentTest(1, (SOCK_STREAM, SOCK_SEQPACKET), mask=0xF))
    tests: dict[str, Sequence[ArgumentTest]] = {
        "socket": local,
        "socketpair": local,
        "clone": (ArgumentTest(0, (0,), mask=NAMESPACES_AND_SIBLINGS),),
        "prctl": (
            ArgumentTest(0, (PR_SET_PDEATHSIG, PR_SET_MM, PR_SET_CHILD_SUBREAPER), inside=False),
        ),
        "ioctl": (ArgumentTest(1, (TIOCSTI, TIOCLINUX), inside=False),),
        "prlimit64": (ArgumentTest(0, (0,)),),
    }
    if wishes.shared_host:
        plain |= dict.fromkeys(OF_FILES, errno.EPERM)
        tests |= {name: (ArgumentTest(0, (0,)),) for name in OF_OTHERS}
        tests |= {name: (ArgumentTest(1, (0,)),) for name in ("setpriority", "ioprio_set")}
        tests |= {name: (ArgumentTest(0, (0,)),) for name in ("move_pages", "migrate_pages")}
    if not wishes.scoped:
        own = (ArgumentTest(0, (os.getpid(),)),)
        signals = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
        tests |= dict.fromkeys(signals, own)
        plain["tkill"] = errno.EPERM
    return _program(
        [_answer(name, REFUSE | code) for name, code in plain.items()]
        + [_tested(name, needed) for name, needed in tests.items() if name not in plain]
    )


def notification_filter() -> bytes:
    """The filter that asks the listener about every new process and thread."""
    return _program([_answer(name, ASK) for name in FORKS])


def install_filter(program: bytes, *, listen: bool = False) -> int:
    """Put `program` on every thread of this process, for good. The listener's file descriptor
    where asked for, else 0. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    text = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text))
    flags = TSYNC | SPEC_ALLOW | ((NEW_LISTENER | TSYNC_ESRCH) if listen else 0)
    call = syscall_number("seccomp")
    if call is None:
        raise OSError(errno.ENOSYS, f"no filter is known for {machine()}")
    code = int(libc.syscall(call, SET_MODE_FILTER, flags, header))
    if code < 0 or (code > 0 and not listen):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
    return code


def _program(blocks: Iterable[bytes]) -> bytes:
    """Another architecture's calls kill the process; what no block answers is allowed."""
    words = [
        _word(LOAD, ARCH_AT),
        _word(EQUAL, AUDIT_ARCH[machine()], 1, 0),
        _word(RETURN, KILL),
        _word(LOAD, NUMBER_AT),
    ]
    if machine() == "x86_64":
        words += [_word(AT_LEAST, FOREIGN_ABI, 0, 1), _word(RETURN, REFUSE | errno.ENOSYS)]
    return b"".join([*words, *blocks, _word(RETURN, ALLOW)])


def _answer(name: str, answer: int) -> bytes:
    call = syscall_number(name)
    return b"" if call is None else _word(EQUAL, call, 0, 1) + _word(RETURN, answer)


def _tested(name: str, tests: Sequence[ArgumentTest]) -> bytes:
    call = syscall_number(name)
    if call is None:
        return b""
    body = b"".join(map(_test, tests)) + _word(RETURN, ALLOW)
    return _word(EQUAL, call, 0, len(body) // 8) + body


def _test(test: ArgumentTest) -> bytes:
    """Goes on behind itself where the argument passes; little-endian, as both machines are."""
    refuse = _word(RETURN, REFUSE | errno.EPERM)
    words = [_word(LOAD, ARGUMENTS_AT + 8 * test.index), _word(AND, test.mask)]
    last = len(test.values) - 1
    for place, value in enumerate(test.values):
        if test.inside:
            words.append(_word(EQUAL, value, last - place + 1, 0))
        else:
            words += [_word(EQUAL, value, 0, 1), refuse]
    return b"".join([*words, refuse] if test.inside else words)


def _word(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
