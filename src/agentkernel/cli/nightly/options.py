"""Flags of `agentkernel batch` and of the commands of `library`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.options import (
    AllowUnsandboxed,
    AsJson,
    Configured,
    Drafting,
    Runs,
    SettingsFlags,
    TargetName,
    TimeLimit,
    Unpickle,
)

MOST_LISTED = 100
"""Kernels that are listed for people without --limit, and keys and times that are shown of one."""


@dataclass(frozen=True)
class BatchFlags:
    """Optimise a list of problems, or the models of a zoo; the same call goes on after a kill."""

    list_file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.yaml",
            help="'problems:' with files or 'file:' entries; or a zoo, 'models:', or a packaged "
            "one's name: tiny, transformers.",
        ),
    ]
    target: TargetName = None
    drafting: Drafting = Drafting()
    time: TimeLimit = None
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", help="A zoo's jobs on Ray: auto, local, ray://HOST:PORT."
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="A zoo's jobs at a time; one a GPU at least."),
    ] = None
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare", help="An earlier night of the zoo: last (default), last-green, or an id."
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of a night's reports; ./agentkernel-nights/ZOO/ID."),
    ] = None
    library: Annotated[
        Path | None, typer.Option("--library", help="File of the verified kernels; the user's own.")
    ] = None
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="MODEL", help="Of a zoo. May be repeated.")
    ] = None
    configured: Configured = Configured()
    as_json: AsJson = False


LibraryFile = Annotated[
    Path | None,
    typer.Option("--library", metavar="PATH", help="The library's file; the user's own."),
]


@dataclass(frozen=True)
class LibraryListFlags:
    """List the kernels, oldest first."""

    path: LibraryFile = None
    valid: Annotated[bool, typer.Option("--valid", help="Leave out what was withdrawn.")] = False
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, help=f"The newest so many; without it {MOST_LISTED}, with --json all."
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class LibraryShowFlags:
    """Show a kernel whole, under each of its keys: figures, evidence, source."""

    sha256: Annotated[
        str, typer.Argument(metavar="SHA", help="The first digits of a kernel's hash.")
    ]
    path: LibraryFile = None
    as_json: AsJson = False


@dataclass(frozen=True)
class LibraryExportFlags:
    """Write sources, certificates and an index that are read without this tool."""

    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new folder, or an old export.")
    ]
    path: LibraryFile = None
    withdrawn: Annotated[bool, typer.Option("--withdrawn", help="Also what was withdrawn.")] = False
    modules: Annotated[
        bool, typer.Option("--modules", help="Also the pickled modules that a replay needs.")
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class LibraryPruneFlags:
    """Show what would be dropped; --yes drops it."""

    path: LibraryFile = None
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DAYS", min=0.0, help="Not verified for so long."),
    ] = None
    withdrawn: Annotated[bool, typer.Option("--withdrawn", help="Those that were withdrawn.")] = (
        False
    )
    other_versions: Annotated[
        bool, typer.Option("--other-versions", help="Those for another torch or triton than here.")
    ] = False
    keep_gpu: Annotated[
        str | None, typer.Option("--keep-gpu", metavar="NAME", help="Those for any other GPU.")
    ] = None
    nights_older_than: Annotated[
        float | None,
        typer.Option(
            "--nights-older-than", metavar="DAYS", min=0.0, help="Nights and jobs from before."
        ),
    ] = None
    newest_too: Annotated[
        bool, typer.Option("--all", help="Also the newest valid kernel of a signature.")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", help="Drop them; without it they are only shown.")
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class LibraryVerifyFlags:
    """Judge kernels again and withdraw what no longer verifies; exit 6 where there was such."""

    sha256: Annotated[
        str | None, typer.Argument(metavar="[SHA]", help="The first digits of a kernel's hash.")
    ] = None
    every: Annotated[bool, typer.Option("--all", help="All kernels that may be used.")] = False
    path: LibraryFile = None
    runs_folder: Runs = None
    settings: SettingsFlags = SettingsFlags()
    unpickle: Unpickle = False
    allow_unsandboxed: AllowUnsandboxed = False
    as_json: AsJson = False
