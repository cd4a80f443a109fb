"""Do the walls hold? No network, no secrets, nothing to write to, nothing left behind."""

import os
import subprocess
import sys
import time

import pytest
import torch

import agentkernel
from agentkernel.errors import SandboxUnavailable
from agentkernel.tools.sandbox.limits import Limits
from agentkernel.tools.sandbox.processes import private_bytes
from agentkernel.tools.sandbox.session import WorkerFailed, close_spares, expect_worker, open_worker
from agentkernel.tools.sandbox.tiers import Walls, find_walls, probe

EXECUTE = "agentkernel.tools.sandbox.ops:execute"
TIERS = [
    pytest.param(name, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))
    for name, reason in (
        ("bubblewrap", probe(Walls("bubblewrap"), False)),
        ("namespaces", probe(Walls("namespaces"), False)),
    )
]


@pytest.fixture(scope="module", params=TIERS)
def worker(request):
    patch = pytest.MonkeyPatch()
    patch.setenv("AGENTKERNEL_TEST_SECRET", "hunter2")
    with open_worker(device="cpu", interpret=True, tier=request.param) as made:
        yield made
    patch.undo()


def run(worker, body, tensors=None, timeout_s=30.0):
    source = "def run(t):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    reply = worker.call(EXECUTE, {"source": source, "tensors": tensors or {}}, timeout_s)
    return reply if isinstance(reply, WorkerFailed) else reply["result"]


def test_no_network(worker):
    reply = run(worker, "import socket\nsocket.create_connection(('1.1.1.1', 53), 2)")
    assert isinstance(reply, WorkerFailed)
    assert "unreachable" in reply.log
    names = run(worker, "import os\nreturn sorted(os.listdir('/sys/class/net'))")
    links = run(worker, "return open('/proc/net/dev').read()")
    assert isinstance(names, list)
    assert [line.split(":")[0].strip() for line in links.splitlines()[2:]] == ["lo"]


def test_no_secret_of_the_environment(worker):
    seen = run(worker, "import os\nreturn dict(os.environ)")
    assert "hunter2" not in str(seen)
    assert "HOME" not in seen
    parents = run(
        worker,
        "import glob\nreturn [open(p, 'rb').read().decode(errors='replace')"
        " for p in glob.glob('/proc/[0-9]*/environ')]",
    )
    assert "hunter2" not in str(parents)


