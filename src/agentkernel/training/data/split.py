"""Which modules are held out, so that nothing in training resembles them, and which rows are taken
so that no kind of module crowds out the others?"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.near_duplicates import THRESHOLD, signature_of
from agentkernel.knowledge.op_names import family, weight
from agentkernel.training.training import TASKS, Task

UNKNOWN = "unknown"
"""The family of a module whose operators nobody could read."""
COMMON = 0.01
"""A structure that more of the modules have than this share is not held out: it would cost the
training a kind of module, for one more to be tested."""
FEW = 8
"""So many modules of one structure are not common, however few there are in all."""
HALF = 0.5
"""At most this share of the structures is held out, however few there are."""
OF_A_CELL = 0.25
"""Nor more than this share of a cell's structures, while other cells have some: a kind of module
that is tested is taught too."""
SHORT = 0.25
"""A task that could fill less than this share of what the best supplied one could is taken whole,
and does not hold the others down."""


class SplitModule(NamedTuple):
    """A problem as the split sees it. `keys`: its structures, by the graph and by the text; `fits`:
    the judge accepted a kernel for it, and it can be a file of problems."""

    sha256: str
    keys: tuple[str, ...]
    cell: str
    fits: bool


class HeldOut(NamedTuple):
    """`modules` are tested on; `kin` have a structure of theirs, and are in neither part."""

    modules: frozenset[str]
    kin: frozenset[str]
    possible: int
    """Modules that could have been held out at most."""


def kernel_family(structure: str) -> str:
    """The family of the operator that says most about a kernel; the first of equal ones."""
    ops = structure.split()
    return family(max(ops, key=weight)) if ops else UNKNOWN


def hold_out(modules: Iterable[SplitModule], wanted: int, seed: int) -> HeldOut:
    """At most `wanted` modules, each of another group of structures, spread over the cells.

    Modules are of one group where they share a structure, also by way of a third. The rest of a
    group is in neither part. The same for the same modules in any order, and `seed`.
    """
    found = sorted(modules)
    groups = _groups(found)
    limit = max(FEW, int(COMMON * len(found)))
    cells: dict[str, list[list[SplitModule]]] = defaultdict(list)
    for members in groups:
        if len(members) <= limit and all(item.keys for item in members):
            fitting = [item for item in members if item.fits]
            if fitting:
                cells[fitting[0].cell].append(members)
    rng = random.Random(f"held out {seed}")
    for name in sorted(cells):
        rng.shuffle(cells[name])
    possible = sum(map(len, cells.values()))
    count = min(wanted, int(HALF * len(groups)), possible)
    chosen: set[str] = set()
    kin: set[str] = set()
    for members in _in_turn(cells, count):
        chosen.add(rng.choice([item.sha256 for item in members if item.fits]))
        kin.update(item.sha256 for item in members)
    return HeldOut(frozenset(chosen), frozenset(kin - chosen), possible)


def _in_turn(cells: Mapping[str, list[list[SplitModule]]], count: int) -> list[list[SplitModule]]:
    """One group of each cell, then a second of each, until there are `count`; of a cell more than
    `OF_A_CELL` only where all have given as much."""
    taken: list[list[SplitModule]] = []
    kept = {name: math.ceil((1 - OF_A_CELL) * len(cells[name])) for name in sorted(cells)}
    left = {name: list(cells[name]) for name in kept}
    for least in (kept, dict.fromkeys(kept, 0)):
        while len(taken) < count and any(len(left[name]) > least[name] for name in left):
            for name in left:
                if len(left[name]) > least[name] and len(taken) < count:
                    taken.append(left[name].pop())
    return taken


def _groups(modules: Sequence[SplitModule]) -> list[list[SplitModule]]:
    """Modules that share a key, directly or through others; each without a key on its own."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for item in modules:
        for key in item.keys[1:]:
            parent[root(key)] = root(item.keys[0])
    groups: dict[str, list[SplitModule]] = defaultdict(list)
    for item in modules:
        # A space begins no structure: a module of none shares it with nobody.
        groups[root(item.keys[0]) if item.keys else f" {item.sha256}"].append(item)
    return list(groups.values())


class NearDuplicates:
    """The texts of the held-out modules: is another one nearly the same, names aside?"""

    def __init__(self, texts: Iterable[str]) -> None:
        found = [signature_of(text) for text in texts]
        self._signatures = np.stack(found) if found else None

    def near(self, text: str) -> bool:
        """True where the estimated Jaccard similarity to one of them is 0.9 or more."""
        if self._signatures is None:
            return False
        same = (self._signatures == signature_of(text)).mean(axis=1)
        return bool(same.max() >= THRESHOLD)


def code_structure(text: str) -> str:
    """A module's operators in their order, as its text says; empty where it says none."""
    found = structure_of_code(text)
    return " ".join(found.ops) if found else ""


def rows_of_tasks(there: Mapping[Task, int], shares: Mapping[Task, float]) -> dict[Task, int]:
    """How many rows of each task are taken, of so many that are there, in the `shares`.

    The scarcest task decides; one that is far too scarce (`SHORT`) is taken whole, and the others
    keep the proportion among themselves.
    """
    total = sum(shares.values())
    wanted = {task: shares.get(task, 0.0) / total for task in TASKS if shares.get(task, 0.0) > 0}
    could = {task: there.get(task, 0) / share for task, share in wanted.items()}
    best = max(could.values(), default=0.0)
    rows = min((value for value in could.values() if value >= SHORT * best), default=0.0)
    taken = {task: min(there.get(task, 0), round(rows * share)) for task, share in wanted.items()}
    return {task: taken.get(task, 0) for task in TASKS}


def quotas(there: Mapping[str, int], wanted: int) -> dict[str, int]:
    """How many rows of each cell, so that `wanted` are taken and the large cells give way first:
    every cell has the same quota, and what a small one leaves goes to the others."""
    taken = dict.fromkeys(there, 0)
    left = min(wanted, sum(there.values()))
    open_cells = sorted(there, key=lambda name: (there[name], name))
    while open_cells and left:
        name = open_cells.pop(0)
        taken[name] = min(there[name], left // (len(open_cells) + 1))
        left -= taken[name]
    return taken


__all__ = [
    "HeldOut",
    "NearDuplicates",
    "SplitModule",
    "code_structure",
    "hold_out",
    "kernel_family",
    "quotas",
    "rows_of_tasks",
]
