"""`agentkernel knowledge doctor`: is the knowledge whole, and are its indexes up to date?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from agentkernel.cli.knowledge.knowledge_options import Chroma, EmbedderName, Where
from agentkernel.cli.options import AsJson, ConfigFile, Overrides

if TYPE_CHECKING:
    from agentkernel.cli.knowledge.knowledge_options import KnowledgePlace

EXIT_DAMAGED = 4
BUILD = "agentkernel knowledge build"
IMPORT = "agentkernel knowledge import FILE, with an export of yours"


class Finding(NamedTuple):
    """One line: what was looked at, whether it is well, what was found, and what mends it."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def check_knowledge(
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check the folder, its file and its indexes; exit 4 where the file is damaged or gone."""
    from agentkernel.cli.knowledge.knowledge_options import place_of
    from agentkernel.cli.output import console, print_json

    findings = list(examine(place_of(where, chroma, embedder, overrides, config)))
    damaged = any(item.name == "truth" and not item.ok for item in findings)
    if as_json:
        print_json({"ok": not damaged, "findings": [item._asdict() for item in findings]})
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        for item in findings:
            mend = f"Next: {item.mend}" if item.mend else ""
            table.add_row(item.name, "ok" if item.ok else "!", Text(item.found), Text(mend))
        console().print(table)
    raise typer.Exit(EXIT_DAMAGED if damaged else 0)


def examine(place: KnowledgePlace) -> Iterator[Finding]:
    """What there is, in the order in which it depends on each other. Nothing is begun."""
    from agentkernel.cli.knowledge.knowledge_show import size_words
    from agentkernel.knowledge.damage import database_damage
    from agentkernel.knowledge.embedding import load_embedder
    from agentkernel.knowledge.truth import open_knowledge_store
    from agentkernel.knowledge.truth_recovery import lost_changes
    from agentkernel.knowledge.truth_schema import FILE_NAME

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
    from agentkernel.knowledge.embedding import load_embedder
    from agentkernel.knowledge.graph_structure import VECTORS, op_vector, similarity
    from agentkernel.knowledge.structures import StructureIndex
    from agentkernel.knowledge.vectors import open_vectors

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
    from importlib.util import find_spec

    if find_spec("pyarrow") is not None:
        return Finding("parquet", True, "can be imported")
    return Finding(
        "parquet", False, "pyarrow is not installed", "pip install 'agentkernel[import]'"
    )


def _bytes(path: Path) -> int:
    """A file's size, or of all files of a folder."""
    files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
    return sum(item.stat().st_size for item in files)
