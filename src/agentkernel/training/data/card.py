"""Card and held-out split of a folder of training data.

Nothing in training resembles a held-out module, by structure or by text, and rows are taken so
that no kind of module crowds out the others. `card.json` is written last: a folder that has one
is complete. It says what the folder holds, where that comes from, and how it is made again.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.op_names import family, weight
from agentkernel.knowledge.pairs import THRESHOLD, signature_of
from agentkernel.training.data.rows import FILES
from agentkernel.training.settings import TASKS, DataSettings, Task, TrainingRow

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


CARD = "card.json"
PAGE = "card.md"
NOT_JUDGED = "not-judged.jsonl.gz"
"""Rows that nobody judged, beside the others: no training reads them."""
MOST_REASONS = 40


class Input(Frozen):
    """What rows came from. `sha256`: of what was read; `read`: rows, `unread`: what was none."""

    kind: str
    path: str
    sha256: str
    read: int
    unread: int
    reasons: dict[str, int] = Field(default_factory=dict)
    """Why -> how many of `unread`; empty in folders of before."""


class Lengths(Frozen):
    """Characters of all turns of a row."""

    least: int = 0
    median: int = 0
    most_of_ten: int = 0
    """Nine in ten are no longer."""
    longest: int = 0
    total: int = 0


class Part(Frozen):
    """What a file of rows holds. Each dict counts rows."""

    rows: int = 0
    problems: int = 0
    structures: int = 0
    tasks: dict[str, int] = Field(default_factory=dict)
    sources: dict[str, int] = Field(default_factory=dict)
    licences: dict[str, int] = Field(default_factory=dict)
    labels: dict[str, int] = Field(default_factory=dict)
    bounds: dict[str, int] = Field(default_factory=dict)
    targets: dict[str, int] = Field(default_factory=dict)
    families: dict[str, int] = Field(default_factory=dict)
    reasoning: dict[str, int] = Field(default_factory=dict)
    measured: int = 0
    """Rows of slow -> faster with both times measured on one GPU."""
    lengths: Lengths = Lengths()


class Card(Frozen):
    """`card.json`: written last, so that a folder with one is whole."""

    format: int = 1
    inputs: tuple[Input, ...]
    settings: DataSettings
    versions: Versions
    command: str = ""
    train_sha256: str = ""
    """Of the file of training rows, so that a row which somebody adds to it is seen; "" in folders
    of before."""
    held_out_sha256: str = ""
    """Of the held-out modules and rows, so that a figure says what it is about; "" in folders of
    before."""
    train: Part
    held_out: Part
    not_judged: Part
    held_out_modules: int
    kin_modules: int
    """Modules with a structure of a held-out one: in neither part."""
    drafted: dict[Task, int]
    """Conversations that could be made, before the shares."""
    unfilled: tuple[str, ...]
    left_out: dict[str, int]
    """Why -> kernels or conversations."""


@dataclass
class RowCounter:
    """Counts the rows of one part as they are written."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    problems: set[str] = field(default_factory=set)
    structures: set[str] = field(default_factory=set)
    lengths: list[int] = field(default_factory=list)
    measured: int = 0

    def add(self, row: TrainingRow) -> None:
        """Count one."""
        told: Mapping[str, str] = {
            "tasks": row.task,
            "sources": row.source,
            "licences": row.licence,
            "labels": row.label,
            "bounds": row.bound or "not known",
            "targets": row.target or "any",
            "families": kernel_family(row.structure),
            "reasoning": row.reasoning_by,
        }
        for name, value in told.items():
            self.counts.setdefault(name, Counter())[value] += 1
        self.problems.add(row.problem_sha256)
        self.structures.add(row.structure)
        self.measured += row.speedup is not None
        self.lengths.append(sum(len(item.text) for item in row.messages) + len(row.completion))

    def part(self) -> Part:
        """The counts so far, names in order."""
        counted = {name: dict(sorted(found.items())) for name, found in self.counts.items()}
        return Part(
            rows=len(self.lengths),
            problems=len(self.problems),
            structures=len(self.structures),
            measured=self.measured,
            lengths=_lengths(sorted(self.lengths)),
            **counted,
        )


