"""Conversation with a coding model: the task, the files so far, and the evidence of a refusal.

A file is exhausted once it, or what was made from it, was asked about as often as the patience
setting allows without a better one; its descendants that are no better are exhausted with it. A
better descendant replaces it. Where all files are exhausted, the model starts anew. A model
fine-tuned by `agentkernel train` is asked in the words of its training rows: the module first,
then the file to repair or to speed up as the model's own turn, then what the judge or the
profiler found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from agentkernel.agents.debugger import RulesDebugger
from agentkernel.agents.evidence import Fact, evidence_of, speed_evidence
from agentkernel.agents.history import best_so_far, right_time, starting_experience, tried
from agentkernel.agents.models.local_presets import Prompt
from agentkernel.agents.prompts import fenced, render
from agentkernel.agents.protocols import Attempt, DraftRequest
from agentkernel.agents.reviewer import Review
from agentkernel.compiler.graph_listing import graph_listing
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.exchange import Message
from agentkernel.domain.plan import Retrieved
from agentkernel.domain.settings import TurnOptions
from agentkernel.domain.verdict import GATES, Mismatch, Policy, Verdict
from agentkernel.knowledge.documents import family_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem

RankKey = tuple[float, float, float]
CAUGHT = ("execution", "timing")
"""Gates that find who did not do the work. Such a file came no further than one that the policy
refuses: an answer that goes on from it goes on cheating."""


class FileContext(NamedTuple):
    """The files of one question; none: the module alone."""

    refused: Attempt | None = None
    """To be fixed."""
    right: Attempt | None = None
    """To go on from."""
    before: tuple[Attempt, ...] = ()
    """Other refused files that may stand in the conversation, the best first."""

    @property
    def about(self) -> Attempt | None:
        """The file that the answer is an edit of."""
        return self.refused or self.right


def choose_files(request: DraftRequest, options: TurnOptions, *, one: bool = False) -> FileContext:
    """What the next question shows.

    `one`: a single file, right or refused, whatever was drafted last. Else the best right file, and
    while a refused draft is fixed, the one of that strategy's that came furthest. Where a turn of
    a team names a file or none, that holds.
    """
    last = last_refused(request)
    if options.shown == "last":
        return FileContext(last, file_to_improve(request))
    bound = request.free or request.parent is not None
    left = ranked_files(request.history, request.shown, options.patience)
    if one and not bound:
        best = next((item for item in left if not _right(item) or item.profile is not None), None)
        return FileContext() if best is None else _only(best)
    right = file_to_improve(request) if bound else next(filter(_right, left), None)
    if last is None:
        return FileContext(right=right)
    line = [item for item in _refused(request.history) if _strategy(item) == _strategy(last)]
    repaired = next((item for item in left if item in line), None)
    others = sorted((item for item in line if item is not repaired), key=rank_key, reverse=True)
    return FileContext(repaired, right, tuple(others[: options.held - 1]) if repaired else ())


def ranked_files(
    history: Sequence[Attempt], shown: Sequence[str], patience: int
) -> tuple[Attempt, ...]:
    """The files that are not worn out, the best first: right ones by their time, then refused ones
    by how far they came, of equal ones that which was asked about least, then the latest."""
    rising = sorted(history, key=rank_key)  # of one text, the best that is known of it stays
    files = {item.candidate.sha256: item for item in rising if rank_key(item) > UNFIT}
    asked = Counter(shown)
    spent = _spent(files, shown)
    exhausted_files = {own for own, questions in spent.items() if questions >= patience}
    left = [item for item in files.values() if not _out(item, files, exhausted_files)]
    left.reverse()

    def order(item: Attempt) -> tuple[RankKey, int]:
        return rank_key(item), -asked[item.candidate.sha256]

    return tuple(sorted(left, key=order, reverse=True))


UNFIT: RankKey = (-1.0, 0.0, 0.0)
"""Of a file that was not judged, or is right and breaks where it is measured."""


def rank_key(attempt: Attempt) -> RankKey:
    """How good a file is; larger is better. A right one by its time, measured before estimated; a
    refused one by the gate at which it was stopped, then by the share of wrong elements; a cheat
    like what the first gate stopped."""
    verdict = attempt.verdict
    if verdict is None:
        return UNFIT
    if verdict.accepted:
        time = right_time(attempt)
        return UNFIT if time is None else (float(len(GATES)), -float(time[0]), -time[1])
    if verdict.gate in CAUGHT:
        return float(GATES.index("policy")), 0.0, 0.0
    wrong = verdict.failure.wrong_share if isinstance(verdict.failure, Mismatch) else 0.0
    return float(GATES.index(verdict.gate)), -round(wrong, 1), 0.0


def _spent(files: Mapping[str, Attempt], shown: Sequence[str]) -> Counter[str]:
    """Questions about each file, and about those that came of it and are no better."""
    spent: Counter[str] = Counter()
    for asked in (files[own] for own in shown if own in files):
        for at in (asked, *_ancestors(asked, files)):
            if rank_key(at) < rank_key(asked):
                break
            spent[at.candidate.sha256] += 1
    return spent


def _out(item: Attempt, files: Mapping[str, Attempt], exhausted_files: Set[str]) -> bool:
    """True for one that gave way to a better one, is worn out, or came of one that is and is no
    better."""
    children = (at for at in files.values() if at.candidate.parent == item.candidate.sha256)
    if any(rank_key(child) > rank_key(item) for child in children):
        return True
    line = (item, *_ancestors(item, files))
    return any(
        at.candidate.sha256 in exhausted_files and rank_key(at) >= rank_key(item) for at in line
    )


def _ancestors(item: Attempt, files: Mapping[str, Attempt]) -> Iterator[Attempt]:
    seen = {item.candidate.sha256}
    above = item.candidate.parent
    while above is not None and above in files and above not in seen:
        seen.add(above)
        yield files[above]
        above = files[above].candidate.parent


def _only(best: Attempt) -> FileContext:
    return FileContext(right=best) if _right(best) else FileContext(refused=best)


def _right(attempt: Attempt) -> bool:
    return attempt.verdict is not None and attempt.verdict.accepted


def _refused(history: Sequence[Attempt]) -> list[Attempt]:
    return [item for item in history if item.verdict is not None and not item.verdict.accepted]


def _strategy(attempt: Attempt) -> str:
    return attempt.candidate.strategy


def file_to_improve(request: DraftRequest) -> Attempt | None:
    """The right candidate to go on from, None where there is none or it is not to be shown."""
    return None if request.free else request.parent or best_so_far(request.history)


def last_refused(request: DraftRequest) -> Attempt | None:
    """The attempt that a diagnosis wants fixed: the last one of the history."""
    if request.diagnosis is None or request.diagnosis.action != "repair" or not request.history:
        return None
    last = request.history[-1]
    return last if last.verdict is not None and not last.verdict.accepted else None


MOST_FACTS = 8
"""Lines of evidence in a turn: a small model's window is short."""


