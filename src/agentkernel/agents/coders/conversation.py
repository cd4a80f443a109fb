"""What is a coder that asks a model told: the task, and after a refusal the file and the proof?"""

from __future__ import annotations

from typing import Literal

from agentkernel.agents.coders.taught import faster_turn, file_turn, repair_turn, write_turn
from agentkernel.agents.evidence import evidence_of
from agentkernel.agents.experience import start_of
from agentkernel.agents.history import best_so_far, tried
from agentkernel.agents.prompts import fenced, render
from agentkernel.agents.protocols import Attempt, DraftRequest
from agentkernel.agents.reviewer import Review
from agentkernel.agents.speed import speed_evidence
from agentkernel.domain.exchange import Message
from agentkernel.domain.plan import Retrieved
from agentkernel.knowledge.documents import family_of
from agentkernel.tools.problems import LoadedProblem

PromptName = Literal["coder", "one_shot", "translate", "taught"]
"""Files that ask for a first draft: the whole task, or what a tuned model was taught to expect."""
ONGOING: tuple[PromptName, ...] = ("coder", "taught")
"""Those that show the candidate to go on from."""


def coder_messages(
    problem: LoadedProblem,
    request: DraftRequest,
    prompt: PromptName = "coder",
    review: Review | None = None,
) -> tuple[Message, ...]:
    """The task with the candidate to go on from and its `review`; then, where there is one to mend,
    that file as the model's own turn and what the judge found in it."""
    if prompt == "taught":
        return _taught_messages(problem, request)
    refused = last_refused(request)
    best = start(request)
    profile = best.profile if best else None
    example = example_of(problem, request)
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
    if refused is not None and refused.verdict is not None:
        text = render(
            "debugger",
            candidate=refused.candidate,
            verdict=refused.verdict,
            evidence=evidence_of(refused.candidate, refused.verdict),
            diagnosis=request.diagnosis,
        )
        own = fenced(refused.candidate.source, "python")
        messages += [Message(role="assistant", text=own), Message(role="user", text=text)]
    return tuple(messages)


def _taught_messages(problem: LoadedProblem, request: DraftRequest) -> tuple[Message, ...]:
    """The turns that a model of `agentkernel train` knows: write, mend, make faster."""
    shapes = problem.problem.shape_sets[0].label if problem.problem.shape_sets else ""
    task = write_turn(
        problem.problem.source,
        problem.problem.class_name,
        request.target.title,
        request.goals.policy,
        shapes,
    )
    refused, best = last_refused(request), start(request)
    if refused is not None and refused.verdict is not None:
        turn = repair_turn(refused.candidate, refused.verdict)
        return (task, file_turn(refused.candidate.source), turn)
    if best is not None and best.profile is not None:
        facts = speed_evidence(best.profile, request.plan.analysis, request.target).facts
        return (task, file_turn(best.candidate.source), faster_turn(facts))
    return (task,)


def start(request: DraftRequest) -> Attempt | None:
    """The right candidate to go on from, None where there is none or it is not to be shown."""
    return None if request.free else request.parent or best_so_far(request.history)


def example_of(problem: LoadedProblem, request: DraftRequest) -> Retrieved | None:
    """The kernel of an earlier run of the like, where no candidate of this one is to be shown."""
    if request.free or start(request) is not None:
        return None
    return start_of(request.retrieved, family_of(request.target.arch), problem.problem)


def last_refused(request: DraftRequest) -> Attempt | None:
    """The attempt to mend: the last one of the history, where a diagnosis asks for a repair."""
    if request.diagnosis is None or request.diagnosis.action != "repair" or not request.history:
        return None
    last = request.history[-1]
    return last if last.verdict is not None and not last.verdict.accepted else None


def edited_file(request: DraftRequest) -> str | None:
    """The file that an answer's edits are about: the one to mend, else the one to go on from."""
    attempt = last_refused(request) or start(request)
    return attempt.candidate.source if attempt else None
