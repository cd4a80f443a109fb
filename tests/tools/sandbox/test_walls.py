"""A candidate sees and touches its inputs and a scratch behind each kind of walls."""

import os
import sys
from dataclasses import replace

import pytest
import torch

import agentkernel
from agentkernel.tools.sandbox.isolation import Limits, find_isolation
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import Worker, open_worker

REFUSED = ("Permission", "Read-only", "No such file", "No such process", "not permitted")
SECRET = "hunter2"


@pytest.fixture(scope="module")
def worker(tier):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTKERNEL_TEST_SECRET", SECRET)
        with open_worker(device="cpu", interpret=True, tier=tier) as made:
            yield made


def refused(reply):
    assert isinstance(reply, WorkerFailed), reply
    assert any(word in reply.log for word in REFUSED), reply.log
    return True


def test_the_walls_are_complete_here_and_named(worker, tier):
    assert worker.tier == tier
    assert worker.locks["landlock"] >= 3
    assert worker.locks["seccomp"]
    assert not worker.locks["late"]


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_UNIX"])
def test_no_socket_but_a_pair(worker, run, family):
    assert refused(run(worker, f"import socket\nsocket.socket(socket.{family}, socket.SOCK_RAW)"))
    assert refused(run(worker, f"import socket\nsocket.socket(socket.{family})"))
    body = "import socket\na, b = socket.socketpair()\na.sendall(b'x')\nreturn b.recv(1).decode()"
    assert run(worker, body) == "x"
    pair = "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"
    assert refused(run(worker, f"import socket\n{pair}"))


def test_no_secret_of_the_environment(worker, run):
    seen = run(worker, "import os\nreturn dict(os.environ)")
    assert SECRET not in str(seen)
    assert "HOME" not in seen
    assert SECRET not in run(worker, "return open('/proc/self/environ').read()")


def test_no_other_process_is_seen(worker, run):
    """Neither the judge's and the launcher's memory, nor their words and variables."""
    assert refused(run(worker, "import os\nreturn os.listdir('/proc')"))
    # By the number that the host knows, and by the launcher's inside.
    for pid in (os.getpid(), 1):
        for name in ("environ", "mem", "maps", "cmdline", "status"):
            assert refused(run(worker, f"open('/proc/{pid}/{name}', 'rb').read(1)"))
        assert refused(run(worker, f"import os\nos.listdir('/proc/{pid}/fd')"))
    body = (
        "import os\nfound = []\nfor pid in range(1, 40000):\n    try:\n"
        "        found.append(open(f'/proc/{pid}/environ').read())\n"
        "    except (FileNotFoundError, PermissionError, ProcessLookupError): pass\n"
        "return len(found)"
    )
    assert run(worker, body) <= 1


