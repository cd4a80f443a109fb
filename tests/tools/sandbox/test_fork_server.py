"""A forked worker is as closed, and as much its own, as one that was started alone."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import agentkernel.tools.sandbox.process as module
from agentkernel.domain.errors import SandboxUnavailable
from agentkernel.tools.sandbox.isolation import Limits, find_isolation
from agentkernel.tools.sandbox.process import MADE_BY_IMPORT, close_servers, fork_server
from agentkernel.tools.sandbox.session import Worker, open_worker
from agentkernel.tools.sandbox.watchdog import descendants

pytestmark = pytest.mark.xdist_group("fork_server")

SEES = (
    "import os, torch\n"
    "fds = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')\n"
    "       if os.path.lexists(f'/proc/self/fd/{fd}')]\n"
    "return [os.environ['TMPDIR'], os.environ['TRITON_CACHE_DIR'], os.getcwd(),\n"
    "        sum(f.startswith('socket') for f in fds), sum(f.startswith('pipe') for f in fds),\n"
    "        torch.get_num_threads(), int(open('/proc/self/stat').read().split()[3])]"
)

HASHED = "from triton.runtime.cache import triton_key\nreturn triton_key.cache_info().currsize"


@pytest.fixture(scope="module", autouse=True)
def shared_servers():
    """Tests share the servers that they do not end; none outlives this file."""
    yield
    close_servers()


@pytest.fixture
def no_servers(monkeypatch):
    """None is started yet, and those of the test are ended; the shared ones live on beside."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "_servers", {})
        yield
        close_servers()


def started(tier):
    """The server that the tests of `tier` share, started where there is none."""
    return fork_server(find_isolation(cuda=False, wanted=tier), "cpu", True)


def inside(server, tier):
    """The number of the server itself; bubblewrap waits outside of it."""
    end = time.monotonic() + 10
    while tier == "bubblewrap" and not descendants(server._process.pid):
        assert time.monotonic() < end
        time.sleep(0.01)
    return descendants(server._process.pid)[0] if tier == "bubblewrap" else server._process.pid


