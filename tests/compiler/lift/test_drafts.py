"""Drafts from TorchInductor's code: the fastest variant with its best launch."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from agentkernel.agents import compiler_coder
from agentkernel.agents.compiler_coder import LIFTED, LIFTED_ALGEBRA, CompilerCoder
from agentkernel.agents.protocols import Attempt, DraftRequest, Goals
from agentkernel.agents.strategies import SEGMENTS, hypotheses, prefetch_inductor
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted, find_variant
from agentkernel.domain.candidate import Draft, TrialResult
from agentkernel.domain.errors import TimeIsUp
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.inductor_codes import shared_codes
from tests.workflows.fakes import ANALYSIS

TARGET = find_target("h200").target
VARIANTS = ("default", "looped", "pointwise_configs")
LONG_ROWS = (64, 3000)

pytestmark = pytest.mark.xdist_group("lift")


class Product(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 0.5).cumprod(-1)


class Sorted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(-1).values


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh()


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.tanh() * 2.0, x.softmax(-1)


class Stored:
    """A writer whose answers are there already."""

    def __init__(self, codes: Sequence[InductorCode | NotLifted]) -> None:
        self._codes = codes

    def begin(self, captured: Captured) -> None:
        pass

    def codes(self, captured: Captured) -> Sequence[InductorCode | NotLifted]:
        return self._codes


class Counting(Stored):
    """Keeps the graphs that it was asked about."""

    def __init__(self, codes: Sequence[InductorCode | NotLifted]) -> None:
        super().__init__(codes)
        self.asked: list[Captured] = []

    def begin(self, captured: Captured) -> None:
        self.asked.append(captured)

    def codes(self, captured: Captured) -> Sequence[InductorCode | NotLifted]:
        self.begin(captured)
        return super().codes(captured)


class LongestFirst:
    """A searcher that measures the length of a source: the longest is the fastest."""

    def rank(self, problem, sources, labels, schedules, target, forms=None):  # type: ignore[no-untyped-def]
        return tuple(
            TrialResult(label=label, sha256=label, schedule=schedule, time_us=1e6 / len(source))
            for source, label, schedule in zip(sources, labels, schedules, strict=True)
        )


def problem_of(module: nn.Module, *shape: int) -> LoadedProblem:
    return problem_from_module(module.eval(), (torch.randn(shape or (6, 40)),))


@functools.cache
def codes() -> dict[str, tuple[InductorCode | NotLifted, ...]]:
    """The variants of both modules; one process writes them all."""
    graphs = {
        "product": capture(problem_of(Product())),
        "pair": capture(problem_of(Pair(), *LONG_ROWS)),
    }
    jobs = [(graph, find_variant(name)) for graph in graphs.values() for name in VARIANTS]
    answers = shared_codes("drafts", jobs)
    count = len(VARIANTS)
    return {"product": answers[:count], "pair": answers[count:]}


def request_for(strategy: str, *before: Draft) -> DraftRequest:
    """A draft by `strategy`, after those `before`."""
    hypothesis = Hypothesis(strategy=strategy, reason="r")
    history = tuple(Attempt(candidate=item.candidate) for item in before if item.candidate)
    return DraftRequest(
        target=TARGET, goals=Goals(), plan=Plan(analysis=ANALYSIS, hypotheses=(hypothesis,)),
        hypothesis=hypothesis, retrieved=(), history=history, diagnosis=None, round=1,
    )  # fmt: skip


def drafted(problem: LoadedProblem, strategy: str, writer: Stored | None) -> Draft:
    return CompilerCoder(LongestFirst(), writer).draft(problem, request_for(strategy))


def test_what_no_template_covers_is_lifted_and_holds_for_its_sizes_alone() -> None:
    draft = drafted(problem_of(Product()), LIFTED, Stored(codes()["product"]))
    assert draft.candidate is not None, draft.none
    assert draft.candidate.declared_sizes
    assert draft.candidate.strategy == LIFTED
    assert "class ModelNew" in draft.candidate.source


def test_it_is_offered_where_it_can_be_measured_or_is_the_only_way() -> None:
    covered, alone = problem_of(Pair()), problem_of(Sorted())

    def offered(problem: LoadedProblem, *, lifting: bool, measurable: bool) -> set[str]:
        captured = capture(problem)
        found = hypotheses(problem, captured, lifting=lifting, measurable=measurable)
        return {item.strategy for item in found}

    assert LIFTED in offered(covered, lifting=True, measurable=True)
    layer = problem_of(Layer(), 16, 64)
    assert offered(layer, lifting=True, measurable=True) == {SEGMENTS, LIFTED}
    assert offered(layer, lifting=True, measurable=False) == {"gemm", "library"}
    assert LIFTED not in offered(covered, lifting=True, measurable=False)
    assert offered(alone, lifting=True, measurable=False) == {LIFTED}
    assert offered(alone, lifting=False, measurable=True) == set()


def test_without_a_rewrite_or_a_writer_there_is_a_reason() -> None:
    problem = problem_of(Product())
    assert "nobody to ask" in (drafted(problem, LIFTED, None).none or _no_reason()).reason
    rewritten = drafted(problem, LIFTED_ALGEBRA, Stored(codes()["product"]))
    assert "no exact rewrite" in (rewritten.none or _no_reason()).reason


def test_where_nothing_is_lifted_the_commonest_reason_is_told() -> None:
    many = (NotLifted(reason="rare"), NotLifted(reason="common"), NotLifted(reason="common"))
    draft = drafted(problem_of(Product()), LIFTED, Stored(many))
    assert draft.candidate is None
    assert "common" in draft.none.reason


class LastFirst(LongestFirst):
    """The last one of each race is the fastest; `cut` ends the second one."""

    def __init__(self, *, cut: bool = False, slow: float = 1.0) -> None:
        self.races: list[list[str]] = []
        self.cut = cut
        self.slow = slow

    def rank(self, problem, sources, labels, schedules, target, forms=None):  # type: ignore[no-untyped-def]
        self.races.append(list(labels))
        if self.cut and len(self.races) > 1:
            raise TimeIsUp("no time for a second race")
        return tuple(
            TrialResult(
                label=label, sha256="", schedule={}, time_us=self.slow * (9.0 - place / 100)
            )
            for place, label in enumerate(labels)
        )


def test_the_winner_s_launches_are_raced_too() -> None:
    problem, writer = problem_of(Pair(), *LONG_ROWS), Stored(codes()["pair"])
    searcher = LastFirst()
    draft = CompilerCoder(searcher, writer).draft(problem, request_for(LIFTED))
    first, second = searcher.races
    assert second[0] == first[-1]
    assert all("option" in label for label in second[1:])
    assert draft.candidate is not None
    assert draft.candidate.note == second[-1]
    labels = [item.label for item in draft.tried]
    assert sorted([*labels, second[-1]]) == sorted({*first, *second})

    cut = CompilerCoder(LastFirst(cut=True), writer).draft(problem, request_for(LIFTED))
    assert cut.candidate is not None
    assert cut.candidate.note == first[-1]


def test_a_winner_that_has_nobody_to_race_against_is_not_timed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No configuration is left to try; one that takes long has no launch form either."""
    monkeypatch.setattr(compiler_coder, "configurations", lambda *_: [])
    problem, writer = problem_of(Pair(), *LONG_ROWS), Stored(codes()["pair"])
    slow, fast = LastFirst(slow=1e4), LastFirst()
    for searcher in (slow, fast):
        draft = CompilerCoder(searcher, writer).draft(problem, request_for(LIFTED))
        assert draft.candidate is not None
        assert draft.candidate.note == searcher.races[0][-1]
    assert len(slow.races) == 1
    assert fast.races[1:] == [[fast.races[0][-1]]], "its forms are asked for in a second race"


def _no_reason() -> NotLifted:
    raise AssertionError("a candidate where none was expected")


def test_torchinductor_is_asked_about_one_graph_for_the_plan_and_every_draft() -> None:
    problem, writer = problem_of(Product()), Counting(codes()["product"])
    coder = CompilerCoder(LongestFirst(), writer)
    captured = capture(problem)
    prefetch_inductor(coder, problem, captured, (Hypothesis(strategy=LIFTED, reason="r"),))
    coder.draft(problem, request_for(LIFTED))
    coder.draft(problem, request_for(LIFTED))
    assert len(writer.asked) == 3
    assert all(item.graph is captured.graph for item in writer.asked)


def test_a_repair_never_gives_the_refused_launch_again() -> None:
    problem = problem_of(Pair(), *LONG_ROWS)
    coder = CompilerCoder(LastFirst(), Stored(codes()["pair"]))
    first = coder.draft(problem, request_for(LIFTED))
    assert "option" in first.candidate.note
    second = coder.draft(problem, request_for(LIFTED, first))
    assert second.candidate.sha256 != first.candidate.sha256
