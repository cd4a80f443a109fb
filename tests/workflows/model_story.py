"""Scripted models with a known story, and the runs in which they are asked over a real socket."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agentkernel.cli.app import run as agentkernel
from agentkernel.domain.exchange import Exchange
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.run_store import open_run
from agentkernel.workflows.outcome import Result
from tests.agents.models.chat_server import Answer, ChatServer, Says, Scripted

ROOT = Path(__file__).parents[2]
KEY = "sk-sentinel-0123456789"
PRICES = "prices: [{model: 'openai:scripted@*', input: 2.0, output: 10.0, cached: 1.0}]\n"
MILLION = 1_000_000
QUICK = (
    *("--target", "h100", "-c", "judge.seeds=1", "-c", "judge.budget_s=0"),
    *("-c", "judge.seed=0"),
)
"""Under one seed the same case decides each time, which the questions then name."""

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0)


def get_inputs():
    return [torch.randn(8192, 4096)]


def get_init_inputs():
    return []
"""
IMPORTS = """import torch
import triton
import triton.language as tl
from torch import nn


"""
POINTWISE = """@triton.jit
def {name}(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(y_ptr + at, {formula}, mask=at < count)


"""
FORMULAS = {
    "double": "x * 2.0",
    "shift": "x + 1.0",
    "double_shift": "x * 2.0 + 1.0",
    "keep": "x",
    "clip": "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)",
    "whole": "tl.maximum(x * 2.0 + 1.0, 0.0, propagate_nan=tl.PropagateNan.ALL)",
}


def drop_in(*steps: str) -> str:
    """A drop-in for PROBLEM with one launch a step: every launch moves all bytes once more."""
    kernels = "".join(
        POINTWISE.format(name=name, formula=FORMULAS[name]) for name in dict.fromkeys(steps)
    )
    launches = "".join(
        f"        {name}[grid]({'x' if not at else f'y{at - 1}'}, y{at}, x.numel(), "
        "BLOCK=1024, num_warps=4)\n"
        for at, name in enumerate(steps)
    )
    made = "".join(f"        y{at} = torch.empty_like(x)\n" for at in range(len(steps)))
    return (
        f"{IMPORTS}{kernels}class ModelNew(nn.Module):\n    def forward(self, x):\n"
        f"        x = x.contiguous()\n{made}        grid = (triton.cdiv(x.numel(), 1024),)\n"
        f"{launches}        return y{len(steps) - 1}\n"
    )


FAST = drop_in("whole")
TWO = drop_in("double_shift", "clip")
THREE = drop_in("double", "shift", "clip")
FOUR = drop_in("double", "shift", "clip", "keep")


class Mistake(NamedTuple):
    """A wrong drop-in, and what its maker knows the judge must find in it."""

    source: str
    facts: dict[str, str]
    """Name of a fact -> what it must begin with."""
    line: int | None = None


def line_of(source: str, text: str) -> int:
    """The line of `source` that holds `text`, which stands there once."""
    found = [at for at, line in enumerate(source.split("\n"), 1) if text in line]
    assert len(found) == 1, found
    return found[0]


def past_the_end(right: str, store: str, kernel: str) -> Mistake:
    """The mask of the one `store` lets an element too many through, past the end of all tensors."""
    wrong = store.replace(" < ", " <= ")
    source = right.replace(store, wrong)
    line = line_of(source, wrong)
    words = f"kernel {kernel} line {line}: store outside of every tensor"
    facts = {"kind": "fault", "fault": "run: out_of_bounds", "line": str(line)}
    return Mistake(source, {**facts, "what happened": words, "case": ""}, line)


LEFT_OUT = 4
"""Elements at the end that the mask of MASKED leaves out."""
FILLED = 4
"""What MASKED takes in their place: 2 x 4 + 1 = 9 comes out."""


def mistake_in_the_mask() -> Mistake:
    """The last elements are masked away on their way in, and stand for another value."""
    head, tail = drop_in("whole").split("mask=at < count, other=0.0", 1)
    source = f"{head}mask=at < count - {LEFT_OUT}, other={FILLED}.0{tail}"
    return Mistake(source, {"kind": "values", "place": "the tail, from", "found there": "9"})


