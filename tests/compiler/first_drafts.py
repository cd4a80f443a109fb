"""The draft that the compiler coder makes without a search: the first schedule of its family."""

from __future__ import annotations

from agentkernel.agents.compiler_coder import CompilerCoder
from agentkernel.agents.protocols import DraftRequest, Goals
from agentkernel.domain.candidate import TrialResult
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.targets import find_target
from tests.workflows.fakes import ANALYSIS

TARGET = find_target("h200").target


class FirstFirst:
    """A searcher that prefers the first schedule."""

    most_sampled = 0

    def rank(self, problem, sources, labels, schedules, target, forms=None):  # type: ignore[no-untyped-def]
        return tuple(
            TrialResult(label=label, sha256=str(index), schedule=schedule, time_us=1.0 + index)
            for index, (label, schedule) in enumerate(zip(labels, schedules, strict=True))
        )

    def tune(self, spaces, target):  # type: ignore[no-untyped-def]
        return tuple(
            self.rank(item.problem, item.sources, item.labels, item.schedules, target)
            for item in spaces
        )


def drafted(problem: LoadedProblem, strategy: str) -> str:
    hypothesis = Hypothesis(strategy=strategy, reason="r")
    request = DraftRequest(
        target=TARGET, goals=Goals(), plan=Plan(analysis=ANALYSIS, hypotheses=(hypothesis,)),
        hypothesis=hypothesis, retrieved=(), history=(), diagnosis=None, round=1,
    )  # fmt: skip
    draft = CompilerCoder(FirstFirst()).draft(problem, request)
    assert draft.candidate is not None, draft.none
    return draft.candidate.source
