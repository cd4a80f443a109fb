"""`agentkernel knowledge generate`: pairs of a module and a judged kernel, made from a folder."""

from __future__ import annotations

import typer

from agentkernel.cli.configuration import settings_from
from agentkernel.cli.console import console, indexing_progress
from agentkernel.cli.knowledge.options import GenerateFlags
from agentkernel.cli.knowledge.place import (
    licence_name,
    open_knowledge,
    place_of,
    print_to_stderr,
)
from agentkernel.cli.terminal import print_json
from agentkernel.domain.base import sha256_text
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.domain.plain_text import plain_line
from agentkernel.runtime.machine import local_gpu
from agentkernel.training.data.knowledge_pairs import Report, fresh_problems, generate_pairs

GENERATED = "generated/"
"""How the ids of generated pairs begin."""


def generate(flags: GenerateFlags) -> None:
    """`agentkernel knowledge generate`."""
    licence = licence_name("--licence", flags.licence)
    chosen = settings_from(flags.knowledge.settings, {"target": flags.target}).target
    with open_knowledge(place_of(flags.knowledge)) as base:
        truth = base.truth
        known = {
            sha256_text(entry.problem)
            for entry in truth.select(Filters(kinds=("pair",)))
            if entry.id.startswith(GENERATED)
        }

        def put(entry: Entry) -> None:
            truth.put([entry])

        made = generate_pairs(
            fresh_problems(flags.folder, known, flags.limit),
            put,
            target=chosen or ("h100" if local_gpu() is None else "local"),
            jobs=flags.jobs,
            say=(lambda line: None) if flags.as_json else print_to_stderr,
            verify=not flags.no_verify,
            licence=licence,
        )
        with indexing_progress(silent=flags.as_json) as progress:
            base.refresh(progress)
    if flags.as_json:
        print_json(made)
    else:
        screen = console()
        for line in generated_lines(made):
            screen.print(line, markup=False)
    raise typer.Exit(1 if made.failed and not made.made else 0)


def generated_lines(made: Report) -> list[str]:
    """What became of the modules."""
    lines = [
        f"{made.made} pairs of {made.found} modules ({made.known} were known): "
        f"{made.verified_gpu} verified on a GPU, {made.verified_interpreter} in the interpreter, "
        f"{made.unverified} not verified, {len(made.failed)} without a pair ({made.seconds:.0f} s)"
    ]
    lines += [f"  {miss.file}: {miss.stage}: {miss.reason}" for miss in made.failed[:10]]
    return [plain_line(line) for line in lines]
