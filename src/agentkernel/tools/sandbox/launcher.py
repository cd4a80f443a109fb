"""The launcher of a worker: builds its isolation, watches it, and ends it with its parent.

Runs by path with `python -I`, or in a fork of a fork server's; standard library only. It builds
the isolation that the tier lacks, drops every privilege, forks the worker, which locks itself
in, and watches it. It ends all processes when the parent's end of the life line closes, whatever
the worker does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Iterable

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
SYS_PIVOT_ROOT = 155 if os.uname().machine == "x86_64" else 41
SYS_MOUNT_SETATTR = 442
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, AT_RECURSIVE, AT_FDCWD = 1, 2, 0x8000, -100
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""The machine's own, which user 0 may write without a capability, in a PID namespace too: without
Landlock, core_pattern would be a way out."""
LAST_CAPABILITY = 63
MOST_INODES = 200_000
REAP_S = 2.0

libc = ctypes.CDLL(None, use_errno=True)


class MountAttributes(ctypes.Structure):
    """struct mount_attr of mount_setattr(2)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def main() -> int:
    """Start the worker that argv[1] (JSON) describes; its exit code is this process's."""
    return start(json.loads(sys.argv[1]))


def start(config: dict[str, object]) -> int:
    """Build the walls of `config`, and the worker in them; the exit code."""
    if config["enters"]:
        code = enter_namespaces(own_user=config["enters"] == "user")
        if code is not None:
            return code
        build_root(config)
    if config["tier"] != "none":
        drop_capabilities()
    with contextlib.suppress(FileExistsError):
        # The scratch itself is gone where the parent has gone on meanwhile: no new one then.
        os.mkdir(f"{config['scratch']}/tmp")
    os.chdir(str(config["scratch"]))
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    sys.path[:] = import_order(sys.path, [str(path) for path in config["paths"]])  # type: ignore[attr-defined]
    if config.get("probe"):
        from agentkernel.tools.sandbox.lockdown import try_locks

        return try_locks(config)
    return supervise(config)


def import_order(own: list[str], parents: list[str]) -> list[str]:
    """The standard library, then what the parent imports from, in its order, then the rest: a
    checkout that the parent runs from comes before one that is installed."""
    library = sysconfig.get_path("stdlib")
    places = (library, os.path.join(sys.base_prefix, sys.platlibdir, "python"))
    standard = [path for path in own if path.startswith(places) and path not in parents]
    return list(dict.fromkeys([*standard, *parents, *own]))