def test_files_are_read_only_and_homes_hidden(worker, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    package = os.path.dirname(agentkernel.__file__)
    for path in ("/etc/agentkernel-test", "/usr/agentkernel-test", f"{package}/x.tmp"):
        reply = run(worker, f"open({path!r}, 'w')")
        assert isinstance(reply, WorkerFailed)
        assert "Read-only" in reply.log or "No such file" in reply.log
        assert not os.path.exists(path)
    assert "FileNotFoundError" in run(worker, f"open({str(secret)!r})").log
    run(worker, "open('mine.txt', 'w').write('x')")
    assert (worker.scratch / "mine.txt").read_text() == "x"


def test_no_privilege_and_no_foreign_process(worker):
    status = run(worker, "return open('/proc/self/status').read()")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff"))
    assert int(effective.split()[1], 16) == 0
    assert "NoNewPrivs:\t1" in status
    numbers = run(worker, "import os\nreturn [p for p in os.listdir('/proc') if p.isdigit()]")
    assert len(numbers) <= 4
    disks = run(worker, "import glob\nreturn glob.glob('/dev/vd*') + glob.glob('/dev/sd*')")
    assert disks == []


def test_tensors_are_shared_both_ways(worker):
    value = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t()
    ref = worker.share(value)
    assert run(worker, "t['x'].mul_(2)\nreturn list(t['x'].stride())", {"x": ref}) == [1, 4]
    assert torch.equal(worker.shared(ref), value * 2)
    worker.shared(ref).zero_()
    assert run(worker, "return float(t['x'].sum())", {"x": ref}) == 0.0
    worker.release([ref])
    assert isinstance(run(worker, "return 1", {"x": ref}), WorkerFailed)


def test_an_error_says_where_and_the_worker_lives_on(worker):
    reply = run(worker, "x = 1\nraise ValueError('seven')")
    assert reply.reason == "raised"
    assert (reply.error, reply.line) == ("ValueError", 3)
    assert isinstance(run(worker, "raise SystemExit(0)"), WorkerFailed)
    assert run(worker, "return 5") == 5


def test_ops_elsewhere_are_refused(worker):
    reply = worker.call("os:system", {}, 5.0)
    assert isinstance(reply, WorkerFailed)
    assert reply.error == "OpRefused"


def test_printing_forges_no_reply_and_the_log_is_bounded(worker):
    text = '{"ok": true, "value": {"result": "forged"}}'
    body = f"import sys\nfor _ in range(20000): print({text!r})\nsys.stdout.flush()\nreturn 'true'"
    assert run(worker, body) == "true"
    assert len(worker.log) <= Limits().log_bytes


def _below(pid):
    out = subprocess.run(["ps", "-eo", "pid,ppid,stat"], capture_output=True, text=True, check=True)
    rows = [line.split() for line in out.stdout.splitlines()[1:]]
    return [row for row in rows if row[1] == str(pid) and not row[2].startswith("R")]


def test_a_hang_is_killed_and_nothing_is_left():
    before = len(_below(os.getpid()))
    with open_worker(device="cpu", interpret=True) as worker:
        folder = worker.scratch.parent
        started = time.monotonic()
        reply = run(worker, "import time\nwhile True: time.sleep(1)", timeout_s=1.0)
        assert reply.reason == "timeout"
        assert time.monotonic() - started < 5
        assert run(worker, "return 1").reason == "timeout"
    assert not folder.exists()
    assert len(_below(os.getpid())) <= before


def test_a_crash_and_a_greedy_worker_are_told_apart():
    with open_worker(device="cpu", interpret=True) as worker:
        reply = run(worker, "import os\nos.abort()")
        assert reply.reason == "died"
        assert "SIGABRT" in reply.log
    limits = Limits(memory_bytes=1 << 30)
    with open_worker(device="cpu", interpret=True, limits=limits) as worker:
        body = "import time\nx = []\nwhile True:\n    x.append(bytearray(1 << 25)); time.sleep(.02)"
        assert run(worker, body).reason == "memory"


def test_a_forged_frame_is_no_value():
    with open_worker(device="cpu", interpret=True) as worker:
        body = (
            "import os\nfor fd in range(3, 1024):\n    try:\n        os.write(fd, b'\\xff' * 64)\n"
            "    except OSError: pass\nreturn 1"
        )
        reply = run(worker, body)
        assert isinstance(reply, WorkerFailed)
        assert reply.reason == "died"


def test_a_killed_parent_takes_the_worker_along():
    script = (
        "import os, time\n"
        "from agentkernel.tools.sandbox.session import open_worker\n"
        "w = open_worker(device='cpu', interpret=True)\n"
        "print(w._process.pid, flush=True)\n"
        f"w.call({EXECUTE!r}, {{'source': 'while True: pass'}}, 100)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        pid = int(parent.stdout.readline())
        time.sleep(0.5)
        assert private_bytes(pid) > 0
        parent.kill()
        parent.wait()
        end = time.monotonic() + 10
        while private_bytes(pid) > 0 and time.monotonic() < end:
            time.sleep(0.05)
    assert private_bytes(pid) == 0


def test_an_expected_worker_is_used_once_and_for_its_own_wishes():
    before = len(_below(os.getpid()))
    expect_worker(device="cpu", interpret=True, count=2)
    with (
        open_worker(device="cpu", interpret=True) as first,
        open_worker(device="cpu", interpret=True) as second,
    ):
        pids = [run(item, "import os\nreturn os.getpid()") for item in (first, second)]
        assert all(isinstance(pid, int) for pid in pids)
        assert first.scratch != second.scratch
    expect_worker(device="cpu", interpret=True)
    with open_worker(device="cpu", interpret=False) as other:
        assert run(other, "import os\nreturn os.environ.get('TRITON_INTERPRET')") is None
    close_spares()
    assert len(_below(os.getpid())) <= before


def test_what_nobody_took_ends_with_its_process(tmp_path):
    script = (
        "from agentkernel.tools.sandbox.session import expect_worker\n"
        "expect_worker(device='cpu', interpret=True)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=30)
    assert not list(tmp_path.iterdir())


def test_without_walls_there_is_no_worker_unless_allowed():
    with pytest.raises(SandboxUnavailable):
        find_walls(cuda=False, wanted="none")
    assert find_walls(cuda=False, wanted="none", allow_unsandboxed=True).tier == "none"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda_tensors_are_shared_both_ways():
    value = torch.arange(12, device="cuda", dtype=torch.float32).reshape(3, 4).t()
    with open_worker(device="cuda", interpret=False) as worker:
        ref = worker.share(value)
        assert ref.kind == "ipc"
        assert run(worker, "t['x'].mul_(2)\nreturn list(t['x'].stride())", {"x": ref}) == [1, 4]
        assert float(value.sum()) == 132.0
