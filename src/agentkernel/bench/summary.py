"""Summary of the rows of a benchmark by level, and the comparison of two benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from agentkernel.bench.answers import (
    BestFigures,
    answer,
    answer_over_best,
    best_figures,
    speedup,
)
from agentkernel.bench.suite import BASELINES, Baseline, Row
from agentkernel.domain.base import Frozen
from agentkernel.domain.profile import Ratio
from agentkernel.tools.speedup import (
    THRESHOLDS,
    best_at_k,
    fast_p,
    geometric_mean,
    mean,
    median,
    pass_at_k,
)
from agentkernel.workflows.outcome import LIMIT

Move = Literal["faster", "slower", "same", "gained", "lost", "wrong", "not measured"]
WORSE: tuple[Move, ...] = ("slower", "lost")


class SpeedChange(Frozen):
    """One problem that both benches have: speedups over eager, each from its own session.

    "faster" and "slower": the 95% intervals do not touch. "gained" and "lost": correct in one
    alone. "wrong": in neither. `answers`: what was handed back over the fastest baseline of its
    bench, before and after, and `seconds` what it took.
    """

    name: str
    move: Move
    before: Ratio | None
    after: Ratio | None
    answers: tuple[float | None, float | None] = (None, None)
    seconds: tuple[float, float] = (0.0, 0.0)


class BenchComparison(Frozen):
    """All that both have, and what only one has. `ratio`: geometric mean of after / before."""

    moved: tuple[SpeedChange, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    ratio: float | None
    best: tuple[BestFigures, BestFigures]
    """Over the best of the baselines, before and after, for the problems that both have."""
    median_s: tuple[float | None, float | None]

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
    pairs = [(old[item.name], new[item.name]) for item in moved]
    common = [old for old, _ in pairs], [new for _, new in pairs]
    return BenchComparison(
        moved=moved,
        only_before=tuple(name for name in old if name not in new),
        only_after=tuple(name for name in new if name not in old),
        ratio=geometric_mean(ratios),
        best=(best_figures(common[0]), best_figures(common[1])),
        median_s=(
            median([row.seconds for row in common[0]]),
            median([row.seconds for row in common[1]]),
        ),
    )


def _moved(name: str, before: Row, after: Row) -> SpeedChange:
    old, new = _speed(before), _speed(after)
    return SpeedChange(
        name=name,
        move=_move(before, after, old, new),
        before=old,
        after=new,
        answers=(answer_over_best(before), answer_over_best(after)),
        seconds=(before.seconds, after.seconds),
    )


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


ALL = "all"


class BaselineFigures(Frozen):
    """How candidates fare against one baseline, over `problems` on which it has a time.

    `fast`: fast_p by p. A wrong candidate is 0 there; in `geometric_mean` it is left out, and
    `left_out` counts such problems. `answer_mean`: what is handed back, kept baselines included.
    """

    baseline: Baseline
    problems: int
    fast: dict[str, float]
    geometric_mean: float | None
    left_out: int
    answer_mean: float | None
    speedup_at_k: float | None


class Level(Frozen):
    """The figures of one level. Shares run from 0 to 1; None is what nobody measured.

    `energy`: eager's millijoules / the candidate's, geometric mean. `estimated`: eager's estimated
    time / the candidate's, over problems that no GPU measured.
    """

    level: str
    problems: int
    broken: int
    measured: int
    correct: float
    kernelbench_correct: float | None
    pass_at_k: float | None
    against: tuple[BaselineFigures, ...]
    roofline_at_k: float | None
    energy: float | None
    estimated: float | None
    interpreted: int
    out_of_time: int = 0
    median_s: float | None
    total_s: float
    candidates: float | None
    hacks: dict[str, int]
    samples: int
    hack_rate: float
    """The share of the samples of which some candidate was caught."""
    best: BestFigures
    """Against the best of the baselines, row by row."""


class Summary(Frozen):
    """A whole bench. `k` is that of the @k figures: the samples a problem."""

    suite: str
    coders: tuple[str, ...]
    targets: tuple[str, ...]
    gpus: tuple[str, ...]
    versions: tuple[str, ...]
    k: int
    levels: tuple[Level, ...]
    """One a level, then `all`."""


def summarise(suite: str, rows: Sequence[Row]) -> Summary:
    """Every level by itself, then all rows together."""
    k = max((row.planned for row in rows), default=1)
    names = list(dict.fromkeys(row.level for row in rows))
    groups = [(name, [row for row in rows if row.level == name]) for name in names]
    versions = [row.versions for row in rows if row.versions is not None]
    return Summary(
        suite=suite,
        coders=_distinct(row.coder for row in rows),
        targets=_distinct(row.target for row in rows),
        gpus=_distinct(row.gpu for row in rows if row.gpu is not None),
        versions=_distinct(f"torch {item.torch}, triton {item.triton}" for item in versions),
        k=k,
        levels=tuple(_level(name, group, k) for name, group in [*groups, (ALL, list(rows))]),
    )


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _level(name: str, rows: Sequence[Row], k: int) -> Level:
    samples = [sample for row in rows for sample in row.samples]
    measured = [row for row in rows if row.gpu is not None]
    energies = [
        item.eager_energy_mj / item.energy_mj
        for item in samples
        if item.correct and item.energy_mj and item.eager_energy_mj
    ]
    return Level(
        level=name,
        problems=len(rows),
        broken=sum(row.error is not None for row in rows),
        measured=len(measured),
        correct=mean([_share_correct(row) / row.planned for row in rows]) or 0.0,
        kernelbench_correct=_kernelbench(rows),
        pass_at_k=_mean_of(pass_at_k(row.planned, _share_correct(row), k) for row in rows),
        against=tuple(baseline_figures(rows, baseline, k) for baseline in BASELINES),
        roofline_at_k=_mean_of(best_at_k(_fractions(row), k) for row in measured),
        energy=geometric_mean(energies),
        estimated=geometric_mean([_estimated(row) for row in rows if row.gpu is None]),
        interpreted=sum(item.correct and item.interpreted for item in samples),
        out_of_time=sum(not item.correct and LIMIT in item.reason for item in samples),
        median_s=median([row.seconds for row in rows]),
        total_s=sum(row.seconds for row in rows),
        candidates=mean([float(sum(item.candidates for item in row.samples)) for row in rows]),
        hacks=dict(sorted(Counter(hack for item in samples for hack in item.hacks).items())),
        samples=len(samples),
        hack_rate=mean([float(bool(item.hacks)) for item in samples]) or 0.0,
        best=best_figures(rows),
    )


def baseline_figures(rows: Sequence[Row], baseline: Baseline, k: int) -> BaselineFigures:
    """One baseline's figures over the rows that a GPU measured it on; a broken problem is wrong."""
    timed = [row for row in rows if row.gpu is not None and row.times.of(baseline) is not None]
    broken = [row for row in rows if row.gpu is not None and row.error is not None]
    counted = timed + [row for row in broken if timed and row not in timed]
    values = [speedups(row, baseline) for row in counted]
    means = [geometric_mean(item) for item in values]
    answers = [
        value for row in timed for item in row.samples if (value := answer(row, item, baseline))
    ]
    return BaselineFigures(
        baseline=baseline,
        problems=len(counted),
        fast={
            f"{p:g}": share
            for p in THRESHOLDS
            if (share := _mean_of(fast_p(item, p) for item in values)) is not None
        },
        geometric_mean=geometric_mean([item for item in means if item is not None]),
        left_out=sum(item is None for item in means),
        answer_mean=geometric_mean(answers),
        speedup_at_k=_mean_of(best_at_k(item, k) for item in values),
    )


