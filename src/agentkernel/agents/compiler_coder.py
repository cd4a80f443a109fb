"""Coder that drafts with the embedded compiler: capture, fuse, emit a family of schedules, rank.

It needs no model, key or network. Where an earlier run won with a schedule, the family is
narrowed to that schedule's neighbours and the first default guesses.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch

from agentkernel.agents.history import schedules_apart, winner_for
from agentkernel.agents.protocols import DraftRequest, Searcher
from agentkernel.agents.tuning import Assembly, Tuner, assemblies, remembered, with_stand_ins
from agentkernel.compiler.drop_in.constructor import emit_constructor
from agentkernel.compiler.drop_in.envelope import adopt_limits
from agentkernel.compiler.drop_in.launch import (
    DIRECT,
    GRAPH,
    WORTH,
    direct_form,
    form_label,
    graph_form,
    launches_in_a_loop,
    plain_label,
)
from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.emit import Schedule
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.lift.drop_in import (
    LiftedDraft,
    configurations,
    lifted_drafts,
    time_rank,
    with_runner_up,
)
from agentkernel.compiler.lift.inductor_code import InductorCode, NotLifted
from agentkernel.compiler.partitions import allowed, partitions, structure
from agentkernel.compiler.pipeline import (
    Compiled,
    single_changes,
)
from agentkernel.compiler.providers import AnySchedule, Decision, Setting, provider_of
from agentkernel.compiler.rewrite import DEAD, Rewritten, rewrite
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import NO_SCHEDULE, Candidate, Draft, NoTemplate, TrialResult
from agentkernel.domain.errors import TimeIsUp
from agentkernel.domain.plan import Hypothesis, Won
from agentkernel.domain.target import Target
from agentkernel.runtime.stages import at
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.sandbox.session import require_time
from agentkernel.tools.search.space import Form, Forms
from agentkernel.tools.search.store import ScheduleStore

NEIGHBOURS = 2
"""Schedules tried beside the one nearest to the winner: other sizes may move the best a step."""
GUESSES = 2
"""Of the order without any experience, the first so many stay in: what was learned may mislead."""


class ScheduledDraft(Protocol):
    """A drop-in of the family."""

    @property
    def source(self) -> DropInSource: ...

    @property
    def forms(self) -> tuple[str, ...]: ...


Some = TypeVar("Some", bound=ScheduledDraft)


def narrow_by_experience(family: Sequence[Some], won: Won) -> list[Some]:
    """The nearest schedule to the one that won, its next neighbours, then the best guesses.

    `family` is best guess first; of equally near ones the better guess is taken.
    """
    places = range(len(family))
    near = sorted(places, key=lambda place: (_apart(family[place], won), place))
    chosen = dict.fromkeys((*near[: 1 + NEIGHBOURS], *places[:GUESSES]))
    return [family[place] for place in chosen]


def _apart(item: ScheduledDraft, won: Won) -> float:
    return schedules_apart(item.source.schedule, won.schedule, item.forms, won.forms)


MOST_VARIANTS = 16
ALGEBRA = "algebra"
"""The strategy that starts from the rewritten graph."""
LIFTED, LIFTED_ALGEBRA = "lifted", "lifted algebra"
"""The strategies that lift TorchInductor's code, for the graph as written or rewritten."""
REWRITING = (ALGEBRA, LIFTED_ALGEBRA)


@dataclass(frozen=True)
class Variant:
    """One complete drop-in of the family."""

    label: str
    source: DropInSource
    forms: tuple[str, ...] = ()
    """How its kernels walk their rows."""
    plain: int | None = None
    """Of a launch form, the place of the variant with the same kernels."""
    assembly: Assembly | None = None
    """How it was put together, where it is of templates."""


class Raced(NamedTuple):
    """A variant with what the search found."""

    variant: Variant
    result: TrialResult


class InductorCodes(Protocol):
    """Whoever writes code for graphs as TorchInductor does, one answer a variant."""

    def begin(self, captured: Captured) -> None: ...

    def codes(self, captured: Captured) -> Sequence[InductorCode | NotLifted]: ...


