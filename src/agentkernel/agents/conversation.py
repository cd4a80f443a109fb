"""What is a coder that asks a model told: the task, and after a refusal the file and the proof?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from agentkernel.agents.debugger import RulesDebugger
from agentkernel.agents.evidence import evidence_of
from agentkernel.agents.experience import starting_experience
from agentkernel.agents.history import best_so_far, tried
from agentkernel.agents.prompts import render
from agentkernel.agents.protocols import Attempt, DraftRequest
from agentkernel.agents.reviewer import Review
from agentkernel.agents.shown import FileContext, choose_files
from agentkernel.agents.speed import speed_evidence
from agentkernel.agents.taught import faster_turn, file_turn, repair_turn, write_turn
from agentkernel.compiler.graph_listing import graph_listing
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.exchange import Message
from agentkernel.domain.plan import Retrieved
from agentkernel.domain.rules import Policy
from agentkernel.domain.settings import TurnOptions
from agentkernel.knowledge.documents import family_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.problems import LoadedProblem

PromptName = Literal["coder", "one_shot", "translate", "taught"]
"""Files that ask for a first draft: the whole task, or what a tuned model was taught to expect."""
ONGOING: tuple[PromptName, ...] = ("coder", "taught")
"""Those that show the candidate to go on from."""
MOST_EARLIER = 24_000
"""Characters of refused files that stand in a conversation beside the one to mend: about a quarter
of a window of 32,000 tokens."""


def coder_messages(
    problem: LoadedProblem,
    request: DraftRequest,
    prompt: PromptName = "coder",
    review: Review | None = None,
    shown: FileContext | None = None,
) -> tuple[Message, ...]:
    """The task with the candidate to go on from and its `review`; then, where there is one to mend,
    that file as the model's own turn and what the judge found in it. `shown` None: chosen by the
    defaults."""
    if shown is None:
        shown = choose_files(request, TurnOptions(), one=prompt == "taught")
    if prompt == "taught":
        return _fine_tuned_messages(problem, request, shown)
    refused, best = shown.refused, shown.right
    profile = best.profile if best else None
    example = example_of(problem, request, shown)
    others = tuple(item for item in request.retrieved if item is not example)
    speed = speed_evidence(profile, request.plan.analysis, request.target) if profile else None
    task = render(
        prompt,
        problem=problem.problem,
        target=request.target,
        goals=request.goals,
        plan=request.plan,
        hypothesis=request.hypothesis,
        retrieved=others,
        example=example,
        best=best.candidate if best else None,
        speed=speed,
        review=review,
        runner_up=best is not None and best != best_so_far(request.history),
        history=tried(request.history),
    )
    messages = [Message(role="user", text=task)]
    if refused is not None:
        last = Message(role="user", text=_refusal(refused, request))
        messages += [*_earlier(shown), file_turn(refused.candidate.source), last]
    return tuple(messages)


def _fine_tuned_messages(
    problem: LoadedProblem, request: DraftRequest, shown: FileContext
) -> tuple[Message, ...]:
    """The turns that a model of `agentkernel train` knows: write, mend, make faster."""
    task = task_turn(problem, request.target.title, request.goals.policy)
    refused, best = shown.refused, shown.right
    if refused is not None and refused.verdict is not None:
        turn = repair_turn(refused.candidate, refused.verdict)
        return (task, file_turn(refused.candidate.source), turn)
    if best is not None and best.profile is not None:
        facts = speed_evidence(best.profile, request.plan.analysis, request.target).facts
        return (task, file_turn(best.candidate.source), faster_turn(facts))
    return (task,)


def task_turn(loaded: LoadedProblem, target: str, policy: Policy) -> Message:
    """The task as a taught model is told it, for the GPU of that title; without the graph where the
    module cannot be captured."""
    problem = loaded.problem
    shapes = problem.shape_sets[0].label if problem.shape_sets else ""
    try:
        graph = graph_listing(capture(loaded))
    except ProblemError:
        graph = ""
    return write_turn(problem.source, problem.class_name, target, policy, shapes, graph)


def example_of(
    problem: LoadedProblem, request: DraftRequest, shown: FileContext
) -> Retrieved | None:
    """The kernel of an earlier run of the like, where no candidate of this one is to be shown."""
    if request.free or shown.right is not None:
        return None
    return starting_experience(request.retrieved, family_of(request.target.arch), problem.problem)


def _refusal(refused: Attempt, request: DraftRequest) -> str:
    """What the judge found in the file to mend, and what to do about it: the diagnosis asked for,
    where it is about this file."""
    if refused.verdict is None:
        return ""
    diagnosis = request.diagnosis
    if diagnosis is None or refused is not request.history[-1]:
        diagnosis = RulesDebugger().diagnose(refused.candidate, refused.verdict, ())
    return render(
        "debugger",
        candidate=refused.candidate,
        verdict=refused.verdict,
        evidence=evidence_of(refused.candidate, refused.verdict),
        diagnosis=diagnosis,
    )


def _earlier(shown: FileContext) -> Iterator[Message]:
    """The refused files before the one to mend with what was found in each, the best nearest to
    it, as many as fit."""
    turns: list[tuple[Message, Message]] = []
    room = MOST_EARLIER
    for item in shown.before:
        if item.verdict is None:
            continue
        turn = file_turn(item.candidate.source), repair_turn(item.candidate, item.verdict)
        room -= sum(len(message.text) for message in turn)
        if room < 0:
            break
        turns.append(turn)
    for turn in reversed(turns):
        yield from turn
