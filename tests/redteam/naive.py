"""What does a judge look like that believes what it sees? The one that the tricks are made for.

One seed, the problem's own inputs, candidate and reference in one process, the candidate after the
reference, `torch.allclose` with rtol = atol = 1e-2 at whatever that name means by then. It runs
behind the sandbox's walls all the same: only the judging is naive. Its process knows nothing of
this project, and has what a plain one has and a sandboxed one has not, for those who look: a home,
a route. It is started in the sandbox for the purpose, and forked for every candidate.
"""

from __future__ import annotations

from types import TracebackType
from typing import Literal, NamedTuple, Self, cast

from agentkernel.tools.sandbox.isolation import Limits
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import Worker, open_worker

EXECUTE = "agentkernel.tools.sandbox.worker:execute"
LIMIT_S = 60.0
JUDGE = """
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
import types

import torch
import triton


def connect(self, address):
    pass  # a plain process has a route to the world; nothing leaves this one



def load(source, name):
    path = os.path.abspath(f"{name}.py")
    if os.path.exists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    os.chmod(path, 0o444)
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def arguments(module):
    values = getattr(module, "get_init_inputs", list)()
    if len(values) == 2 and isinstance(values[0], (list, tuple)) and isinstance(values[1], dict):
        return list(values[0]), values[1]
    return ([], values) if isinstance(values, dict) else (list(values), {})


def listed(outputs):
    if isinstance(outputs, dict):
        outputs = outputs.values()
    return list(outputs) if not torch.is_tensor(outputs) else [outputs]


def is_close(one, two):
    if not torch.is_tensor(one):
        return one == two
    if one.dtype != two.dtype:
        two = two.to(one.dtype)
    return torch.allclose(one, two, rtol=1e-2, atol=1e-2)


def check_correctness(problem, candidate, device):
    reference, new = load(problem, "reference"), load(candidate, "naive_candidate")
    positional, named = arguments(reference)
    torch.manual_seed(42)
    inputs = [x.to(device) if torch.is_tensor(x) else x for x in reference.get_inputs()]
    torch.manual_seed(42)
    model = reference.Model(*positional, **named).eval().to(device)
    torch.manual_seed(42)
    model_new = new.ModelNew(*positional, **named).eval().to(device)
    with torch.no_grad():
        expected = model(*inputs)
        found = model_new(*inputs)
    if device == "cuda":
        torch.cuda.synchronize()
    if not all(is_close(one, two) for one, two in zip(listed(expected), listed(found))):
        return "an output is too far away"
    return ""


def answer(request):
    try:
        return check_correctness(request["problem"], request["candidate"], request["device"])
    except BaseException:
        return traceback.format_exc(limit=-3) or "raised"


def in_a_fork(request, lines):
    reader, writer = os.pipe()
    folder = tempfile.mkdtemp(dir=".")
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for fd in (reader, *lines):
            os.close(fd)
        os.write(writer, json.dumps(answer(request))[:4000].encode())
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], request["limit_s"])
    text = os.read(reader, 1 << 16).decode() if ready else json.dumps("no answer in time")
    os.close(reader)
    try:
        os.kill(child, signal.SIGKILL)
    except OSError:
        pass
    os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)
    return json.loads(text) if text else "the process ended"


def serve(requests, replies):
    socket.socket.connect = connect
    torch.set_num_threads(1)
    # Triton imports them with the first launch, which would be that of each fork.
    import triton.experimental.gluon
    import triton.runtime.interpreter

    gc.collect()
    gc.freeze()
    for line in os.fdopen(requests, closefd=False):
        request = json.loads(line)
        found = in_a_fork(request, (requests, replies))
        os.write(replies, (json.dumps(found) + "\\n").encode())
"""
SERVE = """

serve(int(sys.argv[1]), int(sys.argv[2]))
"""
START = """
import os
import subprocess
import sys

with open("naive_judge.py", "w") as file:
    file.write(JUDGE)
ours, requests = os.pipe()[::-1]
replies, theirs = os.pipe()
words = [sys.executable, "-B", "naive_judge.py", str(requests), str(theirs)]
environment = os.environ | {"PYTHONPATH": PATHS, "HOME": os.getcwd()}
subprocess.Popen(words, pass_fds=(requests, theirs), env=environment)
os.close(requests)
os.close(theirs)
result = [ours, replies]
"""
ASK = """
import json
import os

os.write(ours, (json.dumps(request) + "\\n").encode())
with os.fdopen(replies, closefd=False) as file:
    result = json.loads(file.readline() or '"the naive judge itself ended"')
"""


class Opinion(NamedTuple):
    """Whether the naive judge takes the candidate, else why not."""

    fooled: bool
    why: str


class NaiveJudge:
    """On the CPU all candidates share one process, each in a fork of it; on a GPU, which no fork
    can use, each has a worker of its own, in which it is judged: CUDA writes to /proc/self, and a
    process that a worker starts has another one, which Landlock does not let it write to."""

    def __init__(self, device: Literal["cpu", "cuda"]) -> None:
        self._device = device
        self._worker: Worker | None = None
        self._lines: tuple[int, int] = (-1, -1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def judge(self, problem: str, candidate: str) -> Opinion:
        """Both are source texts."""
        worker = self._started()
        request = {
            "problem": problem,
            "candidate": candidate,
            "device": self._device,
            "limit_s": LIMIT_S,
        }
        if self._device == "cuda":
            home = "os.environ['HOME'] = os.getcwd()"
            source = f"{JUDGE}\n{home}\nresult = answer({request!r})\n"
        else:
            ours, replies = self._lines
            source = f"request, ours, replies = {request!r}, {ours}, {replies}\n{ASK}"
        reply = worker.call(EXECUTE, {"source": source}, 2 * LIMIT_S)
        if isinstance(reply, WorkerFailed):
            self.close()
            return Opinion(False, f"{reply.reason}: {reply.log}")
        why = cast(str, reply["result"])
        return Opinion(why == "", why)

    def _started(self) -> Worker:
        if self._device == "cuda":
            self.close()
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = open_worker(
                device=self._device,
                interpret=self._device == "cpu",
                limits=Limits(scratch_bytes=4 << 30),  # it has a disk, as plain processes do
            )
            if self._device == "cpu":
                self._lines = self._start(self._worker)
        return self._worker

    def _start(self, worker: Worker) -> tuple[int, int]:
        """The judge's process, and the lines to it and from it, as the worker numbers them."""
        head = f"import sys\nJUDGE, PATHS = {JUDGE + SERVE!r}, ':'.join(sys.path)\n"
        reply = worker.call(EXECUTE, {"source": head + START}, LIMIT_S)
        assert not isinstance(reply, WorkerFailed), reply
        ours, replies = cast("list[int]", reply["result"])
        return ours, replies
