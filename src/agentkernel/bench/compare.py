"""What moved between two benches beyond the noise of either?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentkernel.bench.rows import Row
from agentkernel.domain.base import Frozen
from agentkernel.domain.profile import Ratio
from agentkernel.tools.metrics import geometric_mean

Move = Literal["faster", "slower", "same", "gained", "lost", "wrong", "not measured"]
WORSE: tuple[Move, ...] = ("slower", "lost")


class SpeedChange(Frozen):
    """One problem that both benches have: speedups over eager, each from its own session.

    "faster" and "slower": the 95% intervals do not touch. "gained" and "lost": correct in one
    alone. "wrong": in neither.
    """

    name: str
    move: Move
    before: Ratio | None
    after: Ratio | None


class BenchComparison(Frozen):
    """All that both have, and what only one has. `ratio`: geometric mean of after / before."""

    moved: tuple[SpeedChange, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    ratio: float | None

    def count(self, move: Move) -> int:
        """How many problems moved this way."""
        return sum(item.move == move for item in self.moved)

    @property
    def worse(self) -> bool:
        """True where a problem is surely slower, or correct no more."""
        return any(item.move in WORSE for item in self.moved)


def compare(before: Sequence[Row], after: Sequence[Row]) -> BenchComparison:
    """Problem by problem, by name."""
    old, new = {row.name: row for row in before}, {row.name: row for row in after}
    moved = tuple(_moved(name, old[name], new[name]) for name in old if name in new)
    ratios = [item.after.value / item.before.value for item in moved if item.after and item.before]
    return BenchComparison(
        moved=moved,
        only_before=tuple(name for name in old if name not in new),
        only_after=tuple(name for name in new if name not in old),
        ratio=geometric_mean(ratios),
    )


def _moved(name: str, before: Row, after: Row) -> SpeedChange:
    old, new = _speed(before), _speed(after)
    return SpeedChange(name=name, move=_move(before, after, old, new), before=old, after=new)


def _move(before: Row, after: Row, old: Ratio | None, new: Ratio | None) -> Move:
    was, is_now = _correct(before), _correct(after)
    if was != is_now:
        return "gained" if is_now else "lost"
    if not is_now:
        return "wrong"
    if old is None or new is None:
        return "not measured"
    if new.low > old.high:
        return "faster"
    return "slower" if new.high < old.low else "same"


def _correct(row: Row) -> bool:
    return row.best is not None and row.best.correct


def _speed(row: Row) -> Ratio | None:
    best = row.best
    return best.vs_eager if best is not None and best.correct else None
