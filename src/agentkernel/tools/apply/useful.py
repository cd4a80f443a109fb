"""Which of the verified kernels are worth their place in the whole model?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentkernel.domain.night import Form
from agentkernel.domain.region import Kernel
from agentkernel.tools.apply.forms import BASELINES, FormTimes, best_form

MOST_TRIES = 4
"""Timings of the whole model beside the first one: each compiles it anew."""
Timed = Callable[[Mapping[str, Kernel]], FormTimes]


@dataclass(frozen=True)
class Useful:
    """The kernels that are kept by path (none where a baseline is handed over), the signatures of
    those that are not, the form to hand over and the times that it rests on."""

    kernels: Mapping[str, Kernel]
    dropped: tuple[str, ...]
    form: Form
    times: FormTimes
    tries: int = 0


def useful(kernels: Mapping[str, Kernel], timed: Timed, *, most_tries: int = MOST_TRIES) -> Useful:
    """Keep the kernels with which the whole model is surely faster than both baselines.

    Where all of them together are not, each group of one signature is left out in turn, the one
    that gained the least by itself first, and stays out where the whole is faster without it.
    `timed` times the model with some of the kernels; it is asked at most 1 + `most_tries` times.
    """
    signatures = _weakest_first(kernels)
    kept = dict(kernels)
    times = timed(kept)
    tries = 0
    for signature in signatures:
        if best_form(times) not in BASELINES or tries >= most_tries or len(_names(kept)) < 2:
            break
        fewer = {path: item for path, item in kept.items() if item.key.signature != signature}
        without = timed(fewer)
        tries += 1
        if best_form(without) not in BASELINES or _gain(without) > _gain(times):
            kept, times = fewer, without
    form = best_form(times)
    if form in BASELINES:
        kept = {}
    dropped = tuple(name for name in sorted(_names(kernels)) if name not in _names(kept))
    return Useful(kept, dropped, form, times, tries)


def _names(kernels: Mapping[str, Kernel]) -> set[str]:
    return {kernel.key.signature for kernel in kernels.values()}


def _weakest_first(kernels: Mapping[str, Kernel]) -> list[str]:
    gains = {item.key.signature: item.speedup or 0.0 for item in kernels.values()}
    return sorted(gains, key=lambda name: (gains[name], name))


def _gain(times: FormTimes) -> float:
    """The best form with kernels against the faster baseline; 0 where none has a time."""
    found = [
        min((ratio.value for other, ratio in ratios.items() if other in BASELINES), default=0.0)
        for form, ratios in times.ratios.items()
        if form not in BASELINES
    ]
    return max(found, default=0.0)