def enter_namespaces(*, own_user: bool) -> int | None:
    """None in the first process of the new namespaces; outside, in the process that waits for it
    and takes it along, its exit code as a shell gives it. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    _check(libc.unshare(flags | (CLONE_NEWUSER if own_user else 0)), "unshare")
    if own_user:
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {user} 1")
        _write("/proc/self/gid_map", f"0 {group} 1")
    child = os.fork()
    if child == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return None
    close_all_but(())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def close_all_but(kept: Iterable[int]) -> None:
    """Close every descriptor but `kept` and the first three."""
    edges = sorted({2, *kept})
    for low, high in zip(
        edges, [*edges[1:], resource.getrlimit(resource.RLIMIT_NOFILE)[0]], strict=True
    ):
        os.closerange(low + 1, high)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def build_root(config: dict[str, object]) -> None:
    """A read-only view of / with its own /dev, /proc, /tmp and homes, and the scratch writable."""
    root = str(config["stage"])
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("/", root, None, MS_BIND | MS_REC)
    attributes = MountAttributes(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    _check(
        libc.syscall(
            SYS_MOUNT_SETATTR,
            AT_FDCWD,
            root.encode(),
            AT_RECURSIVE,
            ctypes.byref(attributes),
            ctypes.sizeof(attributes),
        ),
        "mount_setattr",
    )
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path in SETTINGS:
        if os.path.exists(root + path):
            _show(root + path, root + path)
    for folder in config["hidden"]:  # type: ignore[attr-defined]
        _mount("tmpfs", root + folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m")
    _make_dev(root, list(config["devices"]))  # type: ignore[call-overload]
    for path in config["visible"]:  # type: ignore[attr-defined]
        os.makedirs(root + path, exist_ok=True)
        _show(path, root + path)
    scratch = str(config["scratch"])
    os.makedirs(root + scratch, exist_ok=True)
    size = f"mode=700,size={config['scratch_mount_bytes']},nr_inodes={MOST_INODES}"
    _mount("tmpfs", root + scratch, "tmpfs", MS_NOSUID | MS_NODEV, size)
    os.chdir(root)
    _check(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    _check(libc.umount2(b".", MNT_DETACH), "umount2")


def _show(path: str, place: str) -> None:
    """Mount what is at `path` at `place`, not to be written there."""
    _mount(path, place, None, MS_BIND | MS_REC)
    _mount(None, place, None, MS_BIND | MS_RDONLY | 32 | _flags(place))


def _make_dev(root: str, extra: list[str]) -> None:
    dev = f"{root}/dev"
    _mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755,size=64m")
    for name in [*DEVICES, *extra]:
        source, target = f"/dev/{name}", f"{dev}/{name}"
        if not os.path.exists(source):
            continue
        if os.path.isdir(source):
            os.makedirs(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        _mount(source, target, None, MS_BIND | MS_REC)
    os.mkdir(f"{dev}/shm")
    _mount("tmpfs", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=1g")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")):
        os.symlink(target, f"{dev}/{name}")


def _flags(path: str) -> int:
    """Mount flags that an unprivileged remount has to keep: nosuid, nodev, noexec."""
    status = os.statvfs(path).f_flag
    return status & (MS_NOSUID | MS_NODEV | MS_NOEXEC)


def drop_capabilities() -> None:
    """No capability left, not even after an exec by root."""
    for number in range(LAST_CAPABILITY):
        if libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            break
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


def supervise(config: dict[str, object]) -> int:
    """Fork the worker; watch it until its end or the parent's, and end all that it started."""
    from agentkernel.tools.sandbox.watchdog import Watchdog, WatchdogLimits, report_end

    life, line, status = (_number(config[f"{name}_fd"]) for name in ("life", "socket", "status"))
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    ours, theirs = socket.socketpair()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    _check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    _check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")
    launcher = os.getpid()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ours.close()
        for fd in (life, status, reader, writer):
            os.close(fd)
        run_worker(config, line, theirs, launcher)
        return 0
    theirs.close()
    os.close(line)
    bounds = WatchdogLimits(**config["bounds"])  # type: ignore[arg-type]
    ended = Watchdog(child, life, ours, str(config["scratch"]), bounds).watch(reader)
    if ended is not None:
        report_end(status, ended)
    return end_all(child)


def end_all(worker: int) -> int:
    """Nothing of the candidate is left. The first process of a PID namespace takes all with it;
    elsewhere all are of the worker's process group, and the kernel ends that in one step."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    end = time.monotonic() + REAP_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.002)
    return 0


def run_worker(
    config: dict[str, object], line: int, listener_socket: socket.socket, launcher: int
) -> None:
    """The worker proper; returns when the parent closes the line."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launcher:
        return
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.setpgid(0, 0)
    # The kernel, short of memory, ends the candidate before the judge.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    _limit(resource.RLIMIT_FSIZE, _number(config["file_bytes"]))
    _limit(resource.RLIMIT_NOFILE, _number(config["open_files"]))
    _limit(resource.RLIMIT_CORE, 0)
    from agentkernel.tools.sandbox.worker import serve

    serve(line, config, listener_socket)


def _number(value: object) -> int:
    return int(str(value))


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    encoded = [None if item is None else item.encode() for item in (source, target, kind, data)]
    code = libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(code, f"mount {source or ''} {target}")


def _check(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main())
