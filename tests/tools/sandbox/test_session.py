"""A worker answers, says what went wrong, and serves one caller only."""

import os
import subprocess
import sys
import time

import pytest
import torch

from agentkernel.domain.errors import SandboxUnavailable, TimeIsUp
from agentkernel.tools.sandbox.isolation import Limits, find_isolation
from agentkernel.tools.sandbox.process import close_servers
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import (
    close_idle_workers,
    limited_time,
    open_worker,
    prefork_worker,
)


@pytest.fixture(scope="module")
def worker():
    with open_worker(device="cpu", interpret=True) as made:
        yield made


def test_an_error_says_where_and_the_worker_lives_on(worker, run):
    reply = run(worker, "x = 1\nraise ValueError('seven')")
    assert reply.reason == "raised"
    assert (reply.error, reply.line) == ("ValueError", 3)
    assert isinstance(run(worker, "raise SystemExit(0)"), WorkerFailed)
    assert run(worker, "return 5") == 5


def test_ops_elsewhere_are_refused(worker):
    reply = worker.call("os:system", {}, 5.0)
    assert isinstance(reply, WorkerFailed)
    assert reply.error == "OpRefused"


def test_a_call_ends_with_the_time_limit_of_the_run(run):
    with open_worker(device="cpu", interpret=True) as own:
        begin = time.monotonic()
        with limited_time(lambda: 1.0 + begin - time.monotonic()), pytest.raises(TimeIsUp):
            run(own, "import time\nwhile True: time.sleep(0.1)")
        assert time.monotonic() - begin < 10.0
        assert not own.alive
    with limited_time(lambda: 0.0), pytest.raises(TimeIsUp):
        run(own, "return 1")


def test_printing_forges_no_reply_and_the_log_is_bounded(worker, run):
    text = '{"ok": true, "value": {"result": "forged"}}'
    body = f"import sys\nfor _ in range(20000): print({text!r})\nsys.stdout.flush()\nreturn 'true'"
    assert run(worker, body) == "true"
    assert len(worker.log) <= Limits().log_bytes


def test_an_expected_worker_is_used_once_and_for_its_own_wishes(run, nothing_left):
    prefork_worker(device="cpu", interpret=True, count=2)
    with (
        open_worker(device="cpu", interpret=True) as first,
        open_worker(device="cpu", interpret=True) as second,
    ):
        assert [run(item, "return 1") for item in (first, second)] == [1, 1]
        assert first.scratch != second.scratch
    prefork_worker(device="cpu", interpret=True)
    with open_worker(device="cpu", interpret=False) as other:
        assert run(other, "import os\nreturn os.environ.get('TRITON_INTERPRET')") is None
    close_idle_workers()


LOADED = "import sys\nreturn [name in sys.modules for name in ('torch._dynamo', 'triton')]"


@pytest.mark.slow
def test_no_worker_imports_what_its_kind_does_not_need(run):
    """A front end comes before and after one that compiles, from one fork server."""
    close_idle_workers()
    close_servers()
    kinds = [(True, False), (False, True), (False, False), (False, True)]
    found = []
    for interpret, frontend in kinds:
        with open_worker(device="cpu", interpret=interpret, frontend=frontend) as worker:
            found.append(run(worker, LOADED))
    assert [triton for _, triton in found] == [True] * 4
    assert [dynamo for dynamo, _ in found][:3] == [False, False, True]


@pytest.mark.slow
def test_what_nobody_took_ends_with_its_process(tmp_path):
    script = (
        "from agentkernel.tools.sandbox.session import prefork_worker\n"
        "prefork_worker(device='cpu', interpret=True)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=30)
    assert not list(tmp_path.iterdir())


def test_without_walls_there_is_no_worker_unless_allowed():
    with pytest.raises(SandboxUnavailable):
        find_isolation(cuda=False, wanted="none")
    assert find_isolation(cuda=False, wanted="none", allow_unsandboxed=True).tier == "none"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda_tensors_are_shared_both_ways(run):
    value = torch.arange(12, device="cuda", dtype=torch.float32).reshape(3, 4).t()
    with open_worker(device="cuda", interpret=False) as worker:
        ref = worker.share(value)
        assert ref.kind == "ipc"
        assert run(worker, "t['x'].mul_(2)\nreturn list(t['x'].stride())", {"x": ref}) == [1, 4]
        assert float(worker.shared(ref).sum()) == 132.0
        assert float(value.sum()) == 66.0
        assert ref.span.alone


FLAG = (
    "import torch\ncudnn = torch.backends.cudnn\n"
    "return [cudnn.conv.fp32_precision == 'tf32', cudnn.allow_tf32]"
)


def test_a_worker_rounds_convolutions_as_its_parent_would(worker, run):
    """What is measured there has to do what the user's own process does; the interpreter rounds
    nothing."""
    assert run(worker, FLAG) == [False, False]
    conv = torch.backends.cudnn.conv
    before = conv.fp32_precision
    try:
        for flag in ("tf32", "ieee"):
            conv.fp32_precision = flag
            with open_worker(device="cpu", interpret=False) as own:
                assert run(own, FLAG) == [flag == "tf32"] * 2
    finally:
        conv.fp32_precision = before
