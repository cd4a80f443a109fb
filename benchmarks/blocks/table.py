"""The page that says what became of each drawn block."""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERIFIED = ("verified", "improved", "met")
KEPT = ("kept_original", "kept_compiled", "refused")
REASON_MOST = 260
LEAD = """\
# Blocks of public libraries

`benchmarks/blocks/` builds small models of transformers, timm, diffusers and torchvision with
random weights, runs each once, and takes its blocks out together with the arguments of the model's
own call. {count} of them are drawn by the seed {seed}, {each} of each library, before any is tried:
one of each class, at most 24 modules without children, not one that returns its input. Each is
optimised for {target} in a process of its own. What is verified is compared with the block once
more, on weights and inputs that the judge has not seen.

`python benchmarks/blocks/run.py rows.jsonl --table docs/modules.md` makes this page, and runs no
block again that has a row, so that some rows may be of an earlier commit than others;
`--device cuda` takes the same blocks at published widths and measures them.
"""


def write_table(rows: Sequence[Mapping[str, Any]], out: Path, seed: int, target: str) -> None:
    """Write the page at `out` anew from one row a block."""
    out.write_text(page(rows, seed, target), encoding="utf-8")


def page(rows: Sequence[Mapping[str, Any]], seed: int, target: str) -> str:
    """The lead, the counts of each library, and one line a block."""
    libraries = Counter(row["library"] for row in rows)
    each = max(libraries.values(), default=0)
    lead = LEAD.format(count=len(rows), seed=seed, each=each, target=target)
    return "\n".join([lead, *_counts(rows), "", _versions(rows), "", *_lines(rows), ""])


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    head = (
        "| library | blocks | verified with a kernel | kept | wrong | traceback | ended | not run |"
    )
    by = {name: [row for row in rows if row["library"] == name] for name in _libraries(rows)}
    counted = [_count(name, items) for name, items in by.items()]
    return [head, "|---|---|---|---|---|---|---|---|", *counted, _count("all", rows)]


def _libraries(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["library"] for row in rows))


def _count(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    found = Counter(_result(row) for row in rows)
    kinds = ("verified", "kept", "wrong", "traceback", "ended", "not run")
    return "| " + " | ".join([name, str(len(rows)), *(str(found[kind]) for kind in kinds)]) + " |"


def _result(row: Mapping[str, Any]) -> str:
    status = str(row["status"])
    return "verified" if status in VERIFIED else "kept" if status in KEPT else status


def _versions(rows: Sequence[Mapping[str, Any]]) -> str:
    found = dict.fromkeys(f"{row['library']} {row['version']}" for row in rows)
    return f"{', '.join(found)}; torch {importlib.metadata.version('torch')}."


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    head = "| block | of | result | our kernels | library calls | reason | s |"
    return [head, "|---|---|---|---|---|---|---|", *map(_line, rows)]


def _line(row: Mapping[str, Any]) -> str:
    name = row["class_name"].rsplit(".", 1)[-1]
    calls = ", ".join(call.removeprefix("aten.") for call in row.get("calls", ()))
    result = _result(row)
    reason = "" if result == "verified" else _reason(row)
    speed = row.get("speedup_vs_compile")
    shown = f"{result}, {speed:.2f}x torch.compile" if speed else result
    cells = [f"`{name}`", f"{row['library']} {row['model']}", shown]
    cells += [str(len(row.get("kernels", ())) or ""), calls, reason, f"{row['seconds']:.0f}"]
    return f"| {' | '.join(cells)} |"


def _reason(row: Mapping[str, Any]) -> str:
    text = str(row["reason"]).strip().splitlines()[-1:] or [""]
    short = text[0] if len(text[0]) <= REASON_MOST else f"{text[0][: REASON_MOST - 3]}..."
    return short.replace("|", "\\|")
