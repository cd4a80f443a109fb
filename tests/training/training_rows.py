"""Rows to learn from, made up: elementwise kernels of a dozen lines, and a folder of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentkernel.agents.conversation import completion, file_turn, write_turn
from agentkernel.domain.base import sha256_text
from agentkernel.domain.exchange import Message
from agentkernel.training.settings import Split, Task, TrainingRow

OPERATORS = ("+", "-", "*")
PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x {operator} {number}.0


def get_inputs():
    return [torch.randn(64)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def work(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value {operator} {number}.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        work[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return y
"""


def problem(number: int) -> str:
    """The module of that number."""
    return PROBLEM.format(operator=OPERATORS[number % 3], number=number + 2)


def kernel(number: int) -> str:
    """A right kernel for it."""
    return KERNEL.format(operator=OPERATORS[number % 3], number=number + 2)


def make_row(
    number: int, split: Split = "train", task: Task = "write", **changes: Any
) -> TrainingRow:
    """Row `number`; `changes` are put on top."""
    text, file = problem(number), kernel(number)
    turns: tuple[Message, ...] = (write_turn(text, "Model", "NVIDIA H100", "triton"),)
    if task != "write":
        said = "Not accepted." if task == "repair" else "Right, but slow."
        turns = (*turns, file_turn(kernel(number + 1)), Message(role="user", text=said))
    values = {
        "task": task,
        "messages": turns,
        "completion": completion("One pass over the data.", file),
        "source": "generated",
        "licence": "Apache-2.0",
        "label": "interpreter",
        "problem_sha256": sha256_text(text),
        "kernel_sha256": sha256_text(file),
        "structure": f"{OPERATORS[number % 3]}",
        "split": split,
    }
    return TrainingRow.model_validate({**values, **changes})


def write_rows(
    folder: Path, rows: Iterable[TrainingRow], held_out: Iterable[TrainingRow] = ()
) -> Path:
    """A folder as `agentkernel train data` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in (("train", rows), ("held-out", held_out)):
        text = "".join(row.model_dump_json() + "\n" for row in some)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "card.json").write_text(json.dumps({"rows": 1}))
    return folder


def make_data(folder: Path, count: int = 30) -> Path:
    """`count` rows of all tasks, four held-out ones, and two held-out problems."""
    tasks: tuple[Task, ...] = ("write", "optimise", "repair")
    rows = [make_row(number, task=tasks[number % 3]) for number in range(count)]
    found = write_rows(folder, rows, [make_row(90 + n, split="held-out") for n in range(4)])
    place = found / "problems" / "held-out"
    place.mkdir(parents=True)
    for number in (90, 91):
        (place / f"m{number}.py").write_text(problem(number))
    return found
