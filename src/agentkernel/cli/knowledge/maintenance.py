"""`agentkernel knowledge build`, `generate`, `doctor` and `eval`: make and check the indexes.

`build` takes in what the package ships and brings the indexes up to date; it may be repeated at
any time. `generate` makes pairs of modules with TorchInductor. `doctor` exits 4 where the store
is damaged or gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from agentkernel.cli.console import console, indexing_progress
from agentkernel.cli.knowledge.options import (
    BuildFlags,
    CheckFlags,
    EvaluateSearchFlags,
)
from agentkernel.cli.knowledge.place import (
    KnowledgePlace,
    open_knowledge,
    place_of,
    require_if_named,
)
from agentkernel.cli.knowledge.search import size_words
from agentkernel.cli.terminal import print_json
from agentkernel.domain.knowledge import Filters, Query
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.embedding import load_embedder
from agentkernel.knowledge.evaluation import (
    LabelledQuestion,
    SearchOutcome,
    read_questions,
    tuned_bm25,
)
from agentkernel.knowledge.evaluation import evaluate as ask
from agentkernel.knowledge.graph_structure import VECTORS, op_vector, similarity
from agentkernel.knowledge.search import DENSE_ONLY
from agentkernel.knowledge.store import open_knowledge_store
from agentkernel.knowledge.store_recovery import lost_changes
from agentkernel.knowledge.store_schema import FILE_NAME
from agentkernel.knowledge.structure_index import StructureIndex
from agentkernel.knowledge.vector_index import open_vectors
from agentkernel.knowledge.vector_ledger import database_damage

if TYPE_CHECKING:
    from agentkernel.knowledge.base import KnowledgeBase


def build(flags: BuildFlags) -> None:
    """`agentkernel knowledge build`."""
    place = place_of(flags.knowledge)
    with open_knowledge(place) as base:
        with indexing_progress(silent=flags.as_json) as progress:
            built = base.refresh(progress)
        entries, last = base.truth.count(), base.truth.last_seq
    if flags.as_json:
        print_json(
            {
                **built.packaged._asdict(),
                "removed": built.removed,
                "entries": entries,
                "last_seq": last,
                "vectors_seq": built.vectors,
                "structures_seq": built.structures,
                "where": str(place.folder),
            }
        )
        return
    screen = console()
    packaged = built.packaged
    for line in (
        f"packaged    {packaged.added} added, {packaged.changed} changed, {packaged.same} as "
        f"before, {built.removed} removed",
        f"entries     {entries}",
        f"vectors     at change {built.vectors} of {last}",
        f"structures  at change {built.structures} of {last}",
        f"where       {place.folder}" + (f", vectors at {place.chroma}" if place.chroma else ""),
    ):
        screen.print(line, markup=False)


EXIT_DAMAGED = 4
BUILD = "agentkernel knowledge build"
IMPORT = "agentkernel knowledge import FILE, with an export of yours"


class Finding(NamedTuple):
    """One line: what was looked at, whether it is well, what was found, and what fixes it."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def check_knowledge(flags: CheckFlags) -> None:
    """`agentkernel knowledge doctor`."""
    findings = list(examine(place_of(flags.knowledge)))
    damaged = any(item.name == "truth" and not item.ok for item in findings)
    if flags.as_json:
        print_json({"ok": not damaged, "findings": [item._asdict() for item in findings]})
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for item in findings:
            mend = f"Next: {item.mend}" if item.mend else ""
            table.add_row(item.name, "ok" if item.ok else "!", Text(item.found), Text(mend))
        console().print(table)
    raise typer.Exit(EXIT_DAMAGED if damaged else 0)


def examine(place: KnowledgePlace) -> Iterator[Finding]:
    """What there is, in the order in which it depends on each other. Nothing is begun."""
    vectors = load_embedder(place.embedder)
    yield Finding("embedder", True, f"{place.embedder}, fingerprint {vectors.fingerprint[:12]}")
    yield _parquet()
    file = place.folder / FILE_NAME
    lost = lost_changes(file)
    if lost:
        yield Finding(
            "truth", False, f"gone: {file}, of which the indexes saw {lost} changes", IMPORT
        )
        return
    if not file.is_file() or not file.stat().st_size:
        yield Finding("folder", False, f"nothing in {place.folder} yet", BUILD)
        return
    sizes = ", ".join(
        f"{name} {size_words(_bytes(place.folder / part))}"
        for name, part in (
            ("truth", FILE_NAME),
            ("vectors", "vectors"),
            ("structures", "structures"),
        )
    )
    yield Finding("folder", True, f"{place.folder}: {sizes}")
    damage = database_damage(file)
    if damage is not None:
        yield Finding("truth", False, f"damaged: {damage}", f"{BUILD}: saves what can be read")
        return
    mended: list[str] = []
    with open_knowledge_store(place.folder, mended.append) as truth:
        last = truth.last_seq
        yield Finding("truth", True, f"whole: {truth.count()} entries, change {last}")
    yield from _indexes(place, last)