class CompilerCoder:
    """Drafts by compiling; needs no model, key or network."""

    name = "compiler"

    def __init__(
        self,
        searcher: Searcher,
        writer: InductorCodes | None = None,
        store: ScheduleStore | None = None,
    ) -> None:
        """`writer` asks TorchInductor; without one nothing is lifted. `store` keeps what steps
        took beyond the run."""
        self.searcher = searcher
        self.writer = writer
        self._tuner = Tuner(searcher, store)
        self._traced: tuple[LoadedProblem, Captured] | None = None
        self.assemblies: dict[str, Assembly] = {}
        """Strategy -> how its last draft was put together."""

    def adopt(self, problem: LoadedProblem, captured: Captured) -> None:
        """Draft from this graph of `problem`: a writer knows by the graph itself what it was asked
        about, and answers a second graph of the same problem all over again."""
        self._traced = (problem, captured)

    def _captured(self, problem: LoadedProblem) -> Captured:
        """The graph of `problem`, traced once for all its drafts."""
        if self._traced is None or self._traced[0] is not problem:
            self.adopt(problem, capture(problem))
        assert self._traced is not None
        return self._traced[1]

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        """The best of a family of schedules, or the reason why no template fits."""
        try:
            goals = request.goals
            strategy, decision = request.hypothesis.strategy, request.plan.decision
            at(strategy)
            captured = self._captured(problem)
            rewriting = strategy in REWRITING
            graph = simplified(problem, captured).captured if rewriting else captured
            _require_no_plain_tensor(problem, graph)
            if strategy in (LIFTED, LIFTED_ALGEBRA):
                return self._lift(problem, graph, request)
            choices = partitions(problem, graph, goals.policy, goals.precision)
            seen = _seen(request)
            won = winner_for(request.hypothesis, request.retrieved)
            trials: list[TrialResult] = []
            if won is None:
                some, trials = self._tuned(choices, request)
            else:
                every = family(choices, strategy, decision, request.target)
                some = [*_winners(choices, won, request), *narrow_by_experience(every, won)]
                some = list({item.source.text: item for item in some}.values())
            fresh = [item for item in some if source_sha256(item.source.text) not in seen]
        except UnsupportedOp as error:
            return Draft(candidate=None, none=NoTemplate(reason=str(error), uncovered=(error.op,)))
        if not fresh:
            return Draft(candidate=None, none=NoTemplate(reason="every schedule has been tried"))
        made = self._drafted(problem, graph, fresh, request)
        return made.evolve(tried=(*made.tried, *trials))

    def _drafted(
        self,
        problem: LoadedProblem,
        graph: Captured,
        variants: Sequence[Variant],
        request: DraftRequest,
    ) -> Draft:
        """The fastest of templates' drop-ins; how it was put together is remembered."""
        raced = self._raced(problem, graph, variants, request)
        made, best = _draft(raced, request), raced[0].variant.assembly
        if best is None:
            return made
        self.assemblies[request.hypothesis.strategy] = best
        fixed = graph.free_dims and not best.compiled.captured.free_dims
        return _for_declared_sizes(made) if fixed else made

    def assembly_of(
        self, problem: LoadedProblem, request: DraftRequest, strategy: str
    ) -> Assembly | None:
        """How the last draft of `strategy` was put together, drafted anew in a run that goes on;
        None where it is not of templates."""
        if strategy not in self.assemblies:
            hypothesis = Hypothesis(strategy=strategy, reason="")
            self.draft(problem, request.evolve(hypothesis=hypothesis, history=()))
        return self.assemblies.get(strategy)

    def assembled(self, problem: LoadedProblem, request: DraftRequest, whole: Assembly) -> Draft:
        """The drop-in of `whole`, in its fastest launch form."""
        try:
            variants = _written([whole])
        except UnsupportedOp as error:
            return Draft(candidate=None, none=NoTemplate(reason=str(error)))
        return self._drafted(problem, whole.compiled.captured, variants, request)

    def _tuned(
        self, choices: Sequence[Compiled], request: DraftRequest
    ) -> tuple[list[Variant], list[TrialResult]]:
        """Whole drop-ins of steps that were each timed alone, and the trials of these."""
        strategy, policy = request.hypothesis.strategy, request.goals.policy
        decision, target = request.plan.decision, request.target
        wanted = _fitting(_of_structure(choices, strategy), decision, target)
        rivalries = [with_stand_ins(item, libraries=policy != "triton") for item in wanted]
        symbols, precision = wanted[0].symbols, wanted[0].precision
        tuning = self._tuner.tune(rivalries, Setting(symbols, target, precision, decision))
        found = [
            item
            for rivalry in rivalries
            for item in assemblies(rivalry, tuning)
            if allowed(item.compiled, policy) and _keeps_structure(item.compiled, strategy)
        ]
        return _written(found), tuning.trials

    def _lift(self, problem: LoadedProblem, graph: Captured, request: DraftRequest) -> Draft:
        """The fastest of TorchInductor's variants, lifted."""
        strategy = request.hypothesis.strategy
        if self.writer is None:
            raise UnsupportedOp(strategy, "there is nobody to ask TorchInductor")
        drafts = lifted_drafts(problem, graph, self.writer.codes(graph), request.goals.policy)
        if isinstance(drafts, NotLifted):
            # Users read the reason by itself, and there the strategy's name says nothing.
            none = NoTemplate(reason=drafts.reason, uncovered=(strategy,))
            return Draft(candidate=None, none=none)
        seen = _seen(request)
        fresh = [item for item in drafts if source_sha256(item.source.text) not in seen]
        won = winner_for(request.hypothesis, request.retrieved)
        known_best = plain_label(won.label) if won is not None else ""
        if won is not None:
            fresh = with_runner_up(fresh, known_best)
        if not fresh:
            return Draft(candidate=None, none=NoTemplate(reason="every variant has been tried"))
        made = _draft(self._tuned_lift(problem, graph, fresh, request, known_best), request)
        return _for_declared_sizes(made) if graph.free_dims else made

    def _tuned_lift(
        self,
        problem: LoadedProblem,
        graph: Captured,
        drafts: Sequence[LiftedDraft],
        request: DraftRequest,
        known_best: str,
    ) -> list[Raced]:
        """Every variant, then the winner's launch configurations and forms beside it."""
        results = self._rank(problem, drafts, request)
        pairs = sorted(zip(drafts, results, strict=True), key=lambda pair: time_rank(pair[1]))
        first = [Raced(_plain(draft), result) for draft, result in pairs]
        if first[0].result.pruned is not None:
            return first
        winner = pairs[0][0]
        known = {source_sha256(draft.source.text) for draft in drafts} | _seen(request)
        again = [winner, *configurations(winner, problem, graph, known, known_best)]
        time_us = first[0].result.time_us
        if len(again) == 1 and (
            time_us is None or not _forms_of(first[0].variant, graph, time_us, _seen(request))
        ):
            return first  # nobody to race against
        try:
            return [*self._raced(problem, graph, list(map(_plain, again)), request), *first[1:]]
        except TimeIsUp:
            return first

    def _raced(
        self,
        problem: LoadedProblem,
        graph: Captured,
        variants: Sequence[Variant],
        request: DraftRequest,
    ) -> list[Raced]:
        """They and the launch forms of the fastest, with its launches and on the device, the best
        first; of those that launch in a loop the graph form races from the start. A form stands
        behind the plain one that it is hardly faster than."""
        seen = _seen(request)
        made = list(variants)
        for place, item in enumerate(variants):
            if launches_in_a_loop(item.source):
                made += _forms_of(item, graph, 0.0, seen, place)
        first = list(made)

        def forms(place: int, time_us: float) -> list[Form]:
            plain = first[place].plain
            place = place if plain is None else plain
            known = seen | {source_sha256(item.source.text) for item in made}
            new = _forms_of(first[place], graph, time_us, known, place)
            made.extend(new)
            return [Form(item.label, item.source.text) for item in new]

        results = self._rank(problem, first, request, forms)
        raced = [Raced(item, result) for item, result in zip(made, results, strict=True)]

        def merit(item: Raced) -> tuple[bool, float, bool]:
            pruned, time_us = time_rank(item.result)
            plain = item.variant.plain
            if plain is not None and time_us >= WORTH * time_rank(results[plain])[1]:
                return pruned, math.inf, True
            return pruned, time_us, plain is not None

        return sorted(raced, key=merit)

    def _rank(
        self,
        problem: LoadedProblem,
        variants: Sequence[Variant] | Sequence[LiftedDraft],
        request: DraftRequest,
        forms: Forms | None = None,
    ) -> tuple[TrialResult, ...]:
        return self.searcher.rank(
            problem,
            [item.source.text for item in variants],
            [item.label for item in variants],
            [item.source.schedule for item in variants],
            request.target,
            forms,
        )


