"""Which candidates did a step's run make, and which of them does the session know already?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import TypeAdapter

from agentkernel.agents.protocols import Attempt
from agentkernel.chat.domain_session import Node, Origin, Tree
from agentkernel.chat.tree import complete, grow, problem_of
from agentkernel.domain.plan import Plan
from agentkernel.domain.profile import ProfileFailed
from agentkernel.tools.store import RunStore

PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)


class RunCandidates(NamedTuple):
    """The tree with a run's candidates. `made` are new; `seen` are all of the run, in order."""

    tree: Tree
    made: tuple[int, ...]
    seen: tuple[int, ...]


class RunEnding(NamedTuple):
    """How a run came to its end, as its events tell it. `planned`: strategies of the last plan,
    `barren`: (strategy, why nothing came of it), `node`: what it did last."""

    planned: tuple[str, ...] = ()
    barren: tuple[tuple[str, str], ...] = ()
    stop: str = ""
    node: str = ""


def ending_of(store: RunStore) -> RunEnding:
    """The same of a run that may have been cut off."""
    plan = plan_in(store)
    begun = _events(store, ("node_started",))
    decisions = _events(store, ("decision",))
    drafts = _events(store, ("candidate_drafted",))
    return RunEnding(
        planned=tuple(item.strategy for item in plan.hypotheses) if plan is not None else (),
        barren=tuple(
            (str(item["strategy"]), str(item["reason"])) for item in drafts if not item["candidate"]
        ),
        stop=str(decisions[-1]["stop"] or "") if decisions else "",
        node=str(begun[-1]["node"]) if begun else "",
    )


def attempts_in(store: RunStore) -> tuple[Attempt, ...]:
    """Every candidate of a run with what became of it, also where the run was cut off."""
    records = store.records
    verdicts = {item.candidate: item for item in records.verdicts()}
    profiles = {item.candidate: item for item in records.profiles()}
    asides: dict[str, str] = {}
    missed: dict[str, ProfileFailed] = {}
    for event in _events(store, ("candidate_set_aside", "profile_missed")):
        name = str(event["candidate"])
        if event["kind"] == "candidate_set_aside":
            asides[name] = str(event["reason"])
        else:
            missed[name] = ProfileFailed(
                side=str(event["side"]), reason=str(event["reason"]), log=str(event["log"])
            )
    return tuple(
        Attempt(
            candidate=item,
            verdict=verdicts.get(item.sha256),
            profile=profiles.get(item.sha256),
            unprofiled=None if item.sha256 in profiles else missed.get(item.id),
            aside="" if item.sha256 in verdicts else asides.get(item.id, ""),
        )
        for item in records.candidates()
    )


def plan_in(store: RunStore) -> Plan | None:
    """The plan of a run as it stood last, None where it came to none."""
    found = _events(store, ("planned",))
    return PLAN.validate_python(found[-1]["plan"]) if found else None


def _events(store: RunStore, kinds: tuple[str, ...]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [json.loads(item) for item in store.records.events()]
    return [item for item in found if item["kind"] in kinds]


def add_attempts(
    tree: Tree, step: int, attempts: Sequence[Attempt], origin: Origin = "drafted"
) -> RunCandidates:
    """The tree with `attempts` of that step: known ones are completed, others get numbers."""
    made: list[int] = []
    seen: list[int] = []
    for attempt in attempts:
        known = _known(tree, step, attempt)
        if known is None:
            tree = grow(tree, (_node(tree, step, attempt, origin),))
            made.append(tree.nodes[-1].number)
            seen.append(tree.nodes[-1].number)
            continue
        seen.append(known.number)
        if _says_more(attempt, known):
            tree = complete(tree, _told(_asked_anew(tree, step, known, attempt), attempt))
    return RunCandidates(tree, tuple(made), tuple(seen))


def attempt_of(node: Node) -> Attempt:
    """The same as a run's history knows it."""
    return Attempt(
        candidate=node.candidate,
        verdict=node.verdict,
        profile=node.profile,
        unprofiled=node.unprofiled,
        aside=node.aside,
    )


def _node(tree: Tree, step: int, attempt: Attempt, origin: Origin) -> Node:
    asked = tree.step(step)
    base = asked.base if asked is not None else None
    node = Node(number=1, parent=base, step=step, origin=origin, candidate=attempt.candidate)
    parents = [item for item in tree.nodes if item.candidate.sha256 == attempt.candidate.parent]
    if parents:
        node = node.model_copy(update={"parent": parents[-1].number})
    return _told(node, attempt)


def _asked_anew(tree: Tree, step: int, known: Node, attempt: Attempt) -> Node:
    """A candidate that was left unjudged belongs to the step that judges it."""
    asked = tree.step(step)
    if known.verdict is not None or attempt.verdict is None or asked is None or known.step == step:
        return known
    parent = asked.base if asked.base not in (None, known.number) else known.parent
    if attempt.candidate.parent is not None:
        parent = known.parent
    return known.model_copy(update={"step": step, "parent": parent})


def _told(node: Node, attempt: Attempt) -> Node:
    found = {
        "verdict": attempt.verdict,
        "profile": attempt.profile,
        "unprofiled": attempt.unprofiled,
        "aside": attempt.aside,
    }
    return node.model_copy(update=found)


def _known(tree: Tree, step: int, attempt: Attempt) -> Node | None:
    """The candidate of the same text, sizes, target and rules that the session has."""
    asked = tree.step(step)
    problem = asked.problem if asked is not None else ""
    same = (
        item
        for item in tree.nodes
        if item.candidate.sha256 == attempt.candidate.sha256
        and problem_of(tree, item) == problem
        and _alike(item, attempt)
    )
    return next(same, None)


def _alike(node: Node, attempt: Attempt) -> bool:
    if node.verdict is not None and attempt.verdict is not None:
        old, new = node.verdict, attempt.verdict
        judged = (old.precision, old.policy, old.device) == (new.precision, new.policy, new.device)
        if not judged:
            return False
    if node.profile is not None and attempt.profile is not None:
        return (node.profile.target, node.profile.measured_on) == (
            attempt.profile.target,
            attempt.profile.measured_on,
        )
    return True


def _says_more(attempt: Attempt, node: Node) -> bool:
    judged = node.verdict is None and attempt.verdict is not None
    timed = node.profile is None and attempt.profile is not None
    return judged or timed
