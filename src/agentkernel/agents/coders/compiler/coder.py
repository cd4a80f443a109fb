"""How does the embedded coder draft: capture, fuse, write a family of schedules, let them race?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentkernel.agents.coders.compiler.build import Compiled, compile_graph
from agentkernel.agents.coders.compiler.constructor import emit_constructor
from agentkernel.agents.coders.compiler.fusion import LibraryStep
from agentkernel.agents.coders.compiler.ir import Uncovered
from agentkernel.agents.coders.compiler.region import Region
from agentkernel.agents.coders.compiler.schedules import Decision, schedules
from agentkernel.agents.coders.compiler.wrapper import AnySchedule, Source
from agentkernel.agents.protocols import DraftRequest, Searcher
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate, TrialResult
from agentkernel.domain.plan import Hypothesis
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Policy
from agentkernel.tools.capture import Captured, capture
from agentkernel.tools.problems import LoadedProblem

MOST_VARIANTS = 16


@dataclass(frozen=True)
class Coverage:
    """Which templates cover a graph, in execution order, and which ATen calls stay with the library."""

    patterns: tuple[str, ...]
    uncovered: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """One complete drop-in of the family."""

    label: str
    source: Source


class CompilerCoder:
    """Drafts by compiling; needs no model, key or network."""

    name = "compiler"

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        """The best of a family of schedules, or the reason why no template fits."""
        try:
            compiled = _compile(problem, capture(problem), request.goals.policy)
            seen = frozenset(item.candidate.sha256 for item in request.history)
            variants = [
                item
                for item in family(compiled, request.hypothesis.strategy, request.plan.decision)
                if sha(item.source.text) not in seen
            ]
        except Uncovered as error:
            return Draft(candidate=None, none=NoTemplate(reason=str(error), uncovered=(error.op,)))
        if not variants:
            return Draft(candidate=None, none=NoTemplate(reason="every schedule has been tried"))
        results = self.searcher.rank(
            problem,
            [item.source.text for item in variants],
            [item.label for item in variants],
            [item.source.schedule for item in variants],
            request.target,
        )
        return _draft(variants, results, request)


def sha(text: str) -> str:
    """Content hash of a source, as candidates have it."""
    from agentkernel.domain.base import sha256_text

    return sha256_text(text)


def _compile(problem: LoadedProblem, captured: Captured, policy: Policy) -> Compiled:
    constructor = emit_constructor(problem)
    if isinstance(constructor, NoTemplate):
        raise Uncovered("constructor", constructor.reason)
    if constructor.foreign_imports:
        raise Uncovered("constructor", f"it imports {', '.join(constructor.foreign_imports)}")
    compiled = compile_graph(problem, captured, constructor)
    library = [step.node.op for step in compiled.partition.steps if isinstance(step, LibraryStep)]
    if policy == "triton" and library:
        raise Uncovered(library[0], "policy 'triton' allows no library call")
    if not any(isinstance(step, Region) for step in compiled.partition.steps):
        raise Uncovered(library[0] if library else "graph", "nothing to fuse around library calls")
    return compiled


def family(compiled: Compiled, strategy: str, decision: Decision) -> list[Variant]:
    """Complete drop-ins under 1 to 16 schedules, the sensible ones first.

    All regions share the position in their list of schedules: the first variant has every region's
    first choice, the second their second, and so on.
    """
    regions = [step for step in compiled.partition.steps if isinstance(step, Region)]
    options = {step: schedules(step, compiled.symbols, strategy, decision) for step in regions}
    longest = max((len(item) for item in options.values()), default=1)
    found: dict[str, Variant] = {}
    for index in range(min(longest, MOST_VARIANTS)):
        chosen: dict[object, AnySchedule] = {
            step: items[min(index, len(items) - 1)] for step, items in options.items()
        }
        source = compiled.write(chosen)
        found.setdefault(source.text, Variant(_label(source), source))
    return list(found.values())


def _label(source: Source) -> str:
    """Constants for people: `layer_norm_kernel BLOCK_N=8192 num_warps=16`."""
    return "; ".join(
        " ".join([name, *(f"{key}={value}" for key, value in constants.items())])
        for name, constants in source.schedule.items()
    )


def _draft(
    variants: Sequence[Variant], results: Sequence[TrialResult], request: DraftRequest
) -> Draft:
    pairs = sorted(zip(variants, results, strict=True), key=lambda pair: _rank(pair[1]))
    best, result = pairs[0]
    if result.pruned is not None:
        reason = f"no schedule compiles within the target's limits: {result.pruned}"
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
    )
    return Draft(candidate=candidate, tried=tuple(item for _, item in pairs[1:]))


def _rank(result: TrialResult) -> tuple[bool, float]:
    """Measured before estimated, pruned ones last; the order of the family breaks ties."""
    time = result.time_us if result.time_us is not None else result.estimated_us
    return result.pruned is not None, time if time is not None else float("inf")


def coverage(problem: LoadedProblem, captured: Captured) -> Coverage:
    """What the templates cover, and what stays with the library or stops the coder."""
    try:
        compiled = _compile(problem, captured, "mixed")
    except Uncovered as error:
        return Coverage((), (error.op,))
    return Coverage(tuple(_patterns(compiled)), tuple(_library(compiled)))


def _library(compiled: Compiled) -> Iterator[str]:
    for step in compiled.partition.steps:
        if isinstance(step, LibraryStep):
            yield step.node.op


def _patterns(compiled: Compiled) -> Iterator[str]:
    for step in compiled.partition.steps:
        if isinstance(step, Region):
            yield pattern_of(step)


def pattern_of(region: Region) -> str:
    """The template of a region: norm, softmax, reduction or pointwise."""
    ops = {node.op for node in region.nodes if node.kind == "reduce"}
    if "moments" in ops:
        return "norm"
    if "expsum" in ops:
        return "softmax"
    return "reduction" if ops else "pointwise"


def hypotheses(
    problem: LoadedProblem, captured: Captured, target: Target
) -> tuple[Hypothesis, ...]:
    """At most three strategies for this graph on this target, the likeliest first."""
    try:
        compiled = _compile(problem, captured, "mixed")
    except Uncovered:
        return ()
    reduced = [
        step for step in compiled.partition.steps if isinstance(step, Region) and step.reduces
    ]
    if not reduced:
        return (Hypothesis(strategy="default", reason="one pass over memory for each fused chain"),)
    forms = dict.fromkeys(
        item.form
        for step in reduced
        for item in schedules(step, compiled.symbols, "default", lambda _: None)
    )
    return tuple(
        Hypothesis(strategy=form, reason=REASONS[form]) for form in forms if form in REASONS
    )[:3]


REASONS = {
    "persistent": "a row fits in registers: read once, written once",
    "looped": "tiles of a row with statistics in one sweep: more programs an SM, the second read from L2",
    "split": "few long rows: several programs share each one",
}
