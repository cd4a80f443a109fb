"""With which of the verified kernels are the outputs of the whole model right?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentkernel.domain.region import Kernel
from agentkernel.swap.useful import strongest_first, with_signatures
from agentkernel.swap.whole import EndToEndVerdict

MOST_CHECKS = 6
"""Checks of the whole model beside the first one."""
Checked = Callable[[Mapping[str, Kernel]], EndToEndVerdict]


@dataclass(frozen=True)
class CorrectKernels:
    """The kernels by path with which the outputs are right, the verdict on them (on all, where no
    choice is right), and by signature why the others are left out."""

    kernels: Mapping[str, Kernel]
    verdict: EndToEndVerdict
    left_out: Mapping[str, str]
    checks: int = 1


def select_correct(
    kernels: Mapping[str, Kernel], checked: Checked, *, most_checks: int = MOST_CHECKS
) -> CorrectKernels:
    """Take in all of the kernels, or else half by half those with which the outputs stay right.

    Each kernel is right by itself, but their errors add up. Those of one signature go in or out
    together, the one that gained the most by itself is asked for first. `checked` judges the model
    with some of the kernels; it is asked at most 1 + `most_checks` times.
    """
    first = checked(kernels)
    if first.accepted:
        return CorrectKernels(kernels, first, {})
    names = strongest_first(kernels)
    if not first.provable or not names:
        return CorrectKernels({}, first, dict.fromkeys(names, first.reason))
    search = _Search(kernels, checked, most_checks)
    kept = search.add((), tuple(names), first.reason)
    return CorrectKernels(
        with_signatures(kernels, kept) if kept else {},
        search.verdict or first,
        search.left_out,
        1 + search.checks,
    )


@dataclass
class _Search:
    """What is known so far. `verdict` is that on the largest choice that was right."""

    kernels: Mapping[str, Kernel]
    checked: Checked
    most: int
    checks: int = 0
    verdict: EndToEndVerdict | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    def add(
        self, kept: tuple[str, ...], group: Sequence[str], refusal: str | None = None
    ) -> tuple[str, ...]:
        """`kept` and what of `group` it stays right with; `refusal`: all of both were asked for
        already, and this was wrong."""
        if refusal is None:
            if self.checks >= self.most:
                self.left_out.update(dict.fromkeys(group, f"not tried in {self.most} checks"))
                return kept
            self.checks += 1
            both = (*kept, *group)
            verdict = self.checked(with_signatures(self.kernels, both))
            if verdict.accepted:
                self.verdict = verdict
                return both
            refusal = verdict.reason
        if len(group) == 1:
            self.left_out[group[0]] = refusal
            return kept
        middle = (len(group) + 1) // 2
        first, second = group[:middle], group[middle:]
        more = self.add(kept, first)
        all_in = len(more) == len(kept) + len(first)
        return self.add(more, second, refusal if all_in else None)
