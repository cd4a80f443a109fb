"""Experience of a finished run, as an entry of the knowledge base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentkernel.agents.history import matches_baselines, measured_us, outcome, shapes_of
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import AgentKernelError, one_line
from agentkernel.domain.knowledge import Entry, Gain, Structure, Verified
from agentkernel.domain.plan import WON, Won
from agentkernel.domain.problem import Problem
from agentkernel.knowledge.search import structure_words
from agentkernel.workflows import events
from agentkernel.workflows.deps import Context
from agentkernel.workflows.outcome import Result, best_attempt
from agentkernel.workflows.state import LoopState

NOT_STATED = "not stated"
"""The licence: a module of the user's, and what was made of it."""
LINE_MOST = 200
ID_DIGITS = 16


class RunOrigin(NamedTuple):
    """On what a run worked, and when it ended (ISO 8601, UTC)."""

    family: str
    structure: Structure
    triton: str
    run: str
    ended: str


def keep_experience(context: Context, state: LoopState, result: Result, ended: str) -> None:
    """Write what the run learned, where it is to be kept; what cannot be written is one line and
    never fails the run."""
    memory = context.tools.memory
    best = worth_keeping(state, result)
    if memory is None or best is None:
        return
    versions = context.store.manifest.versions
    where = RunOrigin(memory.family, memory.structure(), versions.triton, result.run, ended)
    searched = sum(1 + len(item.tried) for item in context.store.records.drafts())
    try:
        entry = experience_of(context.problem.problem, state, best, where, searched)
        stands = memory.keep(entry)
    except (AgentKernelError, OSError) as error:
        context.emit(events.Noted(text=f"experience is not kept: {one_line(error, LINE_MOST)}"))
        return
    kept = "kept" if stands == entry.id else f"kept, {stands} stays the better one"
    context.emit(events.Noted(text=f"experience {kept}: {entry.id}"))


def worth_keeping(state: LoopState, result: Result) -> Attempt | None:
    """The attempt whose candidate is the answer; where a baseline is, the best one, if it was
    measured to be level with that: a module of the like may need just it. Else None."""
    if result.candidate_sha256 is None:
        best = best_attempt(state.history, state.goals)
        return best if best is not None and matches_baselines(best.profile) else None
    answers = (item for item in state.history if item.candidate.sha256 == result.candidate_sha256)
    return next(answers, None)


def experience_of(
    problem: Problem, state: LoopState, best: Attempt, where: RunOrigin, searched: int
) -> Entry:
    """The accepted candidate with its problem, measurement and what failed on the way.

    Its gain is None where nothing was measured: such an entry gives way to the next run of the
    same problem, whatever that finds.
    """
    candidate, gain = best.candidate, gain_of(best)
    primary = best.profile.measurements[0] if best.profile and best.profile.measurements else None
    won = Won(
        strategy=candidate.strategy,
        coder=candidate.coder,
        label=candidate.note,
        schedule=candidate.schedule,
        family=where.family,
        shapes=shapes_of(problem),
        measured=gain is not None,
        lost=lost_to(best, state.history),
        forms=candidate.forms,
        roofline=primary.roofline_fraction if primary else None,
        tried=searched,
    )
    title = f"{problem.name}: {candidate.strategy} by {candidate.coder} for {where.family}"
    summary = f"{candidate.note}; {_speed(best, gain)}"
    return Entry(
        id=f"experience/{_name(problem, best, where, gain)}",
        kind="experience",
        title=title,
        summary=summary,
        problem=problem_text(problem),
        answer=candidate.source,
        passages=(f"{title}. {summary}", structure_words(where.structure)),
        source=f"run {where.run}",
        licence=NOT_STATED,
        verified=verified_by(best),
        structure=where.structure,
        architectures=(where.family,),
        triton=where.triton,
        hints={WON: won.model_dump_json()},
        gain=gain,
        failures=failures_of(state, best),
        created=where.ended,
    )


def problem_text(problem: Problem) -> str:
    """The module's source with the shapes that it was asked for: they need not stand in it."""
    shapes = "; ".join(item.label for item in problem.shape_sets)
    return f"{problem.source.rstrip()}\n\n# inputs: {shapes}\n"


def gain_of(best: Attempt) -> Gain | None:
    """What was measured on the primary shapes; None where nothing was."""
    if best.profile is None or not best.profile.measurements:
        return None
    primary = best.profile.measurements[0]
    return Gain(
        gpu=primary.gpu.name,
        time_us=primary.candidate.median_us,
        vs_eager=primary.vs_eager.value,
        vs_compile=primary.vs_compile.value if primary.vs_compile else None,
    )


def verified_by(best: Attempt) -> Verified:
    """Where the judge saw it to be right."""
    if best.verdict is None or not best.verdict.accepted:
        return "no"
    return "interpreter" if best.verdict.interpreted else "gpu"


def lost_to(best: Attempt, history: Sequence[Attempt]) -> dict[str, float]:
    """Strategy -> its least measured time over the winner's, for the others that have a time: of a
    profile, or of the search where one was set aside by that."""
    ratios: dict[str, float] = {}
    for item in history:
        ratio = _ratio(item, best)
        strategy = item.candidate.strategy
        if ratio is not None and strategy != best.candidate.strategy:
            ratios[strategy] = round(min(ratio, ratios.get(strategy, ratio)), 3)
    return ratios


def _ratio(item: Attempt, best: Attempt) -> float | None:
    ours, theirs = measured_us(best), measured_us(item)
    if ours is None or theirs is None:
        ours, theirs = best.candidate.searched_us, item.candidate.searched_us
    return theirs / ours if ours and theirs else None


def failures_of(state: LoopState, best: Attempt) -> tuple[str, ...]:
    """A line for each candidate that was refused, set aside or slower, and for each strategy that
    gave none."""
    lines = [
        f"{item.candidate.strategy}: {outcome(item)}"
        for item in state.history
        if item.candidate.sha256 != best.candidate.sha256
    ]
    lines += [f"{strategy}: nothing to draft" for strategy in state.barren]
    return tuple(one_line(line, LINE_MOST) for line in lines)


def _name(problem: Problem, best: Attempt, where: RunOrigin, gain: Gain | None) -> str:
    """Measured ones compete by their time; of the others a problem has one a family."""
    parts = [problem.sha256, where.family, where.triton]
    if gain is not None:
        parts += [gain.gpu, best.candidate.sha256]
    return sha256_text("\0".join(parts))[:ID_DIGITS]


def _speed(best: Attempt, gain: Gain | None) -> str:
    if gain is None:
        time_us = best.profile.estimate.time_us if best.profile else None
        return "not measured" if time_us is None else f"{time_us:.1f} us estimated"
    compiled = f", {gain.vs_compile:.2f}x torch.compile" if gain.vs_compile else ""
    return f"{gain.time_us:.1f} us on {gain.gpu}, {gain.vs_eager:.2f}x eager{compiled}"
