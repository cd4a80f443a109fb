"""A model writes one segment: a right and faster one is taken, any other costs that segment alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import CompilerCoder
from agentkernel.agents.history import outcome
from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.protocols import Attempt, DraftRequest, Goals
from agentkernel.agents.segment_coder import SegmentCoder, root_of
from agentkernel.domain.candidate import Candidate, Draft
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.plan import Hypothesis
from agentkernel.domain.verdict import Policy, Verdict
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from tests.agents import segment_cases
from tests.agents.models.model_cases import SAMPLING, ScriptedModel, request
from tests.agents.segment_cases import ROWS, Clock, Scaled, TwoResults, told
from tests.workflows.fakes import mismatch, profile, verdict

ANN = "chat:openai:ann"


def really_judged(
    loaded: LoadedProblem, captured: Captured, candidate: Candidate, policy: Policy = "triton"
) -> Verdict:
    """The judge, with few cases and little patience."""
    settings = JudgeSettings(policy=policy, seed=1, seeds=1, budget_s=0.0, time_limit_s=5.0)
    return judge(loaded, captured, candidate.source, settings)


@dataclass
class Judged:
    """Whether a segment's file is right, by a word in it, and what was asked."""

    wrong: str = "no such word"
    asked: list[LoadedProblem] = field(default_factory=list)

    def __call__(self, loaded: LoadedProblem, _: Captured, candidate: Candidate) -> Verdict:
        self.asked.append(loaded)
        return verdict(candidate, mismatch() if self.wrong in candidate.source else None)


class Turn:
    """The compiler's candidate for a module, and a turn of a model at one of its segments."""

    def __init__(
        self, module: nn.Module, *answers: str, alone: float = 5.0, judged: object = None,
        repairs: int = 0, inputs: tuple[torch.Tensor, ...] | None = None,
    ) -> None:  # fmt: skip
        self.problem = problem_from_module(module, inputs or (torch.randn(6, 40),))
        self.clock = Clock({"row_kernel(": alone})
        self.model = ScriptedModel([told(item) for item in answers], name=ANN)
        self.coder = SegmentCoder(
            CompilerCoder(self.clock), judged or Judged(), most=3, repairs=repairs  # type: ignore[arg-type]
        )
        made = self.coder.compiler.draft(self.problem, self.request("fused")).candidate
        assert made is not None
        self.root = right(made)

    def request(self, strategy: str, *history: Attempt) -> DraftRequest:
        hypothesis = Hypothesis(strategy=strategy, reason="")
        return request(history, hypothesis=hypothesis, goals=Goals(policy="mixed"))

    def take(self, number: int = 1, *more: Attempt) -> Draft | None:
        """What comes of it; `more` are earlier turns."""
        asked = self.request(f"segment {number} of {self.root.candidate.id}", self.root, *more)
        member = ModelCoder(ANN, self.model, SAMPLING)
        return self.coder.draft(self.problem, asked, member, self.root, number)

    def refusal(self) -> str:
        """Why the segment stays the compiler's."""
        made = self.take()
        assert made is not None
        assert made.candidate is None
        assert made.none is not None
        return made.none.reason

    def whole(self, number: int = 1, *more: Attempt) -> Candidate:
        """The drop-in with the segment in it."""
        made = self.take(number, *more)
        assert made is not None
        assert made.candidate is not None, made.none
        return made.candidate


def right(candidate: Candidate, estimate_us: float = 20.0) -> Attempt:
    estimated = profile(candidate, estimate_us=estimate_us)
    return Attempt(candidate=candidate, verdict=verdict(candidate), profile=estimated)


def accepted(turn: Turn, made: Candidate) -> None:
    """The whole goes through the judge like any other."""
    found = really_judged(turn.problem, capture(turn.problem), made, "mixed")
    assert found.accepted, outcome(Attempt(candidate=made, verdict=found))


def test_a_right_faster_segment_is_taken_and_the_whole_is_right() -> None:
    turn = Turn(Scaled(), ROWS, judged=really_judged)
    made = turn.whole()
    assert made.coder == ANN
    assert made.parent == turn.root.candidate.sha256
    (segment,) = made.segments
    assert (segment.model, segment.source, segment.measured) == (ANN, ROWS, False)
    assert segment.label == f"mul, softmax by {ANN}, 5.00 µs alone, 10.0 µs before, estimated"
    assert "def segment_row_kernel(" in made.source
    assert f"# Written by the model {ANN}." in made.source
    accepted(turn, made)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("WRONG", "refused at the gate correctness"),
        ("BROKEN", "refused at the gate"),
        ("HANGS", "refused at the gate"),
        ("CHEATS", "refused at the gate policy"),
        ("READS_OUTSIDE", "refused at the gate"),
        ("NO_FILE", "no complete Python file"),
    ],
)
def test_a_bad_answer_costs_its_segment_alone(name: str, why: str) -> None:
    bad = getattr(segment_cases, name, "no file at all")
    turn = Turn(Scaled(), bad, bad, judged=really_judged)
    assert why in turn.refusal()
    assert len(turn.clock.timed) == 0 or all("row_kernel" not in x.sources[0] for x in turn.clock.timed)
