"""Which problems does a suite hold, and which of them is this call to run?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import ProblemError, SettingError

T = TypeVar("T")
SHARD = re.compile(r"^(\d+)/(\d+)$")


class SuiteProblem(Frozen):
    """One file of a suite. `name` is its path below the suite without `.py`; `level` the subfolder,
    or the suite's own name; `sha256` that of its text."""

    name: str
    level: str
    path: str
    sha256: str


class Shard(Frozen):
    """Part `index` (from 1) of `count` parts."""

    index: int = 1
    count: int = 1

    @property
    def suffix(self) -> str:
        """For file names: "" for the whole, else "-2of5"."""
        return "" if self.count == 1 else f"-{self.index}of{self.count}"


def parse_shard(text: str | None) -> Shard:
    """`2/5` -> the second of five parts. Raises SettingError."""
    if text is None:
        return Shard()
    match = SHARD.match(text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SettingError(
            f"--shard {text!r} is no part of a whole. Expected i/n with 1 <= i <= n, e.g. '2/5'."
        )
    return Shard(index=int(match[1]), count=int(match[2]))


def read_suite(folder: Path, only: Sequence[str] = ()) -> tuple[SuiteProblem, ...]:
    """The problems of `folder`: its own files and those one folder below, in natural order.

    `only` keeps names that contain any of the words. Raises ProblemError.
    """
    if not folder.is_dir():
        raise ProblemError(
            f"No such suite: {str(folder)!r}. Expected a folder with problem files, or with one "
            "folder of them a level. Next: check the path."
        )
    files = sorted((*folder.glob("*.py"), *folder.glob("*/*.py")), key=_natural)
    found = tuple(_problem(path, folder) for path in files if _is_problem(path, folder))
    if not found:
        raise ProblemError(
            f"The suite {str(folder)!r} is empty. Expected files NAME.py or LEVEL/NAME.py with "
            "Model, get_inputs and get_init_inputs."
        )
    kept = tuple(item for item in found if not only or any(word in item.name for word in only))
    if not kept:
        raise ProblemError(
            f"No problem of {str(folder)!r} has {' or '.join(map(repr, only))} in its name. "
            f"Expected a part of one of {len(found)} names, e.g. {found[0].name!r}."
        )
    return kept


def part(items: Sequence[T], shard: Shard) -> tuple[T, ...]:
    """Every n-th item, so that the parts are alike."""
    return tuple(items[shard.index - 1 :: shard.count])


def _is_problem(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return path.is_file() and not any(item.startswith(("_", ".")) for item in parts)


def _problem(path: Path, folder: Path) -> SuiteProblem:
    relative = path.relative_to(folder)
    return SuiteProblem(
        name=relative.with_suffix("").as_posix(),
        level=relative.parts[0] if len(relative.parts) > 1 else folder.resolve().name,
        path=str(path),
        sha256=sha256_text(path.read_bytes().decode("utf-8", "replace")),
    )


def _natural(path: Path) -> tuple[str, ...]:
    """Sort key under which 2_x comes before 10_x."""
    return tuple(re.sub(r"\d+", lambda match: match[0].zfill(12), item) for item in path.parts)