def _lengths(found: list[int]) -> Lengths:
    if not found:
        return Lengths()
    return Lengths(
        least=found[0],
        median=found[len(found) // 2],
        most_of_ten=found[len(found) * 9 // 10],
        longest=found[-1],
        total=sum(found),
    )


def unfilled(
    part: Part, drafted: Mapping[Task, int], settings: DataSettings, held_out: int
) -> tuple[str, ...]:
    """What was asked for and could not be had, a line each."""
    lines = []
    total = sum(settings.shares.values()) or 1.0
    for task in TASKS:
        share, rows = settings.shares.get(task, 0.0) / total, part.tasks.get(task, 0)
        wanted = round(part.rows * share)
        # One row either way is rounding.
        if share and (not part.rows or rows + 1 < wanted):
            lines.append(
                f"{task}: {rows} rows of {part.rows}, {share:.0%} was asked for; there were "
                f"{drafted.get(task, 0)} conversations of this task"
            )
    if held_out < settings.held_out:
        lines.append(f"held out: {held_out} modules, {settings.held_out} were asked for")
    return tuple(lines)


def unreadable(inputs: Sequence[Input]) -> list[tuple[str, int]]:
    """Why something in the sources was no row, and how often, the most frequent first."""
    counts = Counter[str]()
    for item in inputs:
        counts.update(item.reasons)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def read_card(folder: Path) -> Card:
    """The card of a finished folder. Raises TrainingError where there is none."""
    path = folder / CARD
    try:
        return Card.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise TrainingError(
            f"Cannot read {str(path)!r}: {one_line(error)}. Expected the card that 'agentkernel "
            "train data' writes. Next: name a folder that it made, or make it again."
        ) from error


def card_page(card: Card) -> str:
    """The card for people, as Markdown."""
    lines = ["# Training data", ""]
    lines += [
        "Every kernel that is learned from was accepted by the judge, and its licence is on the "
        "list. Reasons come from the roofline, the verdict, the times and the files, or, where "
        "marked, from a teacher. Modules are held out by structure: no module of the training "
        "part has the operators of one, in its order.",
        "",
        f"- `{FILES['train']}`: {_words(card.train)}",
        f"- `{FILES['held-out']}`: {_words(card.held_out)}, `problems/held-out/`: "
        f"{card.held_out_modules} modules",
        f"- `{NOT_JUDGED}`: {_words(card.not_judged)}; no training reads them",
        "",
    ]
    if card.unfilled:
        lines += ["Could not be filled:", *(f"- {item}" for item in card.unfilled), ""]
    lines += ["## Rows", "", "| | | train | held out | not judged |", "|---|---|---|---|---|"]
    parts = (card.train, card.held_out, card.not_judged)
    for name in _TABLES:
        found: list[dict[str, int]] = [getattr(part, name) for part in parts]
        for value in sorted({key for item in found for key in item}):
            cells = " | ".join(str(item.get(value, 0)) for item in found)
            lines.append(f"| {name} | {_plain(value)} | {cells} |")
    for name in ("problems", "structures", "measured"):
        lines.append(f"| {name} | | {' | '.join(str(getattr(item, name)) for item in parts)} |")
    lengths = " | ".join(
        f"{item.lengths.median} / {item.lengths.most_of_ten} / {item.lengths.longest}"
        for item in parts
    )
    lines += [f"| characters | median / nine in ten / longest | {lengths} |", ""]
    lines += ["## Where it comes from", "", "| kind | path | SHA-256 | rows | unreadable |"]
    lines += ["|---|---|---|---|---|"]
    for source in card.inputs:
        lines.append(
            f"| {source.kind} | `{_plain(source.path)}` | `{source.sha256[:16]}` | {source.read} "
            f"| {source.unread} |"
        )
    unread = unreadable(card.inputs)
    if unread:
        lines += ["", "## Unreadable", ""]
        lines += [f"- {count} x {_plain(reason)}" for reason, count in unread[:MOST_REASONS]]
    lines += ["", "## Left out", ""]
    ranked = sorted(card.left_out.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"- {count} x {_plain(reason)}" for reason, count in ranked[:MOST_REASONS]]
    if len(ranked) > MOST_REASONS:
        lines.append(f"- and {len(ranked) - MOST_REASONS} more reasons in `{CARD}`")
    if card.kin_modules:
        lines.append(f"- {card.kin_modules} modules that have the structure of a held-out one")
    lines += ["", "## Again", "", "```", card.command or "agentkernel train data", "```", ""]
    settings = card.settings.model_dump(mode="json")
    lines += [", ".join(f"{name}: {value}" for name, value in settings.items()), ""]
    known = card.versions
    lines += [f"agentkernel {known.agentkernel}, Python {known.python}, torch {known.torch}", ""]
    return "\n".join(lines)


_TABLES = ("tasks", "sources", "licences", "labels", "bounds", "targets", "families", "reasoning")


def _words(part: Part) -> str:
    return f"{part.rows} rows on {part.problems} modules of {part.structures} structures"


def _plain(text: str) -> str:
    """On one line of a table, whatever somebody called a licence or a file."""
    return one_line(text, 200).replace("|", "/").replace("`", "'")