def _plain(draft: LiftedDraft) -> Variant:
    return Variant(draft.label, draft.source)


def _forms_of(
    best: Variant, graph: Captured, time_us: float, seen: Collection[str], place: int = 0
) -> list[Variant]:
    """The launch forms of the variant at `place`, which takes `time_us`."""
    return [
        Variant(form_label(best.label, form), source, best.forms, place, best.assembly)
        for form, source in (
            (DIRECT, direct_form(best.source, time_us)),
            (GRAPH, graph_form(best.source, graph)),
        )
        if source is not None and source_sha256(source.text) not in seen
    ]


def _seen(request: DraftRequest) -> set[str]:
    """Hashes of the candidates there were."""
    return {item.candidate.sha256 for item in request.history}


def _for_declared_sizes(made: Draft) -> Draft:
    if made.candidate is None:
        return made
    return made.evolve(candidate=made.candidate.evolve(declared_sizes=True))


def source_sha256(text: str) -> str:
    """Content hash of a source, as candidates have it."""
    return sha256_text(text)


def _require_no_plain_tensor(problem: LoadedProblem, captured: Captured) -> None:
    """Raise UnsupportedOp for a tensor that forward reads and that the constructor of a live
    module's drop-in cannot make."""
    if problem.live is None or not captured.constants:
        return
    constructor = emit_constructor(problem)
    known = {} if isinstance(constructor, NoTemplate) else constructor.expressions
    for node in captured.graph.graph.find_nodes(op="placeholder"):
        path = captured.constants.get(node.name)
        if path is None or path.startswith("lifted_tensor"):
            continue
        if path not in known and node.users:
            reason = f"its attribute {path!r} is a plain tensor; a drop-in can have it as a buffer"
            raise UnsupportedOp("constructor", f"{reason} alone")


