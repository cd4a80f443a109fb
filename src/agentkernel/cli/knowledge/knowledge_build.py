"""`agentkernel knowledge build` and `generate`: how is the knowledge made ready, and more of it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.knowledge.knowledge_options import Chroma, EmbedderName, Where
from agentkernel.cli.options import AsJson, ConfigFile, Overrides, TargetName

if TYPE_CHECKING:
    from agentkernel.domain.knowledge import Entry
    from agentkernel.training.data.knowledge_pairs import Report

OWN_LICENCE = "Apache-2.0"
GENERATED = "generated/"
"""How the ids of generated pairs begin."""
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Problems in the KernelBench convention. They run.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Modules worked on at once.")]
MostModules = Annotated[
    int | None, typer.Option("--limit", min=1, help="New modules to take at most.")
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not ask the judge.")]
PairLicence = Annotated[str, typer.Option("--licence", help="Of the modules and of the pairs.")]


def build(
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Take in what the package brings and bring the indexes up to date; again at any time."""
    from agentkernel.cli.knowledge.knowledge_options import open_knowledge, place_of
    from agentkernel.cli.knowledge_progress import indexing_progress
    from agentkernel.cli.output import console, print_json

    place = place_of(where, chroma, embedder, overrides, config)
    with open_knowledge(place) as base:
        with indexing_progress(silent=as_json) as progress:
            built = base.refresh(progress)
        entries, last = base.truth.count(), base.truth.last_seq
    if as_json:
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


def generate(
    folder: Folder,
    target: TargetName = None,
    jobs: Jobs = 1,
    limit: MostModules = None,
    no_verify: NoVerify = False,
    licence: PairLicence = OWN_LICENCE,
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Make pairs of a folder of modules with TorchInductor; exit 1 where none could be made."""
    from agentkernel.cli.knowledge.knowledge_options import (
        licence_name,
        open_knowledge,
        place_of,
        print_to_stderr,
    )
    from agentkernel.cli.knowledge_progress import indexing_progress
    from agentkernel.cli.output import console, print_json
    from agentkernel.domain.base import sha256_text
    from agentkernel.domain.knowledge import Filters
    from agentkernel.knowledge.code_structure import structure_of_code
    from agentkernel.runtime.devices import local_gpu
    from agentkernel.storage.settings import load_settings
    from agentkernel.training.data.knowledge_pairs import generate_pairs

    licence = licence_name("--licence", licence)
    chosen = load_settings(config, overrides or (), {"target": target}).target
    with open_knowledge(place_of(where, chroma, embedder, overrides, config)) as base:
        truth = base.truth
        known = {
            sha256_text(entry.problem)
            for entry in truth.select(Filters(kinds=("pair",)))
            if entry.id.startswith(GENERATED)
        }

        def put(entry: Entry) -> None:
            truth.put([entry])

        made = generate_pairs(
            folder,
            put,
            target=chosen or ("h100" if local_gpu() is None else "local"),
            jobs=jobs,
            say=(lambda line: None) if as_json else print_to_stderr,
            limit=limit,
            verify=not no_verify,
            known=known.__contains__,
            licence=licence,
            structure_of=structure_of_code,
        )
        with indexing_progress(silent=as_json) as progress:
            base.refresh(progress)
    if as_json:
        print_json(made)
    else:
        screen = console()
        for line in generated_lines(made):
            screen.print(line, markup=False)
    raise typer.Exit(1 if made.failed and not made.made else 0)


def generated_lines(made: Report) -> list[str]:
    """What became of the modules."""
    from agentkernel.domain.plain_text import plain_line

    lines = [
        f"{made.made} pairs of {made.found} modules ({made.known} were known): "
        f"{made.verified_gpu} verified on a GPU, {made.verified_interpreter} in the interpreter, "
        f"{made.unverified} not verified, {len(made.failed)} without a pair ({made.seconds:.0f} s)"
    ]
    lines += [f"  {miss.file}: {miss.stage}: {miss.reason}" for miss in made.failed[:10]]
    return [plain_line(line) for line in lines]