def write_turn(
    source: str, class_name: str, target: str, policy: Policy, shapes: str = "", graph: str = ""
) -> Message:
    """The task: `source` is the module's file, `target` the GPU's title, `shapes` its inputs,
    `graph` what it computes (see compiler/graph_listing.py)."""
    text = render(
        "taught",
        source=source,
        class_name=class_name,
        target=target,
        policy=policy,
        shapes=shapes,
        graph=graph,
    )
    return Message(role="user", text=text)


def file_turn(kernel: str) -> Message:
    """A file that the model is to go on from, as if it had just given it."""
    return Message(role="assistant", text=fenced(kernel, "python"))


def repair_turn(candidate: Candidate, verdict: Verdict) -> Message:
    """What the judge found in a file that it refused."""
    evidence = evidence_of(candidate, verdict)
    text = render(
        "taught_repair",
        kind=evidence.kind,
        facts=evidence.facts[:MOST_FACTS],
        excerpt=evidence.excerpt.text if evidence.excerpt else "",
    )
    return Message(role="user", text=text)


def faster_turn(facts: Sequence[Fact]) -> Message:
    """Where the time of a right file goes."""
    return Message(role="user", text=render("taught_faster", facts=tuple(facts)[:MOST_FACTS]))


def completion(reasoning: str, kernel: str) -> str:
    """What the model is taught to say: the reasons, then the whole file."""
    words = reasoning.strip()
    file = fenced(kernel, "python")
    return f"{words}\n\n{file}" if words else file


ONGOING: tuple[Prompt, ...] = ("coder", "taught")
"""Prompts that show the candidate to go on from."""
MOST_EARLIER = 24_000
"""Characters of refused files that stand in a conversation beside the one to fix: about a quarter
of a window of 32,000 tokens."""


def coder_messages(
    problem: LoadedProblem,
    request: DraftRequest,
    prompt: Prompt = "coder",
    review: Review | None = None,
    shown: FileContext | None = None,
) -> tuple[Message, ...]:
    """The task with the candidate to go on from and its `review`; then, where there is one to fix,
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
    """The turns that a model of `agentkernel train` knows: write, fix, make faster."""
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
    """What the judge found in the file to fix, and what to do about it: the diagnosis asked for,
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
    """The refused files before the one to fix with what was found in each, the best nearest to
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
