"""The compiler coder searches broadly, takes the searcher's first, and says when it has nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import CompilerCoder, family
from agentkernel.agents.protocols import DraftRequest, Goals, Searcher
from agentkernel.agents.strategies import hypotheses
from agentkernel.compiler import partitions as compiler_partitions
from agentkernel.compiler.drop_in.launch import DIRECT
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.lift.inductor_code import NotLifted
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.domain.candidate import Draft, TrialResult
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Policy, Precision
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.judge import judge
from agentkernel.tools.judge.policy import direct_form
from agentkernel.tools.judge.policy.graph_form import plain_form
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from agentkernel.tools.search.space import Forms, Space
from agentkernel.tools.targets import find_target
from tests.workflows.fakes import ANALYSIS

TARGET = find_target("h200").target


def _calls_library(source: str) -> bool:
    forward = source[source.index("class ModelNew") :]
    return "torch.matmul" in forward or "functional.linear" in forward


@dataclass
class CountingSearcher:
    """Times each source by its place in `times`, cyclically; None prunes it."""

    times: Sequence[float | None]
    seen: list[str] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    library_us: float = 100.0

    def rank(
        self, problem: LoadedProblem, sources: Sequence[str], labels: Sequence[str],
        schedules: Sequence[dict[str, dict[str, int]]], target: Target,
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:  # fmt: skip
        self.seen += sources
        cycle = [self.times[index % len(self.times)] for index in range(len(sources))]
        return tuple(
            TrialResult(
                label=label, sha256=str(index), schedule=schedule, time_us=time,
                pruned=None if time is not None else "spills",
            )
            for index, (label, schedule, time) in enumerate(
                zip(labels, schedules, cycle, strict=True)
            )
        )  # fmt: skip

    most_sampled = 0

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        """The last source of each is the fastest; what calls a library takes `library_us`."""
        self.spaces += spaces
        return tuple(
            tuple(
                space.result(
                    index, None, self.library_us if _calls_library(source) else 10.0 - index, None
                )
                for index, source in enumerate(space.sources)
            )
            for space in spaces
        )


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


def _norm() -> LoadedProblem:
    return problem_from_module(Norm(), (torch.randn(64, 8192),))


def _product() -> LoadedProblem:
    return problem_from_module(Product(), (torch.randn(128, 256),))


def _draft(problem: LoadedProblem, searcher: Searcher, strategy: str) -> Draft:
    hypothesis = Hypothesis(strategy=strategy, reason="r")
    request = DraftRequest(
        target=TARGET, goals=Goals(), plan=Plan(analysis=ANALYSIS, hypotheses=(hypothesis,)),
        hypothesis=hypothesis, retrieved=(), history=(), diagnosis=None, round=1,
    )  # fmt: skip
    return CompilerCoder(searcher).draft(problem, request)


class RefusedCodes:
    """TorchInductor's code of a module that cannot be lifted."""

    def begin(self, captured: Captured) -> None:
        """Nothing has to be begun."""

    def codes(self, captured: Captured) -> Sequence[NotLifted]:
        """The same reason for each variant."""
        return [NotLifted(reason="aten.randn_like draws random numbers")] * 2


def test_why_nothing_is_lifted_is_told_without_the_strategys_name() -> None:
    """Users read the reason by itself."""
    problem = problem_from_module(nn.Softmax(-1), [torch.randn(4, 8)])
    coder = CompilerCoder(CountingSearcher([1.0]), RefusedCodes())
    lifted = Hypothesis(strategy="lifted", reason="")
    asked = DraftRequest(
        target=TARGET, goals=Goals(), plan=Plan(analysis=ANALYSIS, hypotheses=(lifted,)),
        hypothesis=lifted, retrieved=(), history=(), diagnosis=None, round=1,
    )  # fmt: skip
    none = coder.draft(problem, asked).none
    assert none is not None
    assert (none.reason, none.uncovered) == ("aten.randn_like draws random numbers", ("lifted",))


def test_the_fastest_of_the_family_is_drafted() -> None:
    slow = 100.0, 300.0, *range(400, 1300, 100)  # longer than launches, which then do not matter
    searcher = CountingSearcher((slow[1], slow[0], 200.0, *slow[2:]))
    draft = _draft(_norm(), searcher, "fused")
    assert draft.candidate.source == searcher.seen[1]
    assert [trial.time_us for trial in draft.tried[:2]] == [200.0, 300.0]


def test_nothing_is_drafted_where_every_schedule_is_pruned() -> None:
    draft = _draft(_norm(), CountingSearcher((None,)), "fused")
    assert "spills" in draft.none.reason


