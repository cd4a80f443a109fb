"""What does a candidate do at other sizes than the declared ones, for which alone it was written?

It may raise, or be right; an answer that is wrong is refused: nobody would see the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.problem import ShapeSet
from agentkernel.domain.verdict import Failure
from agentkernel.runtime.devices import release_cached_memory
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.envelope import capture_covers
from agentkernel.tools.judge.cases.shapes import FACTORS, CaseShape, count_elements, replace_sizes
from agentkernel.tools.judge.comparison.finding import CaseOutcome
from agentkernel.tools.judge.memory import CaseMemory
from agentkernel.tools.judge.reference.question import NotApplicable, ReferenceCase
from agentkernel.tools.judge.trial import CaseRunner, is_not_built, is_refusal

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured


class OtherInputsResult(NamedTuple):
    """`failure`: a wrong answer, or a worse end than raising. `tried`: calls that were asked, of
    which it `refused` so many."""

    failure: Failure | None
    tried: int
    refused: int = 0


def judge_other_shapes(
    runner: CaseRunner, captured: Captured | None, cases: Sequence[Case]
) -> OtherInputsResult:
    """Ask the candidate of `runner` at sizes that the `captured` graph, its sizes free, covers;
    None asks in every case that the reference takes. Of a case's echoes those are asked that change
    neither inputs nor weights."""
    tried = refused = 0
    for case in cases:
        reference_case = runner.oracle_inputs.ask(case)
        if isinstance(reference_case, NotApplicable):
            continue
        leaves = reference_case.answer.leaves
        if captured is not None and not capture_covers(captured, case.shape.inputs, leaves):
            continue
        for follow_up in (None, *case.follow_ups):
            if (
                follow_up is not None
                and runner.oracle_inputs.follow(case, reference_case, follow_up)
                is not reference_case
            ):
                continue
            asked = case if follow_up is None else case.followed_up(follow_up)
            found = judge_reference_case(runner, asked, reference_case, built=captured is not None)
            tried += found.tried
            refused += found.refused
            if found.failure is not None:
                return OtherInputsResult(found.failure, tried, refused)
    return OtherInputsResult(None, tried, refused)


def judge_reference_case(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase, *, built: bool = False
) -> OtherInputsResult:
    """Ask one. Where no kernel came of the source it is refused too, unless it must be `built`;
    where memory runs out it was not tried."""
    import torch

    try:
        outcome = _asked(runner, case, reference_case)
    except torch.OutOfMemoryError:
        release_cached_memory(runner.settings.device)
        return OtherInputsResult(None, 0)
    no = outcome.refused
    if no is not None and (is_refusal(no) or (not built and is_not_built(no))):
        return OtherInputsResult(None, 1, 1)
    return OtherInputsResult(outcome.failure, 1)


def _asked(runner: CaseRunner, case: Case, reference_case: ReferenceCase) -> CaseOutcome:
    memory = CaseMemory(runner.worker, reference_case)
    try:
        return runner.ask_candidate(case, reference_case, memory)
    finally:
        memory.release()


def neighbours(inputs: ShapeSet, captured: Captured, limit: int) -> tuple[CaseShape, ...]:
    """The declared sizes but for one, each in turn, then as many elements in another form; as far
    as they take at most `limit` elements.

    A file that looks at one size alone, or at the number of elements alone, raises where all sizes
    are others. It takes these, with a grid and strides that are those of the declared ones.
    """
    declared = {item.symbol: item.size for item in captured.free_dims}
    groups: list[Iterable[Mapping[str, int]]] = [
        [declared | {name: size + more} for more in FACTORS] for name, size in declared.items()
    ]
    groups.append(_traded(declared))
    found = (_first(inputs, captured, group, limit) for group in groups)
    return tuple(CaseShape(item, "odd", 0) for item in found if item is not None)


def _traded(declared: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """One size halved for another one's double."""
    for half, double in permutations(declared, 2):
        if declared[half] % 2 == 0:
            yield {**declared, half: declared[half] // 2, double: 2 * declared[double]}


def _first(
    inputs: ShapeSet, captured: Captured, group: Iterable[Mapping[str, int]], limit: int
) -> ShapeSet | None:
    """Of a group the first sizes that the graph holds for."""
    for sizes in group:
        found = replace_sizes(inputs, captured.free_dims, sizes)
        if count_elements(found) <= limit and captured.admits(sizes):
            return found
    return None
