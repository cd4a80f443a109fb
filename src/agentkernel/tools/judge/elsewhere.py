"""What does a candidate do at other sizes than the declared ones, for which alone it was written?

It may raise, or be right; an answer that is wrong is refused: nobody would see the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.verdict import Failure
from agentkernel.tools.judge.cases import Case
from agentkernel.tools.judge.envelope import covered
from agentkernel.tools.judge.memory import Memory
from agentkernel.tools.judge.question import NotApplicable
from agentkernel.tools.judge.trial import Trial, is_refusal

if TYPE_CHECKING:
    from agentkernel.tools.capture import Captured


class Elsewhere(NamedTuple):
    """`failure`: a wrong answer, or a worse end than raising. `tried`: sizes that were asked."""

    failure: Failure | None
    tried: int


def judge_elsewhere(trial: Trial, captured: Captured, cases: Sequence[Case]) -> Elsewhere:
    """Ask the candidate of `trial` at sizes that the `captured` graph, its sizes free, covers."""
    tried = 0
    for case in cases:
        question = trial.asker.ask(case)
        if isinstance(question, NotApplicable):
            continue
        if not covered(captured, case.shape.inputs, question.answer.leaves):
            continue
        memory = Memory(trial.worker, question)
        try:
            outcome = trial.ask_candidate(case, question, memory)
        finally:
            memory.release()
        tried += 1
        if outcome.refused is not None and is_refusal(outcome.refused):
            continue
        if outcome.failure is not None:
            return Elsewhere(outcome.failure, tried)
    return Elsewhere(None, tried)