def test_one_family_spans_the_forms_without_repeats() -> None:
    problem = _norm()
    found = family(partitions(problem, capture(problem), "mixed"), "fused", lambda _: None, TARGET)
    texts = [variant.source.text for variant in found]
    assert len(set(texts)) == len(texts) <= 16
    forms = {"in registers" if "in registers" in text else "walks" for text in texts}
    assert forms == {"in registers", "walks"}
    spaced = [" ".join(text.split()) for text in texts[:2]]
    assert any("BLOCK_N=4096, num_warps=16" in text for text in spaced)


class OfNothing(nn.Module):
    """Its attention reads values that are a constant, which no kernel stores for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, torch.zeros_like(x)) + x


def test_no_structure_is_offered_that_cannot_be_written() -> None:
    loaded = problem_from_module(OfNothing(), (torch.randn(2, 4, 32, 64),))
    captured = capture(loaded)
    graphs = partitions(loaded, captured, "mixed")
    with pytest.raises(UnsupportedOp, match="a value that is not stored"):
        family(graphs, "attention", lambda _: None, TARGET)
    assert "attention" not in {item.strategy for item in hypotheses(loaded, captured)}


class Table(nn.Module):
    """Reads a tensor that it never registered."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.full((64,), 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * self.table, -1)


def test_a_plain_tensor_of_a_live_module_is_named() -> None:
    draft = _draft(
        problem_from_module(Table(), (torch.randn(32, 64),)), CountingSearcher(()), "fused"
    )
    assert draft.none.reason == (
        "constructor: its attribute 'table' is a plain tensor; "
        "a drop-in can have it as a buffer alone"
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("problem", "expected"), [(_norm, ["fused"]), (_product, ["gemm", "library"])]
)
def test_hypotheses_are_structures(problem: object, expected: list[str]) -> None:
    loaded = problem()  # type: ignore[operator]
    assert [item.strategy for item in hypotheses(loaded, capture(loaded))] == expected


def test_a_later_hypothesis_tries_only_what_the_first_left_out() -> None:
    first, second = CountingSearcher((1.0,)), CountingSearcher((1.0,))
    _draft(_product(), first, "gemm")
    _draft(_product(), second, "library")
    assert not set(first.seen) & set(second.seen)
    assert all("torch.matmul" in text for text in second.seen)
    assert not any("torch.matmul" in text for text in first.seen)


