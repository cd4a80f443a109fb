"""Which rows of a data folder may be learned from?

A row passes by its label, its split and its licence, and only while the file in its completion is
the one that was judged. A row that says otherwise ends the training: data with one poisoned row
was put together wrongly.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.training.data.admission import permitted_licence
from agentkernel.training.training import Label, Split, Task, TrainingRow

FILES: dict[Split, str] = {"train": "train.jsonl.gz", "held-out": "held-out.jsonl.gz"}
HELD_OUT = Path("problems") / "held-out"
LEARNED: tuple[Label, ...] = ("gpu", "interpreter")
"""Labels of kernels that the judge accepted."""
FENCE = re.compile(r"^(`{3,})python\n(.*?)^\1[ \t]*$", re.M | re.S)


def read_rows(folder: Path, split: Split) -> Iterator[TrainingRow]:
    """The rows of one split in their order. Raises TrainingError, which names file and line."""
    path = folder / FILES[split]
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _row(line, path, number)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"Cannot read {str(path)!r}: {one_line(error)}. Expected the rows that 'agentkernel "
            "train data' writes. Next: name that folder, or make it again."
        ) from error


def _row(line: str, path: Path, number: int) -> TrainingRow:
    try:
        return TrainingRow.model_validate_json(line)
    except ValidationError as error:
        raise TrainingError(
            f"Line {number} of {str(path)!r} is no row: {one_line(error)}. Expected one row of "
            "JSON a line. Next: make the data again."
        ) from error


def held_out_problems(folder: Path) -> tuple[Path, ...]:
    """The modules that nothing in training resembles, in the order of their names."""
    return tuple(sorted((folder / HELD_OUT).glob("*.py")))


def fingerprint(folder: Path) -> str:
    """Hex SHA-256 of the training rows as they lie there. Raises TrainingError where there are
    none, or others than those that the folder's card was written beside."""
    path = folder / FILES["train"]
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TrainingError(
            f"{str(folder)!r} holds no training data: {one_line(error)}. Expected a folder with "
            f"{FILES['train']}. Next: 'agentkernel train data' makes one."
        ) from error
    _require_same(found, _hash_in_card(folder, "train_sha256"), path, "rows that were admitted")
    return found


def held_out_hash(folder: Path) -> str:
    """Hex SHA-256 of the held-out modules, in the order of their names, and of the held-out rows.
    Raises TrainingError where they are not those that the folder's card was written beside."""
    digest = hashlib.sha256()
    try:
        for path in held_out_problems(folder):
            digest.update(f"{path.name} {sha256_text(path.read_bytes().decode())}\n".encode())
        rows = folder / FILES["held-out"]
        if rows.is_file():
            digest.update(rows.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"Cannot read what {str(folder)!r} holds out: {one_line(error)}. Expected modules in "
            f"{HELD_OUT}. Next: make the data again."
        ) from error
    found = digest.hexdigest()
    known = _hash_in_card(folder, "held_out_sha256")
    _require_same(found, known, folder / HELD_OUT, "modules that were held out")
    return found


def _require_same(found: str, known: str | None, path: Path, expected: str) -> None:
    if known not in (None, found):
        raise TrainingError(
            f"{str(path)!r} was changed after it was made: its SHA-256 is {found[:12]}, and "
            f"card.json says {str(known)[:12]}. Expected the {expected}. Next: remove "
            "the folder and make the data again."
        )


def _hash_in_card(folder: Path, name: str) -> str | None:
    """What the card says under `name`; None where there is none, or none that says it. Raises
    TrainingError for a card that cannot be read."""
    path = folder / "card.json"
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8")).get(name) or None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, AttributeError) as error:
        raise TrainingError(
            f"{str(path)!r} cannot be read: {one_line(error)}. Expected the card that was written "
            "beside the rows. Next: remove the folder and make the data again."
        ) from error


def admitted(
    rows: Iterable[TrainingRow], licences: Sequence[str], tasks: Sequence[Task]
) -> Iterator[TrainingRow]:
    """The rows of `tasks`, each of them one that may be learned from. Raises TrainingError at the
    first that may not be, whatever its task."""
    for row in rows:
        why = row_refusal(row, licences)
        if why is not None:
            raise TrainingError(
                f"Row {row.id[:12]} ({row.task}, problem {row.problem_sha256[:12]}) may not be "
                f"learned from: {why}. Next: leave it out, or make the data again."
            )
        assert row.label in LEARNED
        assert row.split == "train"
        assert permitted_licence(row.licence, licences) is not None
        if row.task in tasks:
            yield row


def is_held_back(problem_sha256: str, share: float) -> bool:
    """Whether a module is among the `share` that fine-tuning leaves to practice: by its hash, so
    that both know it without a word."""
    return share > 0 and int(sha256_text(problem_sha256)[:8], 16) < share * 2**32


def row_refusal(row: TrainingRow, licences: Sequence[str]) -> str | None:
    """Why nobody may learn from `row`; None where one may."""
    if row.label not in LEARNED:
        return f"its kernel is labelled {row.label!r}, expected {' or '.join(LEARNED)}"
    if row.split != "train":
        return f"it belongs to the split {row.split!r}, expected 'train'"
    if permitted_licence(row.licence, licences) is None:
        return f"its licence is {row.licence!r}, expected one of {', '.join(licences)}"
    kernel = kernel_of(row.completion)
    if kernel is None:
        return "its completion holds no file, expected the kernel in a ```python fence"
    if row.kernel_sha256 not in _hashes(kernel):
        return (
            f"the file in its completion is not the judged one ({row.kernel_sha256[:12]}), "
            "expected the very text that the judge read"
        )
    return None


def kernel_of(completion: str) -> str | None:
    """The last fenced file of a completion, without running or parsing anything."""
    found = FENCE.findall(completion)
    return str(found[-1][1]) if found else None


def _hashes(kernel: str) -> tuple[str, ...]:
    """A fence keeps all of a file but how many newlines it begins and ends with."""
    bare = kernel.strip("\n")
    return tuple(sha256_text(text) for text in (f"{bare}\n", bare, kernel, f"\n{bare}\n"))


def with_replay(
    rows: Sequence[TrainingRow], older: Sequence[TrainingRow], share: float, seed: int
) -> tuple[TrainingRow, ...]:
    """`rows` and so many of `older` that they are `share` of all; each older row at most once, the
    same choice for the same `seed`."""
    if not older or share <= 0:
        return tuple(rows)
    wanted = min(len(older), round(len(rows) * share / (1 - share)))
    return (*rows, *random.Random(seed).sample(list(older), wanted))


__all__ = [
    "LEARNED",
    "admitted",
    "fingerprint",
    "held_out_hash",
    "held_out_problems",
    "kernel_of",
    "read_rows",
    "row_refusal",
    "with_replay",
]
