"""Which rows does a fine-tuning learn from, and which does it only look at?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentkernel.domain.errors import TrainingError
from agentkernel.training.data.rl_problems import held_out_keys, module_in
from agentkernel.training.data.rows import (
    LEARNED,
    admitted,
    held_out_problems,
    is_held_back,
    read_rows,
    with_replay,
)
from agentkernel.training.data.split import NearDuplicates, code_structure
from agentkernel.training.training import TrainingRow, TrainingSettings

HELD_OUT_ROWS = 256
"""Rows whose loss is looked at beside the training; their kernels are never learned."""


@dataclass(frozen=True)
class SftRows:
    """What is learned from, `replayed` of them older, and whose loss is looked at beside it."""

    learned: tuple[TrainingRow, ...]
    replayed: int
    held_out: tuple[TrainingRow, ...]


def read_sft_rows(
    data: Path, older: Path | None, settings: TrainingSettings, say: Callable[[str], None]
) -> SftRows:
    """All rows to learn from, each of them checked. Raises TrainingError."""
    licences, tasks = settings.data.licences, settings.sft.tasks

    def ours(row: TrainingRow) -> bool:
        return not is_held_back(row.problem_sha256, settings.rl.spared)

    there = tuple(admitted(read_rows(data, "train"), licences, tasks))
    fresh = tuple(filter(ours, there))
    if len(fresh) < len(there):
        say(f"{len(there) - len(fresh)} of {len(there)} rows are left to practice (rl.spared)")
    if not fresh:
        raise TrainingError(
            f"{str(data)!r} has no row of the tasks {', '.join(tasks)}. Expected some. Next: other "
            "sft.tasks, or more data."
        )
    before = () if older is None else tuple(admitted(read_rows(older, "train"), licences, tasks))
    known = {row.id for row in fresh}
    before = _apart(data, tuple(row for row in before if row.id not in known and ours(row)), say)
    rows = with_replay(fresh, before, settings.sft.replay, settings.sft.seed)
    say(f"{len(fresh)} rows" + (f" and {len(rows) - len(fresh)} older ones" if older else ""))
    return SftRows(rows, len(rows) - len(fresh), _held_out(data, settings))


def _apart(
    data: Path, older: tuple[TrainingRow, ...], say: Callable[[str], None]
) -> tuple[TrainingRow, ...]:
    """Of `older` rows those on modules that `data` does not hold out, and that are not built like
    one of these or written nearly so. How many others there are is said."""
    if not older:
        return ()
    hashes, structures = held_out_keys(data)
    texts = [path.read_text(encoding="utf-8") for path in held_out_problems(data)]
    structures |= {code_structure(text) for text in texts} - {""}
    like = NearDuplicates(texts)
    found: dict[str, bool] = {}

    def kin(row: TrainingRow) -> bool:
        key = row.problem_sha256
        if key in hashes or row.structure in structures:
            return True
        if key not in found:
            text = module_in(row.messages[0].text, key)
            # A module that cannot be seen may be any: its rows are not taken.
            found[key] = text is None or code_structure(text) in structures or like.near(text)
        return found[key]

    kept = tuple(row for row in older if not kin(row))
    if len(kept) < len(older):
        say(
            f"{len(older) - len(kept)} of {len(older)} older rows left out: of a module that is "
            "held out here, or of one like it"
        )
    return kept


def _held_out(data: Path, settings: TrainingSettings) -> tuple[TrainingRow, ...]:
    if not (data / "held-out.jsonl.gz").is_file():
        return ()
    found = (
        row
        for row in read_rows(data, "held-out")
        if row.label in LEARNED and row.task in settings.sft.tasks
    )
    return tuple(row for _, row in zip(range(HELD_OUT_ROWS), found, strict=False))


__all__ = ["HELD_OUT_ROWS", "SftRows", "read_sft_rows"]
