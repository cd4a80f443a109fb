"""Which judged kernels is a teacher asked about, and which of them first?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from agentkernel.training.data.admission import RIGHT, module_objection, row_objection
from agentkernel.training.data.gathering import ScratchRows
from agentkernel.training.data.sources import Origin, UnreadableRow, read_origin
from agentkernel.training.data.tasks import slower_kernels

Show = Callable[[int, int | None, str], None]
"""Hears how much is done, of how much where that is known, and a few words."""
EVERY = 100


class ReviewCandidate(NamedTuple):
    """A kernel that could be reviewed; they sort in the order in which they are."""

    later: bool
    """No faster kernel is known: nothing is taught with its review yet."""
    rank: int
    """Of the module's slower kernels, the slowest first: every module comes before any twice."""
    problem: str
    kernel: str


def gather_rows(
    origins: Sequence[Origin], licences: Sequence[str], folder: Path, show: Show
) -> ScratchRows:
    """The rows that data could be made of: nobody else's code is sent, and nothing twice."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".reviews-") as scratch:
        # Its name goes at once, its pages when it is closed: a kill leaves nothing behind.
        gathered = ScratchRows(Path(scratch) / "gathered.sqlite")
    try:
        done = 0
        for origin in origins:
            for row in read_origin(origin):
                if isinstance(row, UnreadableRow) or row.label == "not-judged":
                    continue
                if row_objection(row, licences) is None and module_objection(row.problem) is None:
                    gathered.add(row)
                done += 1
                if done % EVERY == 0:
                    show(done, None, "kernels read")
    except BaseException:
        gathered.close()
        raise
    return gathered


def reviewable(gathered: ScratchRows, *, everything: bool = False) -> list[ReviewCandidate]:
    """The right kernels with a profile, each text once, in the order in which they are asked about:
    those that have a faster one, then, where `everything` is wanted, the others."""
    found: list[ReviewCandidate] = []
    for name, _, rows in gathered.problems():
        right = [row for row in rows if row.label in RIGHT]
        ranks = {item.slow.sha256: rank for rank, item in enumerate(slower_kernels(right))}
        for row in right:
            rank = ranks.get(row.sha256)
            if "time" in row.facts and (rank is not None or everything):
                found.append(ReviewCandidate(rank is None, rank or 0, name, row.sha256))
    first: dict[str, ReviewCandidate] = {}
    for place in sorted(found):
        first.setdefault(place.kernel, place)
    return list(first.values())


__all__ = ["ReviewCandidate", "Show", "gather_rows", "reviewable"]
