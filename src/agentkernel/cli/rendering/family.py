"""Which candidate came from which, where does the session stand, and what is each worth?"""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree as Drawn

from agentkernel.chat.domain_session import Node, Tree
from agentkernel.cli.rendering.page import View
from agentkernel.cli.rendering.plain import flat
from agentkernel.cli.rendering.quantities import show_ratio, show_us

GUIDE = 4
"""Columns that a level is set in by."""
TEXT_WIDTH = 60
"""Characters of a request that a line quotes."""


def candidate_tree(tree: Tree, view: View, target: str = "") -> RenderableType:
    """The tree from the module down; below some depth a candidate says whom it came from. A time
    for another GPU than `target` names it."""
    here = tree.place.candidate
    root = Drawn(_marked("the module", _root_marks(tree, here), here is None, view))
    limit = max(1, view.width // 3 // GUIDE)
    drawn: dict[int, tuple[Drawn, int]] = {}
    for node in sorted(tree.nodes, key=lambda item: item.number):
        parent = node.parent
        above, depth = drawn.get(parent, (root, 0)) if parent is not None else (root, 0)
        note = ""
        if parent is not None and (parent not in drawn or depth >= limit):
            note = f"from c{parent}"
        label = _label(node, tree, note, view, target)
        if depth >= limit:
            above.add(label)
            drawn[node.number] = (above, depth)
        else:
            drawn[node.number] = (above.add(label), depth + 1)
    return root


def _root_marks(tree: Tree, here: int | None) -> list[str]:
    told = ["you are here"] if here is None else []
    return [*told, *_branches(tree, None)]


def _branches(tree: Tree, number: int | None) -> list[str]:
    """Branches whose tip this is, where there is more than one."""
    if len(tree.branches) < 2:
        return []
    found = []
    for branch in tree.branches:
        current = branch.number == tree.place.branch
        tip = tree.place if current else branch.tip
        if tip.candidate == number:
            found.append(f"branch {branch.number}{' (current)' if current else ''}")
    return found


def _label(node: Node, tree: Tree, note: str, view: View, target: str) -> Text:
    here = tree.place.candidate == node.number
    told = ["you are here"] if here else []
    told += ["kept"] if tree.kept == node.number else []
    told += ["rejected by you"] if node.number in tree.rejected else []
    told += _branches(tree, node.number)
    told += [note] if note else []
    told += [node.origin] if node.origin != "drafted" else []
    label = _marked(f"c{node.number}", told, here, view)
    label.append(f"{view.dot}{verdict_words(node)}")
    speed = speed_words(node)
    if speed:
        label.append(f"{view.dot}{speed}")
        if target and node.profile is not None and node.profile.target != target:
            label.append(f" for {node.profile.target}")
    step = next((item for item in tree.steps if item.number == node.step), None)
    if step is not None and step.text:
        text = flat(step.text)
        text = text if len(text) <= TEXT_WIDTH else f"{text[: TEXT_WIDTH - 3]}..."
        label.append(f"\n{text!r}" if "'" in text else f"\n'{text}'", style="dim")
    label.overflow = "fold"
    return label


def _marked(name: str, told: list[str], here: bool, view: View) -> Text:
    label = Text(view.sign("▶ ", "> ") if here else "", overflow="fold")
    label.append(name, style="bold")
    if told:
        label.append(f" [{', '.join(told)}]", style="cyan")
    return label


def verdict_words(node: Node) -> str:
    """`accepted`, `refused at correctness`, `set aside` or `not judged`."""
    if node.verdict is None:
        return f"set aside: {flat(node.aside)}" if node.aside else "not judged"
    if not node.verdict.accepted:
        return f"refused at {node.verdict.gate}"
    return "accepted (interpreted)" if node.verdict.interpreted else "accepted"


def speed_words(node: Node) -> str:
    """Time and speedup over eager, said to be measured or estimated; "" where there is none."""
    profile = node.profile
    if profile is None:
        missed = node.unprofiled
        return "" if missed is None else f"no time: {missed.side}: {flat(missed.reason)}"
    if profile.measured:
        first = profile.measurements[0]
        ratio = show_ratio(first.vs_eager.value)
        return f"{show_us(first.candidate.median_us)}, {ratio} eager, measured"
    return f"{show_us(profile.estimate.time_us)} estimated"


__all__ = ["candidate_tree", "speed_words", "verdict_words"]
