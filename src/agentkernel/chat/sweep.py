"""The current candidate at several settings of its launch, each judged, side by side."""

from __future__ import annotations

from itertools import product
from math import prod

from agentkernel.chat import actions, figures
from agentkernel.chat.figures import fastest_alike
from agentkernel.chat.knobs import (
    OPTIONS,
    AlreadySo,
    base_of,
    changed_by,
    judged_before,
)
from agentkernel.chat.launches import NoChange
from agentkernel.chat.queries import not_possible, of_another_target
from agentkernel.chat.replies import Compared, Reply
from agentkernel.chat.requests import SetKnob, Sweep
from agentkernel.chat.session_state import SessionState
from agentkernel.chat.steps import HandWritten, run_step
from agentkernel.chat.tree import Node, Tree, contenders, fastest_of, label, return_to, stand_again
from agentkernel.domain.formatting import count

MOST = 16
"""Candidates of one sweep: each is judged and timed like any other."""


def sweep(work: SessionState, intent: Sweep) -> Reply:
    """Judge each combination that is another text, and compare all of them with the base, each
    with a time for the target in force. The session stands where it stood, or at the one that is
    surely the fastest."""
    many = prod(len(axis.values) for axis in intent.axes)
    if many > MOST:
        return not_possible(f"That is {many} candidates, each judged. Expected at most {MOST}.")
    base, note = base_of(work, intent.candidate)
    if base is None:
        return not_possible(note)
    before, columns = work.tree, dict[int, str]()
    refused = [note] if note else []
    if of_another_target(work, base):
        first, base = base, _judged_anew(work, base)
        refused.append(_of_the_base(work, first, base))
    for values in product(*(sorted(axis.values) for axis in intent.axes)):
        wishes = tuple(
            SetKnob(knob=axis.knob, value=value, kernels=intent.kernels)
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
            reply = actions.offer(work, HandWritten(source, "wished"), base.number, name)
            known = judged_before(work, source)
            if known is None:
                refused.append(f"{name}: {getattr(reply, 'text', '') or 'it was not judged'}")
        if known is not None:
            columns[known.number] = name
    work.tree = stand_again(work.tree, before)
    if columns.keys() <= {base.number}:
        return not_possible("\n".join(refused) or f"{label(base.number)} is so already.")
    if base.number not in columns:
        columns = {base.number: "as it was", **columns}
    timed = contenders(work.tree, work.target_name)
    alike = fastest_alike([node for node in timed if node.number in columns])
    if len(alike) == 1 and alike[0].number != work.place.candidate:
        work.tree = return_to(work.tree, alike[0].number)
    return _table(work, columns, [_stands(work, before), *refused])


def _judged_anew(work: SessionState, base: Node) -> Node:
    """The same text with a time for the target in force, beside which others can stand."""
    source = work.source(base.number)
    known = judged_before(work, source)
    if known is None:
        text = f"{label(base.number)} for {work.target_name}"
        run_step(work, text, given=HandWritten(source, "judged anew"), base=base.parent)
        known = judged_before(work, source)
    return known or base


def _of_the_base(work: SessionState, first: Node, base: Node) -> str:
    if first.number == base.number:
        return f"{label(base.number)} has no time for {work.target_name}: its own is of another."
    return f"{label(base.number)} is {label(first.number)}, judged anew for {work.target_name}."


def _stands(work: SessionState, before: Tree) -> str:
    as_before = ", as before" if work.place == before.place else ""
    return f"The session stands at {label(work.place.candidate)}{as_before}."


def words(wishes: tuple[SetKnob, ...]) -> str:
    """ "4 warps, 1 stage, block 64"."""
    return ", ".join(
        count(wish.value or 0, wish.knob.removesuffix("s")) if wish.knob in OPTIONS
        else f"{wish.knob} {wish.value}"
        for wish in wishes
    )  # fmt: skip


def _table(work: SessionState, columns: dict[int, str], told: list[str]) -> Compared:
    nodes = tuple(map(work.node, columns))
    timed = contenders(work.tree, work.target_name)
    best = figures.fastest_words([node for node in timed if node.number in columns])
    said = f"{count(len(nodes), 'candidate')} side by side."
    said += f" Fastest of them: {best}." if best else ""
    first = fastest_of(timed)
    if best and first is not None and first.number not in columns:
        said += f" Fastest of all: {figures.fastest_words(timed)}."
    rows = (("launch", tuple(columns.values())), *figures.rows_of(nodes))
    return Compared(nodes=nodes, rows=rows, verdict="\n".join([said, *told]))