def gone(pid, within_s):
    """No such process, or one that only waits to be reaped."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def pair(tier):
    """Two workers at once: from a fork server, and started alone."""
    isolation = find_isolation(cuda=False, wanted=tier)
    assert isolation.forked
    with (
        open_worker(device="cpu", interpret=True, tier=tier) as forked,
        Worker(replace(isolation, forked=False), "cpu", True, Limits()) as alone,
    ):
        alone.await_ready()
        yield forked, alone


@pytest.mark.quick(1)
def test_it_sees_what_one_started_alone_sees(pair, run):
    """Its own folder and variables, as many descriptors, the same parent inside."""
    for worker in pair:
        assert run(worker, SEES)[:3] == [
            f"{worker.scratch}/tmp",
            f"{worker.scratch}/triton",
            str(worker.scratch),
        ]
    forked, alone = (run(worker, SEES) for worker in pair)
    assert forked[3:6] == alone[3:6]
    assert pair[0].tier == pair[1].tier
    assert pair[0].locks == pair[1].locks


def test_it_is_first_in_namespaces_of_its_own(run):
    with (
        open_worker(device="cpu", interpret=True) as one,
        open_worker(device="cpu", interpret=True) as other,
    ):
        if not one.tier.startswith("landlock"):
            assert one.pid == other.pid == 2
        mark = run(one, "open('mark', 'w').close()\nreturn 1")
        assert mark == 1
        seen = f"import os\nreturn [os.path.exists({str(one.scratch)!r}), os.listdir('.')]"
        found = run(other, seen)
        assert "mark" not in found[1]
        if not other.tier.startswith("landlock"):
            assert found[0] is False


@pytest.mark.slow
def test_more_threads_are_set_in_the_worker(run):
    with open_worker(device="cpu", interpret=False, limits=Limits(threads=2)) as worker:
        assert run(worker, "import torch\nreturn torch.get_num_threads()") == 2


@pytest.mark.quick(1)
def test_one_that_was_killed_is_replaced(server_tier, run, nothing_left):
    server = started(server_tier)
    with open_worker(device="cpu", interpret=True, tier=server_tier) as worker:
        os.kill(inside(server, server_tier), signal.SIGKILL)
        server._process.wait()
        assert run(worker, "return 1") == 1  # it lives on without
        with open_worker(device="cpu", interpret=True, tier=server_tier) as next_one:
            assert run(next_one, "return 2") == 2


@pytest.mark.quick(1)
@pytest.mark.parametrize("after_s", [0, 1])
def test_one_that_cannot_start_says_why(after_s, monkeypatch, nothing_left, no_servers):
    broken = ["sh", "-c", f"sleep {after_s}; echo no torch here >&2; exit 1"]
    monkeypatch.setattr(module, "server_command", lambda *_, **__: broken)
    with pytest.raises(SandboxUnavailable, match="no torch here"):
        open_worker(device="cpu", interpret=True, tier="landlock")


def test_a_stopped_one_is_ended_too(tier, no_servers):
    server = started(tier)
    pid = inside(server, tier)
    os.kill(pid, signal.SIGSTOP)
    close_servers()
    assert gone(pid, within_s=1)


@pytest.mark.quick(1)
def test_one_that_still_imports_ends_with_its_parent(tier):
    """The import takes seconds, in which nothing reads its line."""
    body = (
        "import os, signal, sys\n"
        "from agentkernel.tools.sandbox.process import fork_server\n"
        "from agentkernel.tools.sandbox.isolation import find_isolation\n"
        f"server = fork_server(find_isolation(cuda=False, wanted={tier!r}), 'cpu', True)\n"
        "print(server._process.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        outer = int(parent.stdout.readline())
        time.sleep(0.5)
        pid = descendants(outer)[0] if tier == "bubblewrap" else outer
        parent.kill()
        assert gone(pid, within_s=1)


@pytest.mark.quick(1)
def test_a_worker_that_was_closed_early_leaves_no_folder(tier, nothing_left, tmp_path):
    """Its server, stopped as if it were still importing, forks it when nobody wants it any more."""
    pid = inside(started(tier), tier)
    os.kill(pid, signal.SIGSTOP)
    try:
        Worker(find_isolation(cuda=False, wanted=tier), "cpu", True, Limits()).close()
    finally:
        os.kill(pid, signal.SIGCONT)
    with open_worker(device="cpu", interpret=True, tier=tier) as later:
        assert [str(path) for path in tmp_path.iterdir()] == [str(later.scratch.parent)]


@pytest.mark.slow
def test_importing_makes_no_folder(tmp_path):
    """Servers of two tiers are ordinary processes, with the machine's /tmp."""
    body = "from agentkernel.tools.sandbox.worker import imports\nimports('cpu', True)"
    names = ("TMPDIR", "TRITON_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    below = {name: str(tmp_path / name) for name in names}
    subprocess.run(
        [sys.executable, "-c", body], env=os.environ | below | MADE_BY_IMPORT, check=True
    )
    assert os.listdir(tmp_path) == []


def test_what_one_prints_lies_with_the_temporary_files(tmp_path, monkeypatch, no_servers):
    """/tmp may be full, or not to be written, where the parent has another folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = started("landlock")
    assert os.readlink(f"/proc/self/fd/{server._printed.fileno()}").startswith(f"{tmp_path}/")


@pytest.mark.quick(1)
@pytest.mark.parametrize("forked", [True, False])
def test_a_parent_with_many_open_files(forked, run):
    """select(2) takes no number above 1023."""
    isolation = replace(find_isolation(cuda=False, wanted="landlock"), forked=forked)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2000:
        pytest.skip("no right to so many open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2000, before[0]), before[1]))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        with Worker(isolation, "cpu", True, Limits()) as worker:
            worker.await_ready()
            assert run(worker, "return 1") == 1
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
def test_one_that_hangs_is_replaced(server_tier, run, nothing_left):
    isolation = find_isolation(cuda=False, wanted=server_tier)
    server = started(server_tier)
    with Worker(isolation, "cpu", True, Limits()) as first:
        first.await_ready()
    os.kill(inside(server, server_tier), signal.SIGSTOP)
    with (
        Worker(isolation, "cpu", True, Limits(start_timeout_s=0.5)) as lost,
        pytest.raises(SandboxUnavailable, match="did not start"),
    ):
        lost.await_ready()
    assert not server.alive
    with open_worker(device="cpu", interpret=True, tier=server_tier) as worker:
        assert run(worker, "return 1") == 1


def test_a_refusal_that_is_not_cudas_concedes_nothing(monkeypatch):
    import agentkernel.tools.sandbox.isolation as tiers
    import agentkernel.tools.sandbox.session as session

    events = threading.Event(), threading.Event()
    monkeypatch.setattr(tiers, "_cuda_alone", events[0])
    monkeypatch.setattr(tiers, "_cuda_first", events[1])
    with pytest.raises(SandboxUnavailable):
        open_worker(device="cuda", interpret=False, tier="none")
    assert not any(event.is_set() for event in events)
    assert session.weaken_isolation()
    assert [event.is_set() for event in events] == [True, False]
    assert session.weaken_isolation()
    assert not session.weaken_isolation()


def test_the_compiler_is_hashed_once_for_all_forks(run):
    """Else each worker reads Triton's hundreds of megabytes before its first kernel."""
    with open_worker(device="cpu", interpret=False) as worker:
        assert run(worker, HASHED) == 1
