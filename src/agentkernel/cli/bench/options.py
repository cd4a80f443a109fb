"""Flags of `agentkernel bench` and `redteam`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.options import (
    AllowUnsandboxed,
    AsJson,
    CoderName,
    Configured,
    ModelLimits,
    Models,
    TargetName,
)


@dataclass(frozen=True)
class RedteamFlags:
    """Judge a corpus of hostile and honest candidates; exit 0 all as expected, else 3."""

    corpus: Annotated[
        Path, typer.Option("--corpus", help="Folder with hostile/, honest/ and problems/.")
    ] = Path("tests/redteam")
    only: Annotated[
        list[str] | None, typer.Option("--only", help="This candidate alone. May be repeated.")
    ] = None
    write: Annotated[
        Path | None, typer.Option("--write", help="Put the table into this Markdown file.")
    ] = None
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal", help="Note each finding here; the same call goes on after a kill."
        ),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes that judge at once; by the cores."),
    ] = None
    allow_unsandboxed: AllowUnsandboxed = False
    as_json: AsJson = False


@dataclass(frozen=True)
class BenchFlags:
    """Measure a coder on a suite; the same call goes on after a kill. Or compare two benches."""

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SUITE | compare A B",
            help="A folder with problem files, or with one folder of them a level; "
            "or the folders of two benches to compare.",
        ),
    ]
    coder: CoderName = None
    models: Models = Models()
    limits: ModelLimits = ModelLimits()
    target: TargetName = None
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Runs of the coder a problem.")
    ] = 1
    devices: Annotated[
        str | None, typer.Option("--devices", help="GPUs, --lanes processes each: 0,1; or cpu,cpu.")
    ] = None
    lanes: Annotated[
        int | None,
        typer.Option("--lanes", min=1, help="Problems that share a GPU; timing takes turns."),
    ] = None
    budget: Annotated[
        float | None, typer.Option("--budget", min=1.0, help="Seconds a sample may take.")
    ] = None
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Names that contain this. May be repeated.")
    ] = None
    problems: Annotated[
        Path | None,
        typer.Option("--problems", help="File with the names of some problems, a line each."),
    ] = None
    shard: Annotated[
        str | None, typer.Option("--shard", help="Part i of n alone: 2/5. The parts' rows merge.")
    ] = None
    max_autotune: Annotated[
        bool | None,
        typer.Option("--max-autotune/--no-max-autotune", help="A third baseline, slow to build."),
    ] = None
    autotune_limit: Annotated[
        float | None,
        typer.Option("--autotune-limit", min=1.0, help="Seconds max-autotune may take."),
    ] = None
    experience: Annotated[
        bool,
        typer.Option(
            "--experience", help="Use and keep what runs learn; a yardstick by default does not."
        ),
    ] = False
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the rows; ./agentkernel-bench/SUITE.")
    ] = None
    configured: Configured = Configured()
    as_json: AsJson = False
