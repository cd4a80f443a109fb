"""A model writes one segment: a right, faster one is taken, any other costs that segment alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.agents.coder_factory import make_coder
from agentkernel.agents.compiler_coder import CompilerCoder
from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.agents.planner import RulesPlanner
from agentkernel.agents.protocols import Attempt, Diagnosis, DraftRequest, Goals, PlanRequest
from agentkernel.agents.segment_coder import SegmentCoder, root_of
from agentkernel.agents.team import TeamCoder, TeamPlanner
from agentkernel.domain.candidate import Candidate, Draft
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.plan import Hypothesis
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from tests.agents import segment_cases
from tests.agents.models.model_cases import H100, SAMPLING, ScriptedModel, analysis, request
from tests.agents.prompts.test_prompts import check
from tests.agents.segment_cases import ROWS, Clock, Scaled, TwoResults, told
from tests.compiler.sandboxed_drop_in import Sandboxed, sandboxed
from tests.workflows.fakes import mismatch, profile, settings, verdict

ANN = "chat:openai:ann"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandboxed]:
    with sandboxed() as worker:
        yield worker


def really_judged(loaded: LoadedProblem, captured: Captured, candidate: Candidate) -> Verdict:
    """The judge, with few cases, and little patience for what never ends."""
    limit_s = 1.0 if "while True" in candidate.source else 60.0
    settings = JudgeSettings(policy="triton", seed=1, seeds=1, budget_s=0.0, time_limit_s=limit_s)
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
        self.clock = Clock({"One row a program": alone})
        self.model = ScriptedModel([told(item) for item in answers], name=ANN)
        self.coder = SegmentCoder(
            CompilerCoder(self.clock),
            judged or Judged(),
            most=3,
            repairs=repairs,  # type: ignore[arg-type]
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


def test_a_right_faster_segment_is_taken_and_the_whole_is_right(box: Sandboxed) -> None:
    turn = Turn(Scaled(), ROWS, judged=really_judged)
    made = turn.whole()
    assert made.coder == ANN
    assert made.parent == turn.root.candidate.sha256
    (segment,) = made.segments
    assert (segment.model, segment.source, segment.measured) == (ANN, ROWS, False)
    assert Candidate.model_validate_json(made.model_dump_json()) == made
    assert "segments" not in turn.root.candidate.model_dump()
    assert segment.label == f"mul, softmax by {ANN}, 5.00 µs alone, 10.0 µs before, estimated"
    assert "def segment_row_kernel(" in made.source
    assert f"# Written by the model {ANN}." in made.source
    box.check(made.source, turn.problem.live, (torch.randn(6, 40),))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("WRONG", "refused at the gate correctness"),
        ("BROKEN", "refused at the gate"),
        ("HANGS", "could not be judged here"),
        ("CHEATS", "refused at the gate policy"),
        ("READS_OUTSIDE", "refused at the gate"),
        ("NO_FILE", "no complete Python file"),
    ],
)
def test_a_bad_answer_costs_its_segment_alone(name: str, why: str) -> None:
    bad = getattr(segment_cases, name, "no file at all")
    turn = Turn(Scaled(), bad, bad, judged=really_judged)
    assert why in turn.refusal()
    assert not any("One row a program" in item.sources[0] for item in turn.clock.timed), (
        "it never ran"
    )


def test_names_that_clash_are_told_apart(box: Sandboxed) -> None:
    class Named(Scaled):
        def forward(self, segment: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(segment)

    turn = Turn(Named(), segment_cases.CLASHES)
    made = turn.whole()
    assert "segment_1 = " not in made.source, "a name is bound once"
    assert "def segment_1_sort(" in made.source
    box.check(made.source, turn.problem.live, (torch.randn(6, 40),))


@pytest.mark.parametrize("rows", [1, 6, 17])
def test_sizes_stay_free(box: Sandboxed, rows: int) -> None:
    turn = Turn(Scaled(), ROWS)
    made = turn.whole()
    assert not made.declared_sizes
    box.check(made.source, turn.problem.live, (torch.randn(rows, 40),))
    (asked,) = turn.coder.judge.asked  # type: ignore[attr-defined]
    assert {(item.input_index, item.dim) for item in capture(asked).free_dims} >= {(0, 0)}


def test_two_results_come_from_one_function(box: Sandboxed) -> None:
    turn = Turn(TwoResults(), segment_cases.TWICE)
    made = turn.whole()
    assert "softmax, mul = segment(x, scale)" in made.source
    box.check(made.source, turn.problem.live, (torch.randn(6, 40),))


class Layers(nn.Module):
    """The same layer twice, each followed by a call of the library."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Scaled() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = torch.sort(torch.softmax(x * part.scale, -1))[0]
        return x


def test_equal_segments_are_asked_for_once(box: Sandboxed) -> None:
    turn = Turn(Layers(), ROWS)
    made = turn.whole()
    assert len(turn.model.questions) == 1
    assert made.source.count("@triton.jit") == 1, made.source
    assert made.source.count(" = segment(") == 2
    box.check(made.source, turn.problem.live, (torch.randn(6, 40),))


def test_no_faster_alone_is_not_taken() -> None:
    assert "right, but no faster: mul, softmax" in Turn(Scaled(), ROWS, alone=10.0).refusal()


def test_what_cannot_be_compared_is_for_the_whole_to_decide() -> None:
    class Library(Scaled):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.softmax(x * self.scale, -1)
            return y, torch.sort(y)[0]

    turn = Turn(Library(), ROWS)
    assert turn.take(3) is None
    (segment,) = turn.whole(2).segments
    assert segment.label == f"sort by {ANN}, not timed alone"


