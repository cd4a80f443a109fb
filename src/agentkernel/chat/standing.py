"""Where does a session stand, with which settings, after what, and at what cost?"""

from __future__ import annotations

from contextlib import closing

from agentkernel.agents.history import outcome
from agentkernel.agents.models.ledger import totals
from agentkernel.chat import figures
from agentkernel.chat.basis import basis_of, for_target
from agentkernel.chat.changes import WORDS, difference, display_value, effective_value
from agentkernel.chat.domain_session import Node
from agentkernel.chat.gather import attempt_of
from agentkernel.chat.reach import infeasible_goal
from agentkernel.chat.replies import Cost, Reply, TextReply
from agentkernel.chat.tree import fastest, is_accepted, label
from agentkernel.chat.work import SessionState
from agentkernel.domain.errors import OutputError
from agentkernel.domain.exchange import Exchange


def history(work: SessionState) -> Reply:
    """Every step with its candidates and what became of each."""
    if not work.tree.steps:
        return TextReply(text="Nothing was tried yet. 'run' begins.")
    lines = []
    for step in work.tree.steps:
        lines.append(f"{step.number}. {step.text!r} from {label(step.base)}: {step.outcome}")
        for node in work.tree.nodes:
            if node.step == step.number:
                name = node.candidate.strategy or node.candidate.coder
                told = f"{outcome(attempt_of(node))}{_other_target(work, node)}"
                lines.append(f"   {_marks(work, node)} {name}: {told}")
    return TextReply(text="\n".join(lines))


def _other_target(work: SessionState, node: Node) -> str:
    """The GPU that a time is for, where that is not the one in force."""
    target = work.target_name
    if node.profile is None or target is None or for_target(node, target):
        return ""
    return f", for {node.profile.target}"


def _marks(work: SessionState, node: Node) -> str:
    marks = [
        word
        for word, holds in (
            ("current", node.number == work.place.candidate),
            ("kept", node.number == work.tree.kept),
            ("discarded", node.number in work.tree.rejected),
        )
        if holds
    ]
    return label(node.number) + (f" ({', '.join(marks)})" if marks else "")


def status(work: SessionState) -> Reply:
    """Where the session stands, in a few lines."""
    settings, current = work.settings, work.place.candidate
    node = work.tree.node(current) if current is not None else None
    aimed = work.target_name
    target = aimed or settings.target or "the local GPU, else h100"
    lines = [
        f"{work.module.name}: {_count(len(work.tree.steps), 'step')}, "
        f"{_count(len(work.tree.nodes), 'candidate')}.",
        f"At {label(current)}"
        + (f": {_told(node, aimed)}" if node is not None else "")
        + f", branch {work.place.branch}.",
        _fastest(work, aimed),
        f"For {target}, precision {settings.goals.precision}, policy {settings.policy}; the goal "
        f"is {settings.goals.speedup:g}x against {settings.goals.baseline}, for "
        f"{settings.goals.objective}.",
    ]
    if work.place.problem:
        sizes = work.store.problem(work.place.problem).shape_sets[0].label
        lines.append(f"At other sizes than the module's own: {sizes}.")
    if work.tree.kept is not None:
        lines.append(f"Kept: {label(work.tree.kept)}.")
    reach = infeasible_goal(work, look=False)
    return TextReply(text="\n".join([*lines, reach] if reach else lines))


def _fastest(work: SessionState, target: str | None) -> str:
    """The fastest for the GPU in force; one for another GPU is said to be."""
    best = fastest(work.tree, target)
    if best is not None:
        return f"Fastest: {label(best)}."
    node = work.tree.node(fastest(work.tree) or 0)
    basis = None if node is None else basis_of(node)
    if node is None or basis is None:
        right = any(is_accepted(item) for item in work.tree.nodes)
        gone = "Every right candidate is discarded, or for other sizes."
        return gone if right else "No right candidate yet."
    return f"No time for {target} yet; fastest, {basis.words}: {label(node.number)}."


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _told(node: Node, target: str | None) -> str:
    time = figures.time_words(node, target)
    return figures.verdict_words(node) + (f", {time}" if time else "")


def settings(work: SessionState) -> Reply:
    """The settings that matter most, then those that were changed here."""
    now = work.settings
    lines = [f"{words}: {display_value(effective_value(now, key))}" for key, words in WORDS.items()]
    changed = difference(work.settings_of({}), now)
    lines += [f"changed here: {item}" for item in changed] or ["nothing was changed here"]
    return TextReply(text="\n".join(lines))


def targets(work: SessionState) -> Reply:
    """Every GPU that a kernel can be for."""
    from agentkernel.tools.targets import load_targets

    now = work.settings.target
    lines = [
        f"{'*' if name == now else ' '} {name}: {target.title}"
        for name, target in load_targets().items()
    ]
    return TextReply(text="\n".join([*lines, "  local: the GPU of this machine"]))


def cost(work: SessionState) -> Reply:
    """Seconds of all steps, and what models took in them and in reading sentences."""
    seconds = sum(step.seconds for step in work.tree.steps)
    exchanges = [item for path in _records(work) for item in _exchanges(path)]
    accounts = totals(exchanges) if exchanges else None
    count = len(work.tree.steps)
    text = f"{seconds:.1f} s in {count} step{'' if count == 1 else 's'}"
    if accounts is None:
        return Cost(seconds=seconds, accounts=None, text=f"{text}; no model was asked.")
    total = accounts.total
    money = "price not known" if total.cost_usd is None else f"${total.cost_usd:.4f}"
    least = " at least" if total.unpriced and total.cost_usd is not None else ""
    text += f"; {total.prompt} tokens in, {total.completion} out, {money}{least}."
    return Cost(seconds=seconds, accounts=accounts, text=text)


def _records(work: SessionState) -> list[str]:
    runs = [str(work.runs / step.run / "run.sqlite") for step in work.tree.steps if step.run]
    return [*runs, str(work.folder / "models.sqlite")]


def _exchanges(path: str) -> list[Exchange]:
    from pathlib import Path

    from agentkernel.storage.records import read_records

    try:
        records = read_records(Path(path))
    except OutputError:
        return []
    with closing(records):
        return list(records.exchanges())