BEYOND = past_the_end(TWO, "x * 2.0 + 1.0, mask=at < count", "double_shift")
MASKED = mistake_in_the_mask()
CALLS_TORCH = FAST.replace("        return y0", "        return torch.relu(y0)")
KEEPS = FAST.replace(
    "    def forward(self, x):\n",
    "    kept = {}\n\n    def forward(self, x):\n"
    "        if x.shape in self.kept:\n            return self.kept[x.shape]\n",
).replace("        return y0", "        self.kept[x.shape] = y0\n        return y0")
ASKS_THE_ORIGINAL = FAST.replace("from torch import nn\n", "from torch import nn\nimport problem\n")
SOFTMAX_TWO = (
    IMPORTS
    + """@triton.jit
def row_statistics(x_ptr, top_ptr, total_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + at, mask=at < width, other=-float("inf"))
    top = tl.max(x, axis=0)
    tl.store(top_ptr + row, top)
    tl.store(total_ptr + row, tl.sum(tl.exp(x - top), axis=0))


@triton.jit
def row_shares(x_ptr, top_ptr, total_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0)
    y = tl.exp(x - tl.load(top_ptr + row)) / tl.load(total_ptr + row)
    tl.store(y_ptr + row * width + at, y, mask=at < width)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, width = x.shape
        y = torch.empty_like(x)
        top = torch.empty(rows, device=x.device, dtype=x.dtype)
        total = torch.empty_like(top)
        block = triton.next_power_of_2(width)
        row_statistics[(rows,)](x, top, total, width, BLOCK=block, num_warps=8)
        row_shares[(rows,)](x, top, total, y, width, BLOCK=block, num_warps=8)
        return y
"""
)
SOFTMAX_ONE = (
    IMPORTS
    + """@triton.jit
def row_softmax(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + at, mask=at < width, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * width + at, e / tl.sum(e, axis=0), mask=at < width)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, width = x.shape
        y = torch.empty_like(x)
        row_softmax[(rows,)](x, y, width, BLOCK=triton.next_power_of_2(width), num_warps=8)
        return y
"""
)
SOFTMAX_FILLED = Mistake(
    SOFTMAX_TWO.replace('other=-float("inf")', "other=0.0"),
    {"kind": "values", "pattern": "all", "output": "0", "case": ""},
)
"""Lanes past the row's end count as 0 in its maximum and as exp(0 - maximum) in its sum."""
SOFTMAX_BEYOND = past_the_end(SOFTMAX_TWO, "at, y, mask=at < width", "row_shares")
PROSE = "A softmax is a thing of beauty, and so is a tile. " * 4000
LINES = re.compile(r"^- ([\w ]+): (.*)$", re.M)
SHAPE = re.compile(r"float32\[([\d, ]+)\]")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


class Seen(NamedTuple):
    """What a request shows: the file to fix, what was found in it, the best file so far."""

    text: str
    refused: str | None
    facts: dict[str, str]
    marked: int | None
    """The line that the excerpt points at."""
    best: str | None


def text_of(request: dict[str, object]) -> str:
    """The last turn of a request."""
    messages = request["messages"]
    assert isinstance(messages, list)
    return str(messages[-1]["content"])


def all_of(request: dict[str, object]) -> str:
    """Every turn of a request."""
    messages = request["messages"]
    assert isinstance(messages, list)
    return "\n".join(str(item["content"]) for item in messages)


def seen(request: dict[str, object]) -> Seen:
    """`request` as its reader understands it."""
    text, whole = text_of(request), all_of(request)
    found = text.partition("## What the judge found")[2]
    refused = FENCE.search(text) if found else None
    best = FENCE.search(whole.partition("## The best right file so far")[2])
    marked = re.search(r"^> +(\d+) \|", found, re.M)
    return Seen(
        text=text,
        refused=refused[1] if refused else None,
        facts=dict(LINES.findall(found.partition("## Diagnosis")[0])),
        marked=int(marked[1]) if marked else None,
        best=best[1] if best else None,
    )


def missing(shown: Seen, mistake: Mistake) -> list[str]:
    """What the diagnosis lacks of what the maker of the mistake knows; [] for a right one."""
    lacking = [
        f"{name}: {shown.facts.get(name)!r} is not {wanted!r}"
        for name, wanted in mistake.facts.items()
        if wanted not in shown.facts.get(name, "")
    ]
    if mistake.line is not None and shown.marked != mistake.line:
        lacking.append(f"the excerpt marks line {shown.marked}, not {mistake.line}")
    if "place" in mistake.facts and not lacking:
        lacking += _wrong_place(shown.facts)
    return lacking


def _wrong_place(facts: dict[str, str]) -> list[str]:
    """The first element that MASKED leaves out, from the shape of the judged case."""
    shape = SHAPE.search(facts["case"])
    if shape is None:
        return ["the case names no shape"]
    sizes = [int(item) for item in shape[1].split(",")]
    rows, columns = sizes[0], sizes[1]
    index = list(divmod(rows * columns - LEFT_OUT, columns))
    return [] if facts.get("first wrong index") == str(index) else [f"{index} is not named"]