def test_a_refused_answer_may_be_repaired() -> None:
    turn = Turn(Scaled(), segment_cases.WRONG, ROWS, judged=Judged("1e-3"), repairs=1)
    assert turn.whole().segments[0].source == ROWS
    first, second = turn.model.questions
    assert {item.agent for item in turn.model.questions} == {"segment"}
    assert len(second.messages) > len(first.messages), "it is shown what was wrong"


def test_the_next_turn_keeps_what_was_taken_and_drops_what_made_the_whole_slower() -> None:
    turn = Turn(Scaled(), ROWS, ROWS.replace("row_kernel", "largest_kernel"))
    made = turn.whole()
    both = turn.whole(2, right(made, estimate_us=15.0))
    assert [item.name for item in both.segments] == ["mul, softmax", "sort"]
    turn.model.answers = [told(ROWS)]
    alone = turn.whole(2, right(made, estimate_us=25.0))
    assert [item.name for item in alone.segments] == ["sort"]


def test_a_refused_whole_is_not_asked_for_again() -> None:
    turn = Turn(Scaled())
    told_wrong = Diagnosis(failure_class="x", evidence="", action="repair", advice="")
    asked = turn.request("segment 1", turn.root).evolve(diagnosis=told_wrong)
    member = ModelCoder(ANN, turn.model, SAMPLING)
    made = turn.coder.draft(turn.problem, asked, member, turn.root, 1)
    assert made is not None
    assert made.none is not None
    assert made.none.reason == "the whole with its segment was refused"


def test_a_run_that_goes_on_cuts_the_candidate_anew() -> None:
    turn = Turn(Scaled(), ROWS, ROWS)
    first = turn.whole()
    turn.coder.compiler = CompilerCoder(turn.clock)
    assert turn.coder.count(turn.root) == 3, "not known yet"
    assert turn.whole() == first
    assert turn.coder.count(turn.root) == 2


MORE = {
    "ModelNew has more than a forward": ("    def forward", "    size = 3\n\n    def forward"),
    "reads the module itself": ("return out", "return self.same(out)"),
    "it imports typing.Any": ("import torch\n", "import torch\nfrom typing import Any\n"),
    "is no import, constant or function": ("@triton.jit", "if True:\n    N = 3\n\n\n@triton.jit"),
}


@pytest.mark.parametrize("why", MORE)
def test_a_file_that_cannot_be_a_part_costs_the_segment(why: str) -> None:
    assert why in Turn(Scaled(), ROWS.replace(*MORE[why])).refusal()


def planned(team: TeamCoder, *history: Attempt, exhausted: tuple[str, ...] = ()) -> str:
    planner = TeamPlanner(RulesPlanner(lambda problem, target: ()), team, rounds=9)
    problem = problem_from_module(Scaled(), (torch.randn(6, 40),))
    asked = PlanRequest(problem, analysis(), H100, Goals(), history, exhausted=exhausted)
    (hypothesis,) = planner.plan(asked).hypotheses
    return hypothesis.strategy


def test_segments_come_first_one_a_turn() -> None:
    turn = Turn(Scaled(), ROWS)
    member = ModelCoder(ANN, turn.model, SAMPLING)
    team = TeamCoder(turn.coder.compiler, [member], segments=turn.coder)
    root = turn.root.candidate.id
    begun = [planned(team, turn.root)]
    begun.append(planned(team, turn.root, exhausted=tuple(begun)))
    begun.append(planned(team, turn.root, exhausted=tuple(begun)))
    assert begun == [
        f"segment 1 of {root} with {ANN}, turn 1",
        f"segment 2 of {root} with {ANN}, turn 2",
        f"improve {root} with {ANN}, turn 3",
    ]
    made = team.draft(turn.problem, turn.request(begun[0], turn.root)).candidate
    assert made is not None
    assert (made.strategy, made.coder, len(made.segments)) == (begun[0], ANN, 1)
    turn.model.answers = [ModelUnavailable("gone")]
    lost = team.draft(turn.problem, turn.request(begun[1], turn.root))
    assert lost.none is not None
    assert f"{ANN} loses its turn: gone" in lost.none.reason


def test_without_a_compilers_candidate_of_templates_there_are_no_segments() -> None:
    turn = Turn(Scaled())
    lifted = turn.root.candidate.evolve(strategy="lifted")
    assert root_of((turn.root,)) == turn.root
    assert root_of((turn.root.evolve(candidate=lifted),)) is None


def test_a_budget_of_no_segments_asks_for_none(tmp_path: Path) -> None:
    for budget, most in ((0, None), (2, 2)):
        chosen = settings(tmp_path / "runs", f"coder=team:{ANN}", f"team.segments={budget}")
        made = make_coder(
            chosen.coder, Clock(), None, ModelProvider(), chosen, judge_segment=Judged()
        )
        assert isinstance(made, TeamCoder)
        assert (made.segments and made.segments.most) == most
    turn = Turn(Scaled())
    team = TeamCoder(turn.coder.compiler, [ModelCoder(ANN, turn.model, SAMPLING)])
    assert planned(team, turn.root).startswith("improve ")
    assert turn.model.questions == []


def test_the_question_is_the_segment_alone() -> None:
    turn = Turn(Scaled(), ROWS)
    turn.whole()
    (message,) = turn.model.questions[0].messages
    check("segment.md", message.text)
