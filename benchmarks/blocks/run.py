"""Optimises blocks of public libraries one by one, each in a process of its own with a time limit.

python benchmarks/blocks/run.py RESULTS.jsonl [--each 15] [--seed 0] [--table docs/modules.md]

A block that has a row already is not run again, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from draw import Block, Called, draw, take
from models import admit_torchvision
from table import write_table

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
    parser.add_argument("--table", type=Path)
    parser.add_argument("--block", help=argparse.SUPPRESS)
    parser.add_argument("--check", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.block:
        print(json.dumps(_optimise(Block(**json.loads(chosen.block)), chosen)))
        return
    if chosen.check:
        print(json.dumps(_check(json.loads(chosen.check), chosen)))
        return
    for block in _waiting(chosen):
        row = _in_a_process(block, chosen)
        _add(chosen.rows, row)
        print(f"{row['status']:12} {row['seconds']:5.0f} s  {block.class_name}: {row['reason']}")
    if chosen.table is not None:
        write_table(_rows(chosen.rows), chosen.table, chosen.seed, chosen.target)


def _waiting(chosen: argparse.Namespace) -> Iterator[Block]:
    done = {row["class_name"]: row for row in _rows(chosen.rows)}
    libraries = tuple(filter(None, chosen.libraries.split(",")))
    held = admit_torchvision()
    for block in draw(chosen.each, chosen.seed, libraries):
        row = done.get(block.class_name)
        again = row is None or (chosen.again and row["status"] == chosen.again)
        if again and chosen.only in block.class_name:
            yield block
    del held


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


def _in_a_process(block: Block, chosen: argparse.Namespace) -> dict[str, Any]:
    """One block's row: what a process of its own says, or that it was ended."""
    version = importlib.metadata.version(block.library)
    row = {**block._asdict(), "version": version, "device": chosen.device}
    began = time.monotonic()
    made = _asked(["--block", json.dumps(block._asdict())], chosen, {})
    row |= made
    if row["status"] == "verified":
        interpreted = {} if chosen.device == "cuda" else {"TRITON_INTERPRET": "1"}
        question = {**block._asdict(), "run": made["folder"]}
        row |= _asked(["--check", json.dumps(question)], chosen, interpreted)
    return row | {"seconds": round(time.monotonic() - began, 1)}


def _asked(
    words: Sequence[str], chosen: argparse.Namespace, environment: dict[str, str]
) -> dict[str, Any]:
    """What this script says when it is run with `words`, or why it said nothing."""
    command = [sys.executable, __file__, str(chosen.rows), *words, "--time", str(chosen.time)]
    command += ["--target", chosen.target, "--device", chosen.device]
    command += ["--rounds", str(chosen.rounds)] if chosen.rounds else []
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        out, log = process.communicate(timeout=chosen.limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"status": "ended", "reason": f"ended after {chosen.limit} s"}
    last = out.strip().splitlines()[-1:] or [""]
    if process.returncode or not last[0].startswith("{"):
        return {"status": "traceback", "reason": log.strip()[-3000:]}
    answer: dict[str, Any] = json.loads(last[0])
    return answer


def _optimise(block: Block, chosen: argparse.Namespace) -> dict[str, Any]:
    """Optimise one block and say what came of it."""
    import agentkernel
    from agentkernel.errors import AgentKernelError

    held = admit_torchvision()
    wide = chosen.device == "cuda"
    called = _given(_moved(take(block, wide=wide), chosen.device))
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
    except Exception:  # noqa: BLE001 - a traceback is what this script is there to find
        return {"status": "traceback", "reason": traceback.format_exc()[-3000:]}
    finally:
        del held
    row = {"status": result.status, "reason": result.reason, "refused": refused[:6]}
    row |= {"folder": str(runs / result.run), "estimated": result.estimated_speedup_vs_eager}
    row |= {"speedup_vs_eager": result.speedup_vs_eager}
    row |= {"speedup_vs_compile": result.speedup_vs_compile}
    return row | _what_runs(result)


def _given(called: Called) -> Called:
    """The call without keywords that say None, which is what they say by default."""
    return called._replace(kwargs={k: v for k, v in called.kwargs.items() if v is not None})


def _refusals(event: Any) -> Iterator[str]:
    """Why a draft was not made or not accepted."""
    if event.kind == "candidate_drafted" and event.candidate is None:
        yield f"{event.strategy}: {event.reason}"
    if event.kind == "verdict" and not event.accepted:
        yield f"{event.gate}: {event.failure}"
    if event.kind == "planned":
        yield from (f"planned: {name}" for name in event.plan.fallback)


def _what_runs(result: Any) -> dict[str, Any]:
    """The coder's strategy, our kernels and the library's calls of a verified candidate."""
    if result.candidate is None or result.certificate is None:
        return {}
    record = json.loads(Path(result.certificate).read_text(encoding="utf-8"))
    report = record["profile"]["report"] or {}
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
    has not seen."""
    from agentkernel.api import load_drop_in
    from agentkernel.workflows.outcome import Result

    held = admit_torchvision()
    folder = Path(question.pop("run"))
    result = Result.model_validate_json((folder / "result.json").read_text(encoding="utf-8"))
    taken = take(Block(**question), wide=chosen.device == "cuda", seed=1)
    called = _given(_moved(taken, chosen.device))
    with torch.no_grad():
        found = load_drop_in(result, called.module)(*called.args, **called.kwargs)
        expected = called.module(*called.args, **called.kwargs)
    del held
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