def said(source: str) -> Says:
    """A file between words, with tokens that depend on its length."""
    text = f"Here it is.\n\n```python\n{source}```\n\nIt should be fast."
    return Says(text, prompt=1000, completion=len(text) // 4, cached=200)


@dataclass
class Author:
    """Wrong, debugged, wrong otherwise, debugged, right, faster. It fixes only what is rightly
    diagnosed, and goes on to the faster file only from the right one that it is shown."""

    mistakes: Sequence[Mistake]
    right: str
    faster: str
    complaints: list[str] = field(default_factory=list)

    def __call__(self, request: dict[str, object]) -> Answer:
        shown = seen(request)
        if shown.refused is None:
            first = self.mistakes[0].source if self.mistakes else self.right
            return said(self.faster if shown.best == self.right else first)
        for mistake, better in zip(self.mistakes, self._mended(), strict=True):
            if shown.refused == mistake.source:
                lacking = missing(shown, mistake)
                self.complaints += lacking
                return said(mistake.source if lacking else better)
        self.complaints.append("a file that was never written")
        return "No."

    def _mended(self) -> list[str]:
        return [*(item.source for item in self.mistakes[1:]), self.right]


class Ended(NamedTuple):
    """A run's folder, read after its end."""

    code: int
    folder: Path
    result: Result
    verdicts: tuple[Verdict, ...]
    exchanges: tuple[Exchange, ...]
    report: str
    events: tuple[dict[str, object], ...]

    def sources(self) -> list[str]:
        """The drafted files in order."""
        store = open_run(self.folder.parent, self.folder.name)
        try:
            return [item.source for item in store.records.candidates()]
        finally:
            store.close()

    def handed_over(self) -> str:
        """The drop-in."""
        assert self.result.candidate is not None
        return Path(self.result.candidate).read_text()

    def of_kind(self, kind: str) -> list[dict[str, object]]:
        """Events of one kind."""
        return [item for item in self.events if item["kind"] == kind]


def read_end(code: int, runs: Path) -> Ended:
    """The last run of the folder `runs`."""
    store = open_run(runs, "last")
    try:
        return Ended(
            code,
            store.folder,
            Result.model_validate_json(store.result_path.read_text()),
            store.records.verdicts(),
            store.records.exchanges(),
            (store.folder / "report.md").read_text(),
            tuple(json.loads(item) for item in store.records.events()),
        )
    finally:
        store.close()


@dataclass
class Place:
    """A folder with a problem, a price table and runs."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "problem.py").write_text(PROBLEM)
        prices = self.folder / "config" / "agentkernel" / "prices.yaml"
        prices.parent.mkdir(parents=True)
        prices.write_text(PRICES)

    @property
    def runs(self) -> Path:
        """Where the runs are."""
        return self.folder / "runs"

    def environment(self) -> dict[str, str]:
        """What a process of this place sees."""
        own = {"XDG_CONFIG_HOME": str(self.folder / "config"), "OPENAI_API_KEY": KEY}
        still = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        return {**os.environ, **own, **still}

    def words(self, server: ChatServer, *more: str, problem: Path | None = None) -> list[str]:
        """The command line that optimizes with the model of `server`."""
        path = problem or self.folder / "problem.py"
        coder = f"chat:openai:scripted@{server.url}"
        return ["optimize", str(path), "--coder", coder, *QUICK, *self._ends(), *more]

    def resume_words(self) -> list[str]:
        """The command line that goes on with the last run."""
        return ["resume", "last", *self._ends()]

    def _ends(self) -> list[str]:
        return ["--runs", str(self.runs), "--json"]

    def optimize(self, script: Sequence[Scripted] | Callable[..., Answer], *more: str) -> Ended:
        """A whole run in this process; the last answer of a list is given again and again."""
        with serve(script) as server:
            return self.finish(self.words(server, *more))

    def finish(self, words: list[str]) -> Ended:
        """One command line in this process, and the end of its run."""
        return read_end(agentkernel(words), self.runs)

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        """The same in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "agentkernel", *words], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.folder, env=self.environment(),
        )  # fmt: skip


def serve(script: Sequence[Scripted] | Callable[..., Answer]) -> ChatServer:
    """A server whose last answer holds for all later requests."""
    if callable(script):
        return ChatServer([script], forever=True)
    return ChatServer(list(script), forever=True)


def events_of(child: subprocess.Popen[str]) -> Iterator[dict[str, object]]:
    """What a process tells, line by line."""
    assert child.stdout is not None
    for line in child.stdout:
        found: dict[str, object] = json.loads(line)
        yield found


def kill_at(
    child: subprocess.Popen[str], moment: Callable[[dict[str, object]], bool], wait_s: float = 0.0
) -> None:
    """kill -9, `wait_s` seconds after the first event that is the `moment`."""
    with child:
        for event in events_of(child):
            if moment(event):
                time.sleep(wait_s)
                child.send_signal(signal.SIGKILL)
                break
        else:
            raise AssertionError("the moment never came")
    assert child.returncode == -signal.SIGKILL
