"""Checkpoints of a training, from which it resumes after a kill.

The trainer writes a checkpoint file by file. Once all files are there, a marker with their
sizes and hashes is put beside them, and only then is an older checkpoint removed: a folder
without a fitting marker is incomplete. Torch pickles parts of a checkpoint, and its folder may
come from anybody, so nothing is loaded that could run code.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.storage.files import make_folder, read_regular, sha256_of_file, write_atomic
from agentkernel.training.settings import Say

METADATA = ".metadata"
"""What torch.distributed.checkpoint unpickles before it reads a sharded checkpoint."""
VARIABLE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""https://docs.pytorch.org/docs/stable/notes/serialization.html: no torch.load unpickles more than
weights, whatever it was asked for."""
PLACES = "torch.distributed.checkpoint"
KNOWN = frozenset(
    {
        ("collections", "OrderedDict"),
        ("pathlib", "PosixPath"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        (f"{PLACES}.filesystem", "_StorageInfo"),
        (f"{PLACES}.filesystem", "_StoragePrefix"),
        (f"{PLACES}.metadata", "BytesStorageMetadata"),
        (f"{PLACES}.metadata", "ChunkStorageMetadata"),
        (f"{PLACES}.metadata", "Metadata"),
        (f"{PLACES}.metadata", "MetadataIndex"),
        (f"{PLACES}.metadata", "StorageMeta"),
        (f"{PLACES}.metadata", "TensorProperties"),
        (f"{PLACES}.metadata", "TensorStorageMetadata"),
        (f"{PLACES}.metadata", "_MEM_FORMAT_ENCODING"),
    }
)
"""What such a file names: values, and one function that turns a text into a layout."""


def refuse_code(folder: Path) -> None:
    """From now on torch loads weights and nothing else in this process. Raises TrainingError where
    the checkpoint in `folder` names what no checkpoint does."""
    os.environ[VARIABLE] = "1"
    for path in sorted(folder.rglob(METADATA)):
        try:
            _Known(io.BytesIO(read_regular(path))).load()
        except Exception as error:
            raise TrainingError(
                f"{str(path)!r} is no checkpoint's: {one_line(error, 120)}. Expected what this "
                "command wrote, which names values only. Next: choose another --out."
            ) from error


class _Known(pickle.Unpickler):
    """Finds nothing but what is known."""

    def find_class(self, module: str, name: str, /) -> Any:
        import torch

        known = (module, name) in KNOWN
        if known or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


FOLDER = "checkpoints"
MARKER = "whole.json"
PREFIX = "checkpoint-"
KEPT = 2
"""Whole checkpoints that are kept: should the disk lose one, there is another."""


class CheckpointRecord(Frozen):
    """What a whole checkpoint holds, and what was spent until then."""

    step: int
    files: dict[str, int]
    """Bytes of each file by its path in the folder."""
    sha256: dict[str, str] = Field(default_factory=dict)
    """The hash of each; of a checkpoint that an older version wrote, none."""
    tokens: int = 0
    seconds: float = 0.0
    ranks: int = 1
    """Processes that wrote it."""
    sharded: bool = False
    """True where each of them wrote its part of the weights."""


def folder_of(out: Path) -> Path:
    """Where the checkpoints of a training in `out` lie."""
    return out / FOLDER


def step_of(folder: Path) -> int | None:
    """The step that a checkpoint's folder is named by; None for any other folder."""
    number = folder.name.removeprefix(PREFIX)
    named = folder.name.startswith(PREFIX) and number.isdigit() and folder.is_dir()
    return int(number) if named else None


def mark_complete(
    folder: Path, tokens: int, seconds: float, ranks: int = 1, sharded: bool = False
) -> CheckpointRecord:
    """Say that the checkpoint in `folder` is whole, once all of it is on the disk."""
    hashes = {str(path.relative_to(folder)): _flushed(path) for path in _files(folder)}
    files = {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder)}
    step = step_of(folder)
    assert step is not None
    whole = CheckpointRecord(
        step=step,
        files=files,
        sha256=hashes,
        tokens=tokens,
        seconds=seconds,
        ranks=ranks,
        sharded=sharded,
    )
    write_atomic(folder / MARKER, whole.model_dump_json())
    _flush(folder)
    return whole


def read_checkpoint(folder: Path) -> CheckpointRecord | None:
    """What a checkpoint says of itself; None where files are missing or of another size. Their
    bytes are not read: `changed_file` does that."""
    try:
        whole = CheckpointRecord.model_validate_json((folder / MARKER).read_text(encoding="utf-8"))
        there = {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder)}
    except (OSError, UnicodeDecodeError, ValidationError):
        return None
    return whole if there == whole.files and whole.step == step_of(folder) else None


def changed_file(folder: Path, hashes: Mapping[str, str]) -> str | None:
    """The first file of `folder` that is not as it was written; None: all are."""
    for name, noted in hashes.items():
        try:
            if sha256_of_file(folder / name) != noted:
                return name
        except OSError:
            return name
    return None


def last_complete(checkpoints: Path) -> Path | None:
    """The whole checkpoint of the latest step."""
    found = [folder for folder in _steps(checkpoints) if read_checkpoint(folder) is not None]
    return found[-1] if found else None


def drop_incomplete(checkpoints: Path) -> tuple[Path, ...]:
    """Remove what is not whole; gives what was removed."""
    halves = tuple(folder for folder in _steps(checkpoints) if read_checkpoint(folder) is None)
    for folder in halves:
        shutil.rmtree(folder)
    return halves


def resume_point(checkpoints: Path, say: Say) -> tuple[Path | None, CheckpointRecord | None]:
    """The last whole one and its marker, None twice where there is none; what is half or changed is
    removed. Raises TrainingError for one that would run code."""
    for half in drop_incomplete(checkpoints):
        say(f"left out {half.name}: a kill left half of it")
    while (last := last_complete(checkpoints)) is not None:
        whole = read_checkpoint(last)
        changed = None if whole is None else changed_file(last, whole.sha256)
        if changed is None:
            refuse_code(last)
            return last, whole
        say(f"left out {last.name}: {changed} is not as it was written")
        shutil.rmtree(last)
    return None, None


def drop_older(checkpoints: Path) -> None:
    """Remove all but the `KEPT` latest whole ones. The marker goes first: what a kill leaves of a
    folder is no checkpoint any more."""
    whole = [folder for folder in _steps(checkpoints) if read_checkpoint(folder) is not None]
    for folder in whole[: max(len(whole) - KEPT, 0)]:
        (folder / MARKER).unlink()
        shutil.rmtree(folder)


def make_checkpoint_folder(out: Path) -> Path:
    """The folder for checkpoints, made where it is not there. Raises OutputError."""
    found = folder_of(out)
    make_folder(found)
    return found


def _steps(checkpoints: Path) -> list[Path]:
    """All checkpoints in the order of their steps, whole or not."""
    if not checkpoints.is_dir():
        return []
    numbered = [(step_of(folder), folder) for folder in checkpoints.iterdir()]
    return [folder for step, folder in sorted((s, f) for s, f in numbered if s is not None)]


def _files(folder: Path) -> Iterator[Path]:
    """All files but the marker and what an interrupted write of it left."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and MARKER not in path.name:
            yield path


def _flushed(path: Path) -> str:
    """The hash of a file, once it is on the disk."""
    _flush(path)
    return sha256_of_file(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
