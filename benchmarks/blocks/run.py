"""A search on each of the drawn blocks, in a process of its own with a time limit.

python benchmarks/blocks/run.py RESULTS.jsonl [--each 15] [--seed 0] [--table docs/modules.md]

A block that has a row already is not run again, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import inspect
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from draw import Absent, Block, Called, draw, take
from models import admit_torchvision
from table import VERIFIED, write_table

import agentkernel
import agentkernel.workflows.optimize
from agentkernel.api import load_drop_in
from agentkernel.domain.errors import AgentKernelError
from agentkernel.tools.judge.interpreter.hooks import install_hooks
from agentkernel.workflows.outcome import Result

TOLERANCE = 1e-3
"""What the fresh comparison allows, norm-wise: it is there to find a wrong drop-in, not to measure
the last bits, which is the judge's part."""


def main() -> None:
    """Run what has no row yet, print each row, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--each", type=int, default=15, help="blocks of each library")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--libraries", default="", help="only these, by comma")
    parser.add_argument("--only", default="", help="only classes that contain this text")
    parser.add_argument("--again", default="", help="run rows of this status anew")
    parser.add_argument("--target", default="h100")
    parser.add_argument("--device", default="cpu", help="cuda: published widths, measured")
    parser.add_argument("--rounds", type=int, help="drafts at most; all that a plan has otherwise")
    parser.add_argument("--time", type=int, default=60, help="seconds that a search may take")
    parser.add_argument("--limit", type=int, default=120, help="seconds until a process is ended")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; 1 on a GPU")
    parser.add_argument("--unchecked", action="store_true", help="leave the comparison for later")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--check", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    held = admit_torchvision()
    if chosen.check:
        print(json.dumps(_check(json.loads(chosen.check), chosen)))
        return
    libraries = tuple(filter(None, chosen.libraries.split(",")))
    drawn = draw(chosen.each, chosen.seed, libraries)
    for row in _ran(_waiting(drawn, chosen), chosen):
        _add(chosen.rows, row)
        said = f"{row['status']:12} {row['seconds']:5.0f} s  {row['class_name']}: {row['reason']}"
        print(said, flush=True)
    if chosen.table is not None:
        known = {row["class_name"]: row for row in _rows(chosen.rows)}
        rows = [known.get(block.class_name) or _begun(block, chosen) for block in drawn]
        write_table(rows, chosen.table, chosen.seed, chosen.target)
    del held


def _waiting(drawn: Sequence[Block], chosen: argparse.Namespace) -> list[Block]:
    done = {row["class_name"]: row for row in _rows(chosen.rows)}
    found = []
    for block in drawn:
        row = done.get(block.class_name)
        again = row is None or row["status"] == chosen.again or _unchecked(row, chosen)
        if again and chosen.only in block.class_name:
            found.append(block)
    return found


def _unchecked(row: Mapping[str, Any], chosen: argparse.Namespace) -> bool:
    return not chosen.unchecked and "folder" in row and _to_check(row)


def _to_check(row: Mapping[str, Any]) -> bool:
    return row.get("status") in VERIFIED and "fresh_error" not in row


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows so far, the last of each class."""
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return list({line["class_name"]: line for line in lines}.values())


def _add(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _begun(block: Block, chosen: argparse.Namespace) -> dict[str, Any]:
    version = importlib.metadata.version(block.library)
    row = {**block._asdict(), "version": version, "device": chosen.device, "seconds": 0.0}
    return {**row, "status": "not run", "reason": ""}


class _Running(NamedTuple):
    """A block's process: a new one, since a fork of this one would not have its OpenMP threads."""

    block: Block
    process: BaseProcess
    began: float


def _ran(waiting: Sequence[Block], chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The blocks' rows as they come, `--jobs` processes at a time."""
    left, running = list(waiting), dict[Connection, _Running]()
    while left or running:
        while left and len(running) < chosen.jobs:
            receiving, started = _started(left.pop(0), chosen)
            running[receiving] = started
        ready = wait(list(running), timeout=1.0)
        for receiving, item in list(running.items()):
            seconds = time.monotonic() - item.began
            if receiving in ready or seconds > chosen.limit:
                row = _begun(item.block, chosen) | _answer_of(receiving, item, chosen)
                yield row | {"seconds": round(seconds, 1)}
                del running[receiving]


def _started(block: Block, chosen: argparse.Namespace) -> tuple[Connection, _Running]:
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sending, block, chosen))
    process.start()
    sending.close()
    return receiving, _Running(block, process, time.monotonic())


def _answer_of(receiving: Connection, item: _Running, chosen: argparse.Namespace) -> dict[str, Any]:
    """What the process sent, or why it sent nothing; it is gone afterwards."""
    try:
        if not receiving.poll():
            return {"status": "ended", "reason": f"ended after {chosen.limit} s"}
        answer: dict[str, Any] = receiving.recv()
        return answer
    except EOFError:
        item.process.join()
        return {"status": "traceback", "reason": f"the process ended with {item.process.exitcode}"}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(item.process.pid or 0, signal.SIGKILL)
        item.process.join()


