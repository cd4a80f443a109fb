"""Segments of the compiler's candidate by models: a model is given one segment, its file is judged
alone and timed beside the compiler's, and the whole with it is a candidate like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agentkernel.agents.compiler_coder import LIFTED, LIFTED_ALGEBRA, CompilerCoder
from agentkernel.agents.debugger import RulesDebugger
from agentkernel.agents.history import fastest, outcome
from agentkernel.agents.model_coder import ModelCoder
from agentkernel.agents.protocols import Attempt, Diagnosis, DraftRequest
from agentkernel.agents.tuning import Assembly
from agentkernel.compiler.drop_in.written_function import function_of
from agentkernel.compiler.emit import Names
from agentkernel.compiler.fusion import Step
from agentkernel.compiler.ir import UnsupportedOp
from agentkernel.compiler.isolated_step import isolated
from agentkernel.compiler.providers import AnySchedule, provider_of
from agentkernel.compiler.providers.written import WrittenStep
from agentkernel.compiler.segment_problem import CutSegment, cut_segments
from agentkernel.compiler.segments import operators_of
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate, WrittenSegment
from agentkernel.domain.errors import ProblemError, one_line
from agentkernel.domain.formatting import us
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.domain.profile import OpCost
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, restore_problem
from agentkernel.tools.roofline.model import analyse, graph_costs, is_matmul
from agentkernel.tools.search.cost import MatrixWork
from agentkernel.tools.search.space import Space

JudgeSegment = Callable[[LoadedProblem, Captured, Candidate], Verdict]
"""The judge of a segment's file, under the policy "triton"."""
IDEA = "one kernel for all of it"
"""The strategy of a question about a segment."""


class Lost(Exception):
    """Why a segment stays the compiler's."""


class _Question(NamedTuple):
    """A segment with all that is needed to ask for it and to time it."""

    cut: CutSegment
    name: str
    work_us: float
    loaded: LoadedProblem
    captured: Captured
    spaces: tuple[Space, ...]
    """The compiler's own kernels and calls for it, each alone; none where they cannot be."""


@dataclass
class SegmentCoder:
    """Asks for the most expensive segments of a candidate, equal ones once."""

    compiler: CompilerCoder
    judge: JudgeSegment
    most: int
    """Segments that are asked for."""
    repairs: int
    """Questions after a refused answer, a segment."""

    def count(self, root: Attempt) -> int:
        """So many segments of `root` are asked for, as far as is known."""
        whole = self.compiler.assemblies.get(root.candidate.strategy)
        return self.most if whole is None else min(self.most, len(_by_time(whole)))

    def draft(
        self, problem: LoadedProblem, request: DraftRequest, member: ModelCoder, root: Attempt,
        number: int,
    ) -> Draft | None:  # fmt: skip
        """The whole with what `member` writes for segment `number` of `root`, from 1 on, beside
        those of earlier turns; None where there are not so many. Raises ModelUnavailable."""
        if request.diagnosis is not None:
            return _nothing("the whole with its segment was refused")
        whole = self.compiler.assembly_of(problem, request, root.candidate.strategy)
        cuts = [] if whole is None else _by_time(whole)
        if whole is None or number > len(cuts):
            return None
        name = _name(cuts[number - 1])
        try:
            written = self._written(whole, cuts[number - 1], member, request)
        except (Lost, ProblemError) as error:
            return _nothing(f"segment {number}, {name}: {one_line(error)}")
        written = written.evolve(within=root.candidate.strategy)
        every = (*_taken(request.history, root), written)
        made = self.compiler.assembled(problem, request, _with(whole, every))
        if made.candidate is None:
            return made
        candidate = made.candidate.evolve(
            coder=member.name, parent=root.candidate.sha256, segments=every, note=written.label,
            declared_sizes=root.candidate.declared_sizes, origin="",
        )  # fmt: skip
        return made.evolve(candidate=candidate)

    def _written(
        self, whole: Assembly, cut: CutSegment, member: ModelCoder, request: DraftRequest
    ) -> WrittenSegment:
        """What the member wrote, right and no slower alone. Raises Lost."""
        question = _question(whole, cut)
        answer = self._right_file(question, member, request)
        name = f"{question.name} by {member.name}"
        matrix = _matrix_work(question.captured, whole)
        written = _space(question.loaded, answer, name, matrix, question.work_us)
        spaces = (written, *question.spaces)
        found = [trials[0] for trials in self.compiler.searcher.tune(spaces, request.target)]
        if found[0].pruned is not None:
            raise Lost(f"right, but it does not run on {request.target.name}: {found[0].pruned}")
        made = WrittenSegment(key=cut.key, name=question.name, model=member.name, source=answer)
        measured = all(trial.time_us is not None for trial in found)
        times = [trial.time_us if measured else trial.estimated_us for trial in found]
        known = [item for item in times if item is not None]
        if len(known) < len(times) or not question.spaces:
            return made  # the whole decides
        time_us, *before = known
        made = made.evolve(time_us=time_us, before_us=sum(before), measured=measured)
        if time_us >= sum(before):
            raise Lost(f"right, but no faster: {made.label}")
        return made

    def _right_file(self, question: _Question, member: ModelCoder, request: DraftRequest) -> str:
        """The first answer that the judge accepts and that can be moved. Raises Lost."""
        asking = replace(member, agent="segment", answered=(), _unused_samples=[])
        asked = _asked(question, request)
        attempts: tuple[Attempt, ...] = ()
        diagnosis: Diagnosis | None = None
        for _ in range(1 + self.repairs):
            again = asked.evolve(history=attempts, diagnosis=diagnosis)
            made = asking.draft(question.loaded, again)
            if made.candidate is None:
                raise Lost(made.none.reason if made.none else "no answer")
            verdict = self.judge(question.loaded, question.captured, made.candidate)
            if verdict.accepted:
                try:
                    function_of(made.candidate.source, Names())
                except UnsupportedOp as error:
                    raise Lost(error.reason) from None
                return made.candidate.source
            attempts += (Attempt(candidate=made.candidate, verdict=verdict),)
            diagnosis = RulesDebugger().diagnose(made.candidate, verdict, attempts)
            if diagnosis.action != "repair":
                break
        raise Lost(outcome(attempts[-1]))


