"""The lockdown of a worker before it loads a candidate: Landlock for files, seccomp for calls.

docs/sandbox.md says what each tier adds. Landlock (kernel documentation, userspace-api/landlock)
refuses every file that no rule names, and with it TCP and signals to the outside. The seccomp
filter (seccomp(2)) is assembled here word by word. System call numbers are those of x86-64 and
64-bit Arm, from the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl,
include/uapi/asm-generic/unistd.h). Whether the locks hold is tried in a process of its own.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_BOTH = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "quotactl_fd": 443, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446, "memfd_secret": 447,
    "process_mrelease": 448, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    "open_tree_attr": 467, "file_setattr": 469,
}  # fmt: skip
_NUMBERS = {
    "x86_64": {
        "ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "connect": 42,
        "accept": 43, "bind": 49, "listen": 50, "socketpair": 53, "clone": 56, "fork": 57,
        "vfork": 58, "kill": 62, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68,
        "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "chmod": 90, "fchmod": 91, "chown": 92,
        "fchown": 93, "lchown": 94, "ptrace": 101, "syslog": 103, "setpgid": 109, "setsid": 112,
        "rt_sigqueueinfo": 129, "utime": 132, "uselib": 134, "setpriority": 141,
        "sched_setparam": 142, "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154,
        "pivot_root": 155, "prctl": 157, "adjtimex": 159, "chroot": 161, "acct": 163,
        "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
        "create_module": 174, "init_module": 175, "delete_module": 176, "quotactl": 179,
        "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197,
        "lremovexattr": 198, "fremovexattr": 199, "tkill": 200, "sched_setaffinity": 203,
        "lookup_dcookie": 212, "semtimedop": 220, "clock_settime": 227, "tgkill": 234,
        "utimes": 235, "mq_open": 240, "mq_unlink": 241, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "ioprio_set": 251, "migrate_pages": 256,
        "fchownat": 260, "futimesat": 261, "fchmodat": 268, "unshare": 272, "move_pages": 279,
        "utimensat": 280, "accept4": 288, "rt_tgsigqueueinfo": 297, "perf_event_open": 298,
        "fanotify_init": 300, "prlimit64": 302, "open_by_handle_at": 304, "clock_adjtime": 305,
        "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "finit_module": 313, "sched_setattr": 314, "seccomp": 317, "memfd_create": 319,
        "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
    },
    "aarch64": {
        "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
        "fremovexattr": 16, "lookup_dcookie": 18, "ioctl": 29, "ioprio_set": 30, "umount2": 39,
        "mount": 40, "pivot_root": 41, "chroot": 51, "fchmod": 52, "fchmodat": 53,
        "fchownat": 54, "fchown": 55, "vhangup": 58, "quotactl": 60, "utimensat": 88, "acct": 89,
        "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
        "clock_settime": 112, "syslog": 116, "ptrace": 117, "sched_setparam": 118,
        "sched_setscheduler": 119, "sched_setaffinity": 122, "kill": 129, "tkill": 130,
        "tgkill": 131, "rt_sigqueueinfo": 138, "setpriority": 140, "reboot": 142, "setpgid": 154,
        "setsid": 157, "sethostname": 161, "setdomainname": 162, "prctl": 167,
        "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "mq_unlink": 181, "msgget": 186,
        "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191,
        "semtimedop": 192, "semop": 193, "shmget": 194, "shmctl": 195, "shmat": 196,
        "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202,
        "connect": 203, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220,
        "swapon": 224, "swapoff": 225, "migrate_pages": 238, "move_pages": 239,
        "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "accept4": 242, "prlimit64": 261,
        "fanotify_init": 262, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273,
        "sched_setattr": 274, "seccomp": 277, "memfd_create": 279, "bpf": 280, "userfaultfd": 282,
        "kexec_file_load": 294,
    },
}  # fmt: skip


def machine() -> str:
    """The machine's name as uname gives it."""
    return os.uname().machine


def syscall_number(name: str) -> int | None:
    """The call's number; None where this machine has no such call, or is not known here."""
    own = _NUMBERS.get(machine())
    return None if own is None else own.get(name, _BOTH.get(name))


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


SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store", "/gnu/store",
)  # fmt: skip
SETTINGS = (
    "ld.so.cache", "ld.so.preload", "ld.so.conf", "ld.so.conf.d", "localtime", "passwd", "group",
    "nsswitch.conf", "os-release", "alternatives", "mime.types",
)  # fmt: skip
MACHINE = (
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems",
    "/proc/devices", "/proc/loadavg", "/proc/uptime", "/proc/sys/kernel", "/proc/sys/vm",
    "/sys/devices/system", "/sys/kernel/mm", "/sys/fs/cgroup",
)  # fmt: skip
CUDA = (
    "/proc/driver/nvidia", "/proc/driver/nvidia-uvm", "/proc/modules", "/proc/sys", "/sys",
    "/etc/nvidia", "/etc/vdpau_wrapper.cfg",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom")
PASSED_ON_PATHS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


@dataclass(frozen=True)
class LockdownState:
    """What was locked. `lockdown` is the ABI, 0 for none; `late`: only after CUDA's start, so that
    the driver's own threads lie outside of Landlock; `gate`: each new process is asked for."""

    landlock: int = 0
    seccomp: bool = False
    gate: bool = False
    late: bool = False


def file_rules(scratch: str, paths: Sequence[str], *, cuda: bool) -> list[FileRule]:
    """All that a worker may touch. Call it in the process that will be locked."""
    passed = [os.environ.get(name, "").split(":") for name in PASSED_ON_PATHS]
    runs = [*SYSTEM, sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), *paths]
    runs += [path for group in passed for path in group if path.startswith("/")]
    rules = [FileRule(path, "run") for path in dict.fromkeys(runs) if path not in ("", "/")]
    rules += [FileRule(f"/etc/{name}", "read") for name in SETTINGS]
    rules += [FileRule(path, "read") for path in (*MACHINE, *(CUDA if cuda else ()))]
    rules += [FileRule(f"/dev/{name}", "device") for name in DEVICES]
    # CUDA names its threads in /proc/self/task/N/comm and fails to start (304) where it cannot.
    rules += [FileRule("/proc/self", "names" if cuda else "read")]
    if cuda:
        rules += [FileRule(path, "device") for path in sorted(glob.glob("/dev/nvidia*"))]
    return [*rules, FileRule(scratch, "own")]


def lock_files(config: Mapping[str, object]) -> int:
    """Landlock by `config`; the ABI, or 0 where the tier can do without. Raises OSError."""
    if config["tier"] == "none":
        return 0
    needed = config["tier"] == "landlock"
    if landlock_abi() < OLDEST_ABI:
        if needed:
            raise OSError(f"Landlock's ABI is {landlock_abi()}, {OLDEST_ABI} is needed")
        return 0
    paths = [str(path) for path in config["paths"]]  # type: ignore[attr-defined]
    # The folder of this process stays the one that the rule names only while something holds it.
    os.open("/proc/self", os.O_PATH | os.O_CLOEXEC)
    return restrict_files(file_rules(str(config["scratch"]), paths, cuda=bool(config["cuda"])))


def lock_calls(
    config: Mapping[str, object], abi: int, listener_socket: socket.socket | None
) -> LockdownState:
    """seccomp by `config`, after Landlock. The gate's listener leaves through `listener_socket`,
    which is closed. Raises OSError where the tier cannot do without."""
    late = bool(config.get("late"))
    if config["tier"] == "none":
        _close(listener_socket)
        return LockdownState()
    wishes = FilterOptions(
        shared_host=config["tier"] == "landlock",
        memory_files=bool(config["cuda"]),
        scoped=abi >= SIGNALS_ABI,
    )
    gate = _install_gate(listener_socket)
    try:
        install_filter(refusal_filter(wishes))
    except OSError:
        if config["tier"] == "landlock":
            raise
        return LockdownState(abi, late=late, gate=gate)
    return LockdownState(abi, seccomp=True, gate=gate, late=late)


def _install_gate(listener_socket: socket.socket | None) -> bool:
    """False where another listener, or an older kernel, stands in the way."""
    if listener_socket is None:
        return False
    listener = -1
    with listener_socket, contextlib.suppress(OSError):
        listener = install_filter(notification_filter(), listen=True)
        socket.send_fds(listener_socket, [b"L"], [listener])
    if listener >= 0:
        os.close(listener)
    return listener >= 0


def _close(listener_socket: socket.socket | None) -> None:
    if listener_socket is not None:
        listener_socket.close()


SET_MODE_FILTER = 1
TSYNC, SPEC_ALLOW, NEW_LISTENER, TSYNC_ESRCH = 1, 4, 8, 16
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