def _indexes(place: KnowledgePlace, last: int) -> Iterator[Finding]:
    mended: list[str] = []
    folder = place.folder / "vectors"
    dense = open_vectors(place.chroma or folder, load_embedder(place.embedder), mended.append)
    for line in mended:
        yield Finding("vectors", False, line, BUILD)
    yield _lag("vectors", dense.seq, last)
    mended.clear()
    structures = StructureIndex(
        place.folder / "structures", op_vector, similarity, VECTORS, mended.append
    )
    for line in mended:
        yield Finding("structures", False, line, BUILD)
    yield _lag("structures", structures.seq, last)


def _lag(name: str, seq: int, last: int) -> Finding:
    if seq == last:
        return Finding(name, True, f"up to date at change {seq}")
    if seq > last:
        return Finding(name, False, f"of another truth: at change {seq}, which has {last}", BUILD)
    return Finding(name, False, f"{last - seq} changes behind: at {seq} of {last}", BUILD)


def _parquet() -> Finding:
    if find_spec("pyarrow") is not None:
        return Finding("parquet", True, "can be imported")
    return Finding(
        "parquet", False, "pyarrow is not installed", "pip install '.[import]' in the clone"
    )


def _bytes(path: Path) -> int:
    """A file's size, or of all files of a folder."""
    files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
    return sum(item.stat().st_size for item in files)


def evaluate_search(flags: EvaluateSearchFlags) -> None:
    """`agentkernel knowledge eval`."""
    questions = read_questions(flags.folder, structure_of_code)
    place = require_if_named(place_of(flags.knowledge))
    with open_knowledge(place) as base:
        with indexing_progress(silent=flags.as_json) as progress:
            base.refresh(progress)
        found = outcomes(base, questions)
    gaps = sum(not question.answers for question in questions)
    if flags.as_json:
        print_json({"gaps": gaps, "outcomes": [item.model_dump(mode="json") for item in found]})
        return
    screen = console()
    screen.print(table(found))
    screen.print(f"{gaps} of {len(questions)} questions have no answer here and are not asked")
    screen.print(f"not among the first 5: {', '.join(found[-1].missed) or 'none'}", markup=False)


def outcomes(
    base: KnowledgeBase, questions: Sequence[LabelledQuestion]
) -> tuple[SearchOutcome, ...]:
    """A library's BM25 tuned on the same questions, the dense index alone, and all of it."""

    def search(query: Query) -> list[str]:
        return [hit.entry.id for hit in base.search(query)]

    def dense(query: Query) -> list[str]:
        return [hit.entry.id for hit in base.search(query, DENSE_ONLY)]

    tuning, lexical = tuned_bm25(tuple(base.truth.select(Filters())), questions)
    name = f"words only (BM25, k1 {tuning.k1:g}, b {tuning.b:g}, {tuning.field})"
    return (
        lexical.evolve(name=name),
        ask("meaning only", questions, dense),
        ask("all", questions, search),
    )


def table(found: Sequence[SearchOutcome]) -> Table:
    """A row a way of searching and kind of question."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("search")
    shown.add_column("questions")
    for heading in ("n", "recall@1", "recall@5", "recall@10", "MRR", "p50 ms", "p95 ms"):
        shown.add_column(heading, justify="right")
    for item in found:
        for kind, score in item.by_kind.items():
            shown.add_row(
                item.name if kind == "all" else "",
                kind,
                str(score.questions),
                *(f"{score.recall[depth]:.2f}" for depth in sorted(score.recall)),
                f"{score.mrr:.2f}",
                f"{score.p50_ms:.1f}",
                f"{score.p95_ms:.1f}",
            )
    return shown
