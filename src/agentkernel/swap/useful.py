"""Which of the verified kernels are worth their place in the whole model?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentkernel.domain.night import Form
from agentkernel.domain.region import Kernel
from agentkernel.swap.forms import BASELINES, FormTimes, best_form

MOST_TRIES = 4
"""Timings of the whole model beside the first one: each compiles it anew."""
Timed = Callable[[Mapping[str, Kernel]], FormTimes]


@dataclass(frozen=True)
class FasterKernels:
    """The kernels that are kept by path (none where a baseline is handed over), the signatures of
    those that are not, the form to hand over and the times that it rests on."""

    kernels: Mapping[str, Kernel]
    dropped: tuple[str, ...]
    form: Form
    times: FormTimes
    tries: int = 0


def select_faster(
    kernels: Mapping[str, Kernel], timed: Timed, *, most_tries: int = MOST_TRIES
) -> FasterKernels:
    """Keep the kernels with which the whole model is surely faster than both baselines.

    Where all of them together are not, the half that gained the most by itself is tried, and its
    half; where that is no better, each group of one signature is left out in turn, the one that
    gained the least by itself first, and stays out where the whole is faster without it. `timed`
    times the model with some of the kernels; it is asked at most 1 + `most_tries` times.
    """
    names = tuple(strongest_first(kernels))
    search = _Search(kernels, timed, most_tries, names, timed(kernels))
    while search.open and search.better(search.names[: (len(search.names) + 1) // 2]):
        pass
    for name in reversed(search.names):
        if search.open:
            search.better(tuple(other for other in search.names if other != name))
    form = best_form(search.times)
    kept = {} if form in BASELINES else with_signatures(kernels, search.names)
    dropped = tuple(name for name in sorted(names) if name not in signatures_of(kept))
    return FasterKernels(kept, dropped, form, search.times, search.tries)


@dataclass
class _Search:
    """The best choice of signatures so far, the strongest first, and its times."""

    kernels: Mapping[str, Kernel]
    timed: Timed
    most: int
    names: tuple[str, ...]
    times: FormTimes
    tries: int = 0
    asked: set[frozenset[str]] = field(default_factory=set)

    @property
    def open(self) -> bool:
        """Whether fewer may be better, and may be asked for."""
        few = len(self.names) < 2 or self.tries >= self.most
        return not few and best_form(self.times) in BASELINES

    def better(self, names: tuple[str, ...]) -> bool:
        """Time the model with these alone; they are the choice where it is faster."""
        if frozenset(names) in self.asked:
            return False
        self.asked.add(frozenset(names))
        self.tries += 1
        times = self.timed(with_signatures(self.kernels, names))
        found = best_form(times) not in BASELINES or _gain(times) > _gain(self.times)
        if found:
            self.names, self.times = names, times
        return found


def signatures_of(kernels: Mapping[str, Kernel]) -> set[str]:
    """Which regions' kernels these are."""
    return {kernel.key.signature for kernel in kernels.values()}


def with_signatures(kernels: Mapping[str, Kernel], names: Sequence[str]) -> dict[str, Kernel]:
    """Those of `kernels` whose signature is one of `names`."""
    return {path: item for path, item in kernels.items() if item.key.signature in names}


def strongest_first(kernels: Mapping[str, Kernel]) -> list[str]:
    """The signatures, by what their kernels gain by themselves."""
    gains = {item.key.signature: item.speedup or 0.0 for item in kernels.values()}
    return sorted(gains, key=lambda name: (-gains[name], name))


def _gain(times: FormTimes) -> float:
    """The best form with kernels against the faster baseline; 0 where none has a time."""
    found = [
        min((ratio.value for other, ratio in ratios.items() if other in BASELINES), default=0.0)
        for form, ratios in times.ratios.items()
        if form not in BASELINES
    ]
    return max(found, default=0.0)