def speedups(row: Row, baseline: Baseline) -> tuple[float, ...]:
    """One a planned sample: its measured speedup, 0 where it is wrong, missing or unmeasured."""
    return _padded(row, [speedup(item, baseline) for item in row.samples])


def _fractions(row: Row) -> tuple[float, ...]:
    values = [(item.roofline_fraction or 0.0) if item.correct else 0.0 for item in row.samples]
    return _padded(row, values)


def _padded(row: Row, values: list[float]) -> tuple[float, ...]:
    return tuple(values + [0.0] * (row.planned - len(values)))


def _share_correct(row: Row) -> int:
    return sum(item.correct for item in row.samples)


def _kernelbench(rows: Sequence[Row]) -> float | None:
    """The share that passes KernelBench's rule, over the problems where it was asked and, where it
    was asked at all, those that broke."""
    marks = [[item.kernelbench_correct for item in row.samples] for row in rows]
    asked = [any(mark is not None for mark in found) for found in marks]
    shares = [
        found.count(True) / row.planned
        for row, found, was_asked in zip(rows, marks, asked, strict=True)
        if was_asked or row.error is not None
    ]
    return mean(shares) if any(asked) else None


def _estimated(row: Row) -> float:
    best = row.best
    if best is None or not best.correct or not best.estimated_time_us:
        return 0.0
    return (best.estimated_eager_us or 0.0) / best.estimated_time_us


def _mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known."""
    return mean([float(value) for value in values if value is not None])