def test_one_kernel_changes_at_a_time_the_heaviest_first() -> None:
    loss = nn.CrossEntropyLoss()

    class Loss(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return loss(x, y)

    inputs = (torch.randn(4096, 2048), torch.zeros(4096, dtype=torch.int64))
    problem = problem_from_module(Loss(), inputs)
    found = family(partitions(problem, capture(problem), "mixed"), "fused", lambda _: None, TARGET)
    first = found[0].source.schedule
    changed = [
        [name for name, constants in item.source.schedule.items() if constants != first[name]]
        for item in found[1:]
    ]
    assert all(len(names) <= 1 for names in changed)
    assert changed[0] == [next(iter(first))]


class TwoLayers(nn.Module):
    """Products of which the library may be faster at one or all."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 48), nn.Linear(48, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x).tanh()).sigmoid()


@pytest.mark.parametrize(("library_us", "calls"), [(100.0, False), (0.1, True)])
def test_segments_go_to_whoever_is_fastest_alone(library_us: float, calls: bool) -> None:
    problem = problem_from_module(TwoLayers().eval(), (torch.randn(40, 64),))
    searcher = CountingSearcher((1.0,), library_us=library_us)
    draft = _draft(problem, searcher, "segments")
    assert draft.candidate is not None, draft.none
    own, mixed = searcher.seen[:2]
    assert not _calls_library(own)
    assert _calls_library(mixed) == calls


class Overlap(nn.Module):
    """Eager says that height times width is the same number for both, and so does the drop-in."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.sigmoid().flatten(2) * y.flatten(2)).sum(-1)


def test_a_graph_that_has_no_form_at_free_sizes_is_drafted_for_the_declared_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = compiler_partitions._partitions

    def fixed_alone(
        problem: LoadedProblem, captured: Captured, policy: Policy, precision: Precision
    ) -> list[Compiled]:
        if captured.free_dims:
            raise UnsupportedOp("aten.flatten", "no form at free sizes")
        return original(problem, captured, policy, precision)

    problem = problem_from_module(Overlap(), (torch.randn(4, 2, 8, 6), torch.randn(4, 2, 8, 6)))
    captured = capture(problem)
    assert captured.free_dims
    free = _draft(problem, CountingSearcher((1.0,)), "fused")
    assert free.candidate is not None, free.none
    assert not free.candidate.declared_sizes
    assert "== (y_dim2*y_dim3)" in free.candidate.source

    monkeypatch.setattr(compiler_partitions, "_partitions", fixed_alone)
    again = problem_from_module(Overlap(), (torch.randn(4, 2, 8, 6), torch.randn(4, 2, 8, 6)))
    draft = _draft(again, CountingSearcher((1.0,)), "fused")
    assert draft.candidate is not None, draft.none
    assert draft.candidate.declared_sizes
    asked = JudgeSettings(seed=0, policy="mixed", seeds=1, budget_s=2.0, declared_sizes=True)
    assert judge(problem, captured, draft.candidate.source, asked).accepted


class Chain(nn.Module):
    """A kernel for each softmax: neighbours go over different axes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for axis in (0, 1, 0, 1, 0, 1):
            x = torch.softmax(x, dim=axis)
        return x


@dataclass
class FormSearcher:
    """Times the graph form by `graph_us`, every other source by 10."""

    most_sampled = 0
    graph_us: float | None
    measures: bool = True
    seen: list[str] = field(default_factory=list)

    def rank(
        self, problem: LoadedProblem, sources: Sequence[str], labels: Sequence[str],
        schedules: Sequence[dict[str, dict[str, int]]], target: Target,
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:  # fmt: skip
        """The forms of the first source stand behind the sources."""
        more = forms(0, 10.0) if forms and self.measures else ()
        texts = [*sources, *(form.text for form in more)]
        labels = [*labels, *(form.label for form in more)]
        self.seen += texts
        return tuple(
            self.timed(label, text, schedule)
            for label, text, schedule in zip(
                labels, texts, [*schedules, *([schedules[0]] * len(more))], strict=True
            )
        )

    def timed(self, label: str, text: str, schedule: dict[str, dict[str, int]]) -> TrialResult:
        time_us = self.graph_us if self.is_timed(text) else 10.0
        return TrialResult(
            label=label, sha256=label, schedule=schedule,
            time_us=time_us if self.measures else None, estimated_us=10.0,
            pruned=None if time_us is not None else "fails",
        )  # fmt: skip

    def is_timed(self, text: str) -> bool:
        return plain_form(text) is not None

    def tune(self, spaces: Sequence[Space], target: Target) -> tuple[tuple[TrialResult, ...], ...]:
        """No part takes less under one schedule than under another."""
        return tuple(
            tuple(space.result(index, None, None, 10.0) for index in range(len(space.sources)))
            for space in spaces
        )


@pytest.fixture(scope="module")
def chain() -> LoadedProblem:
    return problem_from_module(Chain(), (torch.randn(64, 64),))


@pytest.mark.parametrize(("graph_us", "taken"), [(9.0, True), (9.9, False), (None, False)])
def test_the_graph_form_is_a_rival_of_the_best_plain_one(
    chain: LoadedProblem, graph_us: float | None, taken: bool
) -> None:
    searcher = FormSearcher(graph_us=graph_us)
    draft = _draft(chain, searcher, "fused")
    assert sum(plain_form(text) is not None for text in searcher.seen) == 1
    source = draft.candidate.source
    plain = plain_form(source)
    assert (plain is not None) == taken
    assert draft.candidate.note.endswith("CUDA graph") == taken
    assert draft.candidate.searched_us == (9.0 if taken else 10.0)
    if plain is not None:
        assert parse_source(plain).body[-1].body[-1].name == "forward"
        assert not draft.tried[0].label.endswith("CUDA graph")


@dataclass
class DirectSearcher(FormSearcher):
    """Times direct launches by `graph_us`."""

    def is_timed(self, text: str) -> bool:
        return direct_form.plain_form(text) is not None


@pytest.mark.parametrize(("direct_us", "taken"), [(9.0, True), (9.9, False), (None, False)])
def test_direct_launches_are_a_rival_too(
    chain: LoadedProblem, direct_us: float | None, taken: bool
) -> None:
    draft = _draft(chain, DirectSearcher(graph_us=direct_us), "fused")
    assert (direct_form.plain_form(draft.candidate.source) is not None) == taken
    assert draft.candidate.note.endswith(DIRECT) == taken
    assert draft.tried


def test_the_graph_form_of_what_was_only_estimated_is_not_asked(chain: LoadedProblem) -> None:
    searcher = FormSearcher(graph_us=1.0, measures=False)
    draft = _draft(chain, searcher, "fused")
    assert plain_form(draft.candidate.source) is None
    assert not any(map(plain_form, searcher.seen))


def test_few_launches_have_no_graph_form() -> None:
    searcher = FormSearcher(graph_us=1.0)
    _draft(_norm(), searcher, "fused")
    assert not any(map(plain_form, searcher.seen))