def _answer(sending: Connection, block: Block, chosen: argparse.Namespace) -> None:
    """The process's own part: the search, and the comparison of what it verified."""
    os.setsid()
    held = admit_torchvision()
    known = {row["class_name"]: row for row in _rows(chosen.rows)}.get(block.class_name, {})
    try:
        row = known if _unchecked(known, chosen) else _optimise(block, chosen)
        if _to_check(row) and not chosen.unchecked:
            row = row | _checked(block, row, chosen)
        sending.send(row)
    except Exception:  # noqa: BLE001 - a traceback is what this script is there to find
        sending.send({"status": "traceback", "reason": traceback.format_exc()[-3000:]})
    del held


def _checked(block: Block, row: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """What `_check` says in a new process: without a GPU it is to import Triton's interpreter."""
    question = json.dumps({**block._asdict(), "run": row["folder"]})
    command = [sys.executable, __file__, str(chosen.rows), "--check", question]
    interpreted = {} if chosen.device == "cuda" else {"TRITON_INTERPRET": "1"}
    try:
        done = subprocess.run(
            [*command, "--device", chosen.device],
            capture_output=True,
            text=True,
            timeout=chosen.limit,
            env=os.environ | interpreted,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"fresh_error": None, "note": f"not compared: ended after {chosen.limit} s"}
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not last:
        return {"status": "traceback", "reason": done.stderr.strip()[-3000:]}
    answer: dict[str, Any] = json.loads(last[0])
    return answer


def _optimise(block: Block, chosen: argparse.Namespace) -> dict[str, Any]:
    """Optimise one block and say what came of it."""
    wide = chosen.device == "cuda"
    try:
        called = _given(_moved(take(block, wide=wide), chosen.device))
    except Absent as error:
        return {"status": "not run", "reason": str(error)}
    refused: list[str] = []
    runs = chosen.rows.resolve().parent / "runs"
    try:
        result = agentkernel.optimize(
            called.module,
            called.args,
            chosen.target,
            example_kwargs=called.kwargs,
            time=chosen.time,
            rounds=chosen.rounds,
            runs=str(runs),
            on_event=lambda event: refused.extend(_refusals(event)),
        )
    except AgentKernelError as error:
        return {"status": "refused", "reason": str(error)}
    row = {"status": result.status, "reason": result.reason, "refused": refused[:6]}
    row |= {"folder": str(runs / result.run), "estimated": result.estimated_speedup_vs_eager}
    row |= {"speedup_vs_eager": result.speedup_vs_eager}
    row |= {"speedup_vs_compile": result.speedup_vs_compile}
    return row | _what_runs(result)


def _given(called: Called) -> Called:
    """The call without keywords that say None where that is what they say by default."""
    known = inspect.signature(called.module.forward).parameters
    said = {
        key: value
        for key, value in called.kwargs.items()
        if value is not None or (key in known and known[key].default is not None)
    }
    return called._replace(kwargs=said)


def _refusals(event: Any) -> Iterator[str]:
    """Why a draft was not made or not accepted."""
    if event.kind == "candidate_drafted" and event.candidate is None:
        yield f"{event.strategy}: {event.reason}"
    if event.kind == "verdict" and not event.accepted:
        yield f"{event.gate}: {event.failure}"


def _what_runs(result: Any) -> dict[str, Any]:
    """The coder's strategy, our kernels and the library's calls of a verified candidate."""
    if result.candidate is None or result.certificate is None:
        return {}
    record = json.loads(Path(result.certificate).read_text(encoding="utf-8"))
    report = (record["profile"] or {}).get("report") or {}
    return {
        "kernels": [kernel["name"] for kernel in report.get("kernels", [])],
        "calls": sorted(set(report.get("library_ops", []))),
        "drafts": result.drafts,
    }


def _moved(called: Called, device: str) -> Called:
    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device)
        if isinstance(value, list | tuple):
            return type(value)(moved(item) for item in value)
        return {k: moved(v) for k, v in value.items()} if isinstance(value, dict) else value

    return Called(called.module.to(device), moved(called.args), moved(called.kwargs))


def _check(question: dict[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """Compare the verified drop-in with the block once more, on weights and inputs that the judge
    has not seen; without a GPU in the judge's interpreter."""
    if chosen.device != "cuda":
        install_hooks()
    folder = Path(question.pop("run"))
    result = Result.model_validate_json((folder / "result.json").read_text(encoding="utf-8"))
    taken = take(Block(**question), wide=chosen.device == "cuda", seed=1)
    called = _given(_moved(taken, chosen.device))
    with torch.no_grad():
        found = load_drop_in(result, called.module)(*called.args, **called.kwargs)
        expected = called.module(*called.args, **called.kwargs)
    pairs = list(zip(_tensors(expected), _tensors(found), strict=True))
    worst = max(((_error(*pair), index) for index, pair in enumerate(pairs)), default=(0.0, 0))
    row: dict[str, Any] = {"fresh_error": worst[0]}
    return row if worst[0] <= TOLERANCE else row | {"status": "wrong"}


def _tensors(value: object) -> list[torch.Tensor]:
    from torch.utils._pytree import tree_flatten

    return [item for item in tree_flatten(value)[0] if isinstance(item, torch.Tensor)]


def _error(expected: torch.Tensor, found: torch.Tensor) -> float:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return float("inf")
    wanted, got = expected.double(), found.double()
    finite = wanted.isfinite()
    if not torch.equal(finite, got.isfinite()):
        return float("inf")
    gap = (wanted - got)[finite].norm() / wanted[finite].norm().clamp_min(1e-30)
    return float(gap)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)
        main()