def test_files_are_read_only_and_foreign_ones_hidden(worker, run, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    package = os.path.dirname(agentkernel.__file__)
    folders = ("/etc", "/usr", "/dev/shm", "/proc/self", package, str(tmp_path))
    for path in (f"{folder}/agentkernel-test" for folder in folders):
        assert refused(run(worker, f"open({path!r}, 'w')"))
        assert not os.path.exists(path)
    assert refused(run(worker, f"open({str(secret)!r})"))
    assert refused(run(worker, f"open({str(secret)!r}, 'w')"))
    assert refused(run(worker, f"import os\nos.truncate({str(secret)!r}, 0)"))
    assert refused(run(worker, f"import os\nos.unlink({str(secret)!r})"))
    assert refused(run(worker, "open('/etc/shadow').read()"))
    assert refused(run(worker, "import os\nos.listdir('/root')"))
    assert secret.read_text() == SECRET
    assert run(worker, "open('mine.txt', 'w').write('x')\nreturn open('mine.txt').read()") == "x"


def test_owners_rights_are_no_way_out(worker, run, tmp_path):
    """Landlock sees no chmod, chown, utime or xattr: seccomp or a read-only mount must."""
    mine = tmp_path / "mine.txt"
    mine.write_text("x")
    mine.chmod(0o640)
    before = mine.stat()
    calls = ("chmod(p, 0o777)", "utime(p, (1, 1))", "chown(p, 1, 1)", "setxattr(p, 'user.x', b'')")
    for body in calls:
        for path in (str(mine), sys.executable):
            assert refused(run(worker, f"import os\np = {path!r}\nos.{body}"))
    after = mine.stat()
    assert (after.st_mode, after.st_mtime, after.st_uid) == (
        before.st_mode,
        before.st_mtime,
        before.st_uid,
    )


@pytest.mark.parametrize("forked", [True, False])
def test_the_machines_settings_are_read_only_without_landlock_too(tier, forked, run):
    """User 0 may write them without a capability: it takes a mount to keep a candidate from it."""
    if tier == "landlock":
        pytest.skip("no mounts of its own")
    isolation = replace(find_isolation(cuda=False, wanted=tier), forked=forked)
    body = (
        "import os\n"
        "paths = ('/proc/sys/kernel', '/proc/sysrq-trigger', '/proc/irq', '/proc/bus')\n"
        "return [path for path in paths if os.path.exists(path)\n"
        "        and not os.statvfs(path).f_flag & os.ST_RDONLY]"
    )
    with Worker(isolation, "cpu", True, Limits()) as worker:
        worker.await_ready()
        assert run(worker, body) == []


def test_no_privilege(worker, run):
    status = run(worker, "return open('/proc/self/status').read()")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert [int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")] == [0] * 4
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert refused(run(worker, "import os\nos.listdir('/dev')"))
    assert refused(run(worker, "open('/dev/vda', 'rb')"))
    assert refused(run(worker, "open('/dev/mem', 'rb')"))


CALLS = {
    "ptrace": (16, 1), "process_vm_readv": (1, 0, 0, 0, 0, 0), "mount": (0, 0, 0, 0, 0),
    "umount2": (0, 0), "pivot_root": (0, 0), "setns": (0, 0), "unshare": (0x10000000,),
    "bpf": (0, 0, 0), "perf_event_open": (0, 0, -1, -1, 0), "kexec_load": (0, 0, 0, 0),
    "init_module": (0, 0, 0), "finit_module": (0, 0, 0), "keyctl": (0, -3, 1),
    "add_key": (0, 0, 0, 0, -3), "userfaultfd": (1,), "io_uring_setup": (1, 0),
    "clone3": (0, 0), "clone": (0x10000000 | 17, 0, 0, 0, 0), "pidfd_getfd": (0, 0, 0),
    "memfd_create": (b"x", 0), "shmget": (0, 4096, 0o1600), "setsid": (), "setpgid": (0, 0),
    "prctl": (1, 0, 0, 0, 0), "prlimit64": (1, 7, 0, 0), "open_by_handle_at": (0, 0, 0),
    "connect": (0, 0, 0), "bind": (0, 0, 0), "chroot": (b"/",), "process_madvise": (0, 0, 0, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_system_call_that_nothing_needs_is_refused(worker, run, name):
    """By the filter: EPERM or ENOSYS, where the kernel itself would have said something else."""
    body = (
        "import ctypes\n"
        "from agentkernel.tools.sandbox.lockdown import syscall_number\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"code = libc.syscall(syscall_number({name!r}), *{CALLS[name]!r})\n"
        "return [code, ctypes.get_errno()]"
    )
    code, error = run(worker, body)
    assert code == -1
    assert error == (38 if name in ("clone3", "io_uring_setup") else 1)


def test_calls_by_other_numbers_are_refused(worker, run):
    """The x32 numbers would be the same calls."""
    body = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "return [libc.syscall(0x40000000 | 41, 2, 1, 0), ctypes.get_errno()]"
    )
    assert run(worker, body)[0] == -1


def test_no_signal_leaves(worker, run):
    """Not to the judge, and not to the launcher (the first of its namespace, or the parent)."""
    assert refused(run(worker, f"import os\nos.kill({os.getpid()}, 0)"))
    assert refused(run(worker, "import os, signal\nos.kill(os.getppid() or 1, signal.SIGSTOP)"))
    assert refused(run(worker, "import os\nos.kill(1, 0)"))


def test_a_thread_and_a_process_can_be_had(worker, run):
    body = (
        "import subprocess, threading\nfound = []\n"
        "t = threading.Thread(target=found.append, args=(1,))\nt.start()\nt.join()\n"
        "done = subprocess.run(['/bin/echo', 'two'], capture_output=True, text=True)\n"
        "return [*found, done.stdout]"
    )
    assert run(worker, body) == [1, "two\n"]


def test_tensors_are_shared_both_ways(worker, run):
    value = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t()
    ref = worker.share(value)
    assert run(worker, "t['x'].mul_(2)\nreturn list(t['x'].stride())", {"x": ref}) == [1, 4]
    assert torch.equal(worker.shared(ref), value * 2)
    worker.shared(ref).zero_()
    assert run(worker, "return float(t['x'].sum())", {"x": ref}) == 0.0
    worker.release([ref])
    assert isinstance(run(worker, "return 1", {"x": ref}), WorkerFailed)


def test_the_worker_holds_its_line_and_no_other_file(worker, run):
    body = (
        "import os\nfound = []\nfor n in os.listdir('/proc/self/fd'):\n    try:\n"
        "        found.append(os.readlink(f'/proc/self/fd/{n}'))\n    except OSError: pass\n"
        "return sorted(found)"
    )
    found = run(worker, body)
    kinds = [name.split(":")[0].split("[")[0] for name in found if not name.startswith("/proc/")]
    assert kinds == ["/dev/null", "pipe", "pipe", "socket"]