_REWRITTEN: WeakKeyDictionary[torch.fx.GraphModule, Rewritten] = WeakKeyDictionary()


def simplified(problem: LoadedProblem, captured: Captured) -> Rewritten:
    """The graph after the exact rewrites. Raises UnsupportedOp where there are none."""
    if captured.graph not in _REWRITTEN:
        _REWRITTEN[captured.graph] = rewrite(captured)
    found = _REWRITTEN[captured.graph]
    if not _changes_graph(found):
        raise UnsupportedOp(ALGEBRA, "no exact rewrite makes this graph cheaper")
    adopt_limits(problem, captured, found.captured)
    return found


def rewritten_graph_of(
    problem: LoadedProblem, captured: Captured, candidate: Candidate
) -> Captured | None:
    """The rewritten graph, for a candidate that was written from it."""
    own = candidate.strategy if candidate.coder == CompilerCoder.name else ""
    strategy = candidate.segments[0].within if candidate.segments else own
    if strategy not in REWRITING:
        return None
    return simplified(problem, captured).captured


def _changes_graph(found: Rewritten) -> bool:
    """Nodes that nothing reads are left out of every drop-in anyway."""
    return any(step.rule != DEAD for step in found.steps)


def family(
    choices: Sequence[Compiled], strategy: str, decision: Decision, target: Target
) -> list[Variant]:
    """Complete drop-ins under 1 to 16 schedules, best guess first, no text twice.

    A strategy that REASONS names takes the partitions of that structure; any other takes all.
    """
    wanted = _of_structure(choices, strategy)
    found: dict[str, Variant] = {}
    without: list[UnsupportedOp] = []
    for compiled in wanted:
        try:
            for variant in variants(compiled, decision, target, MOST_VARIANTS // len(wanted)):
                found.setdefault(variant.source.text, variant)
        except UnsupportedOp as error:
            without.append(error)
    if without and not found:
        raise without[0]
    return list(found.values())


def _winners(choices: Sequence[Compiled], won: Won, request: DraftRequest) -> list[Variant]:
    """The partitions under the schedule that won before, also where it is none of the guesses."""
    found: list[Variant] = []
    for item in _of_structure(choices, request.hypothesis.strategy):
        setting = Setting(item.symbols, request.target, item.precision, request.plan.decision)
        whole = remembered(item, won, setting)
        found += [] if whole is None else _written([whole])
    return found


def _of_structure(choices: Sequence[Compiled], strategy: str) -> list[Compiled]:
    wanted = [item for item in choices if strategy not in REASONS or strategy == structure(item)]
    if not wanted:
        raise UnsupportedOp(strategy, "this policy leaves no such structure")
    return wanted


def _keeps_structure(compiled: Compiled, strategy: str) -> bool:
    """False where library calls have taken the place of all that the strategy stands for; SDPA is
    fused attention as well."""
    return strategy not in REASONS or strategy in ("attention", structure(compiled))


def _fitting(choices: Sequence[Compiled], decision: Decision, target: Target) -> list[Compiled]:
    """The partitions whose steps all have schedules. Raises UnsupportedOp where there is none."""
    found: list[Compiled] = []
    without: list[UnsupportedOp] = []
    for item in choices:
        try:
            _options(item, decision, target)
            found.append(item)
        except UnsupportedOp as error:
            without.append(error)
    if not found:
        raise without[0]
    return found


def _written(assemblies: Iterable[Assembly]) -> list[Variant]:
    """Their drop-ins, no text twice. Raises UnsupportedOp where none can be written."""
    found: dict[str, Variant] = {}
    without: list[UnsupportedOp] = []
    for item in assemblies:
        require_time()
        try:
            variant = _variant(item)
        except UnsupportedOp as error:
            without.append(error)
        else:
            found.setdefault(variant.source.text, variant)
    if without and not found:
        raise without[0]
    return list(found.values())


def variants(
    compiled: Compiled, decision: Decision, target: Target, most: int
) -> Iterator[Variant]:
    """At most `most` drop-ins of one partition, best guess first. Raises UnsupportedOp where a
    step has no form."""
    options = _options(compiled, decision, target)
    first = {step: items[0] for step, items in options.items()}
    counts = {step: len(items) for step, items in options.items()}
    for changes in single_changes(counts, compiled.symbols, most):
        chosen = first | {step: options[step][index] for step, index in changes.items()}
        require_time()
        yield _variant(Assembly(compiled, chosen))


def _variant(whole: Assembly) -> Variant:
    source = whole.compiled.write(whole.schedules)
    return Variant(_label(source), source, _forms(whole.schedules.values()), assembly=whole)


def _options(
    compiled: Compiled, decision: Decision, target: Target
) -> dict[object, Sequence[AnySchedule]]:
    """Schedules of every step. Raises UnsupportedOp where a step has none."""
    setting = Setting(compiled.symbols, target, compiled.precision, decision)
    found: dict[object, Sequence[AnySchedule]] = {
        step: provider_of(step).schedules(step, setting) for step in compiled.partition.steps
    }
    for step, items in found.items():
        if not items:
            what = provider_of(step).pattern(step)
            raise UnsupportedOp(
                what, f"no tile of its sizes fits the shared memory of {target.name}"
            )
    return found


def _forms(chosen: Iterable[AnySchedule]) -> tuple[str, ...]:
    return tuple(item.form if isinstance(item, Schedule) else "" for item in chosen)


def _label(source: DropInSource) -> str:
    """Constants for people: `layer_norm_kernel BLOCK_N=8192 num_warps=16`."""
    return "; ".join(
        " ".join([name, *(f"{key}={value}" for key, value in constants.items())])
        for name, constants in source.schedule.items()
    )


def _draft(raced: Sequence[Raced], request: DraftRequest) -> Draft:
    """The first of them."""
    results = [item.result for item in raced]
    best, result = raced[0]
    if result.pruned is not None:
        reason = f"{NO_SCHEDULE}{result.pruned}"
        return Draft(candidate=None, none=NoTemplate(reason=reason), tried=tuple(results))
    candidate = Candidate(
        source=best.source.text,
        coder=CompilerCoder.name,
        round=request.round,
        parent=request.history[-1].candidate.id if request.history else None,
        strategy=request.hypothesis.strategy,
        note=best.label,
        schedule=best.source.schedule,
        kernels=best.source.kernels,
        searched_us=result.time_us,
        forms=best.forms,
        origin=request.hypothesis.because,
    )
    return Draft(candidate=candidate, tried=tuple(results[1:]))


REASONS = {
    "attention": "scores and weights stay in registers: online softmax between the two products",
    "convolution": "windows read in place of a stored copy of them, the epilogue in registers",
    "fused": "one pass over memory for each fused chain: rows in registers, looped or split",
    "gemm": "the product's epilogue in registers: its result is written once",
    "recurrence": "one launch a step for all layers, whose gates stay in registers",
    "library": "the library's product, with everything around it in one kernel",
    LIFTED: "TorchInductor's code under settings that few try, the fastest lifted into a file",
}
"""Strategy -> why it may be faster."""
