"""Golden files: compared, or recorded anew where AGENTKERNEL_RECORD=1 says so."""

from __future__ import annotations

import json
import os
from pathlib import Path

RECORD = "AGENTKERNEL_RECORD"
SCALARS = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}


def same_as_golden(path: Path, text: str, what: str) -> None:
    """Fail with `what` changed, and how the change is accepted."""
    if os.environ.get(RECORD) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    how = f"If that is meant: {RECORD}=1 and this test again, then look at the diff of {path.name}"
    assert path.is_file(), f"{what} has no golden file yet. {how}"
    assert text == path.read_text(encoding="utf-8"), f"{what} changed. {how}"


def as_text(value: object) -> str:
    """JSON with sorted keys, a line each."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def shape(value: object) -> object:
    """The keys and types of a JSON value; of a list the shape that its items have together."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [united([shape(item) for item in value])] if value else []
    return SCALARS[type(value)]


def united(shapes: list[object]) -> object:
    """One shape for several: keys that not all have get a '?', types that differ a '|'."""
    first = shapes[0]
    if all(item == first for item in shapes):
        return first
    if all(isinstance(item, dict) for item in shapes):
        keys = {key: None for item in shapes if isinstance(item, dict) for key in item}
        found = {}
        for key in keys:
            there = [item[key] for item in shapes if isinstance(item, dict) and key in item]
            found[key if len(there) == len(shapes) else f"{key}?"] = united(there)
        return found
    if all(isinstance(item, list) for item in shapes):
        inner = [part for item in shapes if isinstance(item, list) for part in item]
        return [united(inner)] if inner else []
    words = {json.dumps(item, sort_keys=True) if not isinstance(item, str) else item: item
             for item in shapes}  # fmt: skip
    return "|".join(sorted({part for word in words for part in word.split("|")}))
