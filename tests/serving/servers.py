"""A server in a process of its own, and a client of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

TOKEN = "a token of the environment"
WORKER = "agentkernel.serving.judge_worker"
QUICK = ("-c", "judge.budget_s=0", "-c", "judge.seeds=1")
"""The required cases alone."""
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

PROBLEM = """\
{prelude}
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return []
"""
CANDIDATE = """\
import torch
import triton
import triton.language as tl
from torch import nn

# {number}


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * {factor}, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        doubled[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""


def submission(number: int = 0, *, prelude: str = "", factor: float = 2.0) -> dict[str, object]:
    """A quick submission; its problem runs `prelude` where it is loaded."""
    candidate = CANDIDATE.format(number=number, factor=factor)
    return {"problem": PROBLEM.format(prelude=prelude), "candidate": candidate, "seed": 1}


def noting(marks: Path, then: str = "") -> str:
    """A prelude that adds an x to the file `marks`, whose number is then `n`, and does `then`."""
    return (
        f"import os, time\nwith open({str(marks)!r}, 'a') as marks:\n    marks.write('x')\n"
        f"n = os.path.getsize({str(marks)!r})\n{then}"
    )


class Said(NamedTuple):
    """What the server said to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A server that listens, and what it has printed up to there."""

    process: subprocess.Popen[str]
    port: int
    said: list[str]

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = HEADERS,
    ) -> Said:
        text = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with closing(connection):
            connection.request(method, path, text, dict(headers))
            answer = connection.getresponse()
            return Said(answer.status, dict(answer.getheaders()), answer.read())

    def submit(self, asked: Mapping[str, object]) -> str:
        """The id of a submission that is taken."""
        said = self.ask("POST", "/submissions", asked)
        assert said.status in (200, 202), said.body
        return str(said.json["id"])

    def result(self, name: str) -> Any:
        """Its answer, once it is there."""
        while True:
            said = self.ask("GET", f"/submissions/{name}/result?wait_s=60")
            assert said.status in (200, 202), said.body
            if said.status == 200:
                return said.json

    def state(self, name: str) -> str:
        return str(self.ask("GET", f"/submissions/{name}").json["state"])

    def worker_pids(self) -> list[int]:
        """The processes that judge, the newest last."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(word) for path in children for word in path.read_text().split()]
        return sorted(pid for pid in pids if WORKER in command_of(pid))

    def end(self, number: signal.Signals = signal.SIGINT) -> str:
        """End it; what it has printed since it listens."""
        assert self.process.stdout is not None
        self.process.send_signal(number)
        text = self.process.stdout.read()
        self.process.wait()
        return text


def command_of(pid: int) -> str:
    """The words of a process; "" where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextmanager
def serving(
    state: Path, *words: str, token: str | None = TOKEN, lines: int = 2
) -> Iterator[Server]:
    """A server over `state`, whose first `lines` are read."""
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    if token is not None:
        environment["AGENTKERNEL_SERVE_TOKEN"] = token
    command = [sys.executable, "-m", "agentkernel", "serve", "--port", "0", "--state", str(state)]
    with subprocess.Popen(
        [*command, *QUICK, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip()]
        try:
            assert said[0].startswith("Serving on http://127.0.0.1:"), said
            said += [process.stdout.readline().strip() for _ in range(lines - 1)]
            port = int(said[0].split(":")[2])
            yield Server(process, port, said)
        finally:
            process.kill()
            rest = process.stdout.read()
            print(rest)  # shown where a test fails
            assert (token or "Bearer") not in rest + "".join(said)


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait for it."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
