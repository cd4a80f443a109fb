"""The current candidate at several settings of its launch, each judged, side by side."""

from __future__ import annotations

from itertools import product
from math import prod

from agentkernel.chat import actions, figures
from agentkernel.chat.facts import NO_CANDIDATE
from agentkernel.chat.knobs import AlreadySo, NoChange, changed_by, judged_before
from agentkernel.chat.queries import not_possible
from agentkernel.chat.replies import Compared, Reply
from agentkernel.chat.requests import SetKnob, Sweep
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.steps import HandWritten
from agentkernel.chat.tree import fastest, label
from agentkernel.domain.formatting import count

MOST = 16
"""Candidates of one sweep: each is judged and timed like any other."""


def sweep(work: SessionState, intent: Sweep) -> Reply:
    """Judge each combination that is another text, and compare all of them with the base."""
    many = prod(len(axis.values) for axis in intent.axes)
    if many > MOST:
        return not_possible(f"That is {many} candidates, each judged. Expected at most {MOST}.")
    if not work.tree.nodes or work.place.candidate is None:
        return not_possible(NO_CANDIDATE)
    base = work.node("current")
    columns, refused = {base.number: "as it was"}, []
    for values in product(*(axis.values for axis in intent.axes)):
        wishes = tuple(
            SetKnob(knob=axis.knob, value=value)
            for axis, value in zip(intent.axes, values, strict=True)
        )
        name = words(wishes)
        try:
            source = changed_by(work, base, wishes).source
        except AlreadySo:
            columns[base.number] = name
            continue
        except NoChange as why:
            refused.append(f"{name}: {why}")
            continue
        known = judged_before(work, source)
        if known is None:
            actions.offer(work, HandWritten(source, "edited"), base.number, name)
            known = judged_before(work, source)
        if known is not None:
            columns[known.number] = name
    if len(columns) == 1:
        return not_possible("\n".join(refused) or f"{label(base.number)} is so already.")
    return _table(work, columns, refused)


def words(wishes: tuple[SetKnob, ...]) -> str:
    """ "4 warps, 2 stages"."""
    return ", ".join(f"{wish.value} {wish.knob}" for wish in wishes)


def _table(work: SessionState, columns: dict[int, str], refused: list[str]) -> Compared:
    nodes = tuple(map(work.node, columns))
    best = fastest(work.tree, work.target_name)
    said = f"{count(len(nodes), 'candidate')} side by side"
    said += f"; the fastest of all is {label(best)}." if best is not None else "."
    rows = (("launch", tuple(columns.values())), *figures.rows_of(nodes))
    return Compared(nodes=nodes, rows=rows, verdict="\n".join([said, *refused]))