def root_of(history: Sequence[Attempt]) -> Attempt | None:
    """The fastest of the compiler's candidates that were put together of segments."""
    own = [
        item
        for item in history
        if item.candidate.coder == CompilerCoder.name
        and item.candidate.strategy not in (LIFTED, LIFTED_ALGEBRA)
    ]
    return next(iter(fastest(own, 1)), None)


def _nothing(reason: str) -> Draft:
    return Draft(candidate=None, none=NoTemplate(reason=reason))


def _taken(history: Sequence[Attempt], root: Attempt) -> tuple[WrittenSegment, ...]:
    """The segments of the fastest right candidate that came of `root`; none where that is it."""
    ours = (item for item in history if item.candidate.parent == root.candidate.sha256)
    best = fastest([root, *(item for item in ours if item.candidate.segments)], 1)
    return next(iter(best), root).candidate.segments


def _by_time(whole: Assembly) -> list[CutSegment]:
    """Its segments, the most expensive first, of equal ones the first with the time of all."""
    first: dict[str, CutSegment] = {}
    total: dict[str, float] = {}
    for cut in cut_segments(whole.compiled):
        first.setdefault(cut.key, cut)
        total[cut.key] = total.get(cut.key, 0.0) + sum(_time_us(whole, x) for x in cut.steps)
    return sorted(first.values(), key=lambda cut: -total[cut.key])


def _time_us(whole: Assembly, step: Step) -> float:
    """As it was timed alone, else roughly."""
    known = whole.times.get(step)
    return provider_of(step).work_us(step, whole.compiled.symbols) if known is None else known


def _name(cut: CutSegment) -> str:
    return ", ".join(dict.fromkeys(x for step in cut.steps for x in operators_of(step)))


def _question(whole: Assembly, cut: CutSegment) -> _Question:
    loaded = restore_problem(cut.problem)
    work_us = sum(_time_us(whole, step) for step in cut.steps)
    return _Question(cut, _name(cut), work_us, loaded, capture(loaded), _alone(whole, cut))


def _alone(whole: Assembly, cut: CutSegment) -> tuple[Space, ...]:
    """The compiler's kernels and calls for a segment, each on tensors of its own; none where one
    cannot stand alone."""
    found = []
    for step in cut.steps:
        alone = isolated(whole.compiled, step)
        if alone is None:
            return ()
        try:
            source = alone.write(whole.schedules.get(step, {})).text
        except UnsupportedOp:
            return ()
        work_us = _time_us(whole, step)
        found.append(_space(alone.problem, source, alone.name, alone.matrix_work, work_us))
    return tuple(found)


def _space(
    loaded: LoadedProblem, source: str, name: str, matrix: MatrixWork | None, work_us: float
) -> Space:
    label = f"{name} alone"
    return Space(loaded, (source,), (label,), ({},), name, matrix=matrix, work_us=work_us)


def _asked(question: _Question, request: DraftRequest) -> DraftRequest:
    """The segment as a problem of its own, with what is known that bears on the module."""
    target, goals = request.target, request.goals.evolve(policy="triton")
    took = f"where it takes about {us(question.work_us)}"
    reason = f"It is a segment of a larger module, {took}: a file that takes less is taken."
    idea = Hypothesis(strategy=IDEA, reason=reason)
    analysis = analyse(question.captured, target, goals.precision)
    return request.evolve(
        goals=goals, plan=Plan(analysis=analysis, hypotheses=(idea,)), hypothesis=idea, parent=None,
        retrieved=tuple(item for item in request.retrieved if item.won is None),
        free=False, shown=(),
    )  # fmt: skip


def _matrix_work(captured: Captured, whole: Assembly) -> MatrixWork | None:
    """What a kernel for the segment multiplies on matrix units."""
    costs = [cost for cost in graph_costs(captured) if is_matmul(cost)]
    if not costs:
        return None
    first, flops = costs[0], sum(cost.flops for cost in costs)
    cost = OpCost(op=first.op, dtype=first.dtype, bytes_moved=0, flops=flops, kind=first.kind)
    return MatrixWork(cost, "tf32" if first.kind == "convolution" else whole.compiled.precision)


def _with(whole: Assembly, segments: Sequence[WrittenSegment]) -> Assembly:
    """The same with functions of models in the places of all steps of their segments."""
    by_key = {item.key: item for item in segments}
    others: dict[object, Sequence[Step]] = {}
    for cut in cut_segments(whole.compiled):
        found = by_key.get(cut.key)
        if found is not None:
            work_us = sum(_time_us(whole, step) for step in cut.steps)
            step = WrittenStep(
                found.source, found.model, cut.reads, cut.stores, cut.turned, work_us
            )
            others |= dict.fromkeys(cut.steps, ())
            others[cut.steps[0]] = (step,)  # type: ignore[assignment]
    compiled = whole.compiled.replacing(others)
    chosen: dict[object, AnySchedule] = {
        step: whole.schedules.get(step, {}) for step in compiled.partition.steps
    }
    return replace(whole, compiled=compiled, schedules=chosen)
