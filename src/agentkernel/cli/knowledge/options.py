"""Flags of the knowledge commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.options import AsJson, Setting, SettingsFlags, TargetName

Where = Annotated[
    Path | None,
    typer.Option("--where", metavar="FOLDER", help="The knowledge folder; the user's own."),
    Setting("knowledge.index"),
]
Chroma = Annotated[
    str | None,
    typer.Option("--chroma", metavar="URL", help="A Chroma server that holds the vectors."),
]
EmbedderName = Annotated[
    str | None,
    typer.Option("--embedder", help="static, or sentence-transformers:NAME_OR_FOLDER."),
    Setting("knowledge.embedder"),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", help="pair, kernel, note, fix or experience alone. May be repeated."),
]
Licences = Annotated[
    list[str] | None, typer.Option("--licence", help="This licence alone. May be repeated.")
]
VerifiedStates = Annotated[
    list[str] | None,
    typer.Option("--verified", help="gpu, interpreter or no: seen to be right there. Repeat."),
]


@dataclass(frozen=True)
class KnowledgeFolder:
    """Where the knowledge lies, and what makes vectors of it."""

    where: Where = None
    chroma: Chroma = None
    embedder: EmbedderName = None
    settings: SettingsFlags = SettingsFlags()


@dataclass(frozen=True)
class EntriesFolder:
    """Where the entries lie, for who needs no vectors."""

    where: Where = None
    settings: SettingsFlags = SettingsFlags()


@dataclass(frozen=True)
class BuildFlags:
    """Take in what the package brings and bring the indexes up to date; again at any time."""

    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class GenerateFlags:
    """Make pairs of a folder of modules with TorchInductor; exit 1 where none could be made."""

    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Problems in the KernelBench convention. They run."),
    ]
    target: TargetName = None
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Modules worked on at once.")] = 1
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="New modules to take at most.")
    ] = None
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not ask the judge.")] = False
    licence: Annotated[str, typer.Option("--licence", help="Of the modules and of the pairs.")] = (
        "Apache-2.0"
    )
    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class CheckFlags:
    """Check the folder, its file and its indexes; exit 4 where the file is damaged or gone."""

    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class EvaluateSearchFlags:
    """Ask labelled questions: recall, MRR and time by words only, by meaning only, by all."""

    folder: Annotated[
        Path, typer.Argument(help="Folder with questions and judgements.", metavar="[FOLDER]")
    ] = Path("benchmarks/retrieval")
    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class SearchFlags:
    """Find pairs, kernels, notes and fixes by words, by a module or by an error."""

    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORDS]...", help="Plain words.")
    ] = None
    module: Annotated[
        Path | None,
        typer.Option("--module", help="A PyTorch file: what computes the same? Not run."),
    ] = None
    error: Annotated[
        str | None,
        typer.Option(
            "--error", metavar="FILE|-", help="The file of a log or an error; - reads stdin."
        ),
    ] = None
    kinds: Kinds = None
    arch: Annotated[
        str | None,
        typer.Option("--arch", help="Leave out what is for other families: hopper, sm_90."),
    ] = None
    licences: Licences = None
    verified: VerifiedStates = None
    limit: Annotated[int, typer.Option("--limit", min=1, help="Hits at most.")] = 6
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="About so many tokens of hits at most.")
    ] = None
    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class ShowEntryFlags:
    """Show an entry whole, also one that is found no more."""

    entry_id: Annotated[str, typer.Argument(metavar="ID", help="As search shows it: notes/hopper.")]
    history: Annotated[bool, typer.Option("--history", help="Also what it was before.")] = False
    knowledge: EntriesFolder = EntriesFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class StatsFlags:
    """Count the entries by kind, licence, verification and source."""

    knowledge: EntriesFolder = EntriesFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class AddFlags:
    """Add a pair of your own: a PyTorch file and its Triton code, read and never run."""

    problem: Annotated[Path, typer.Argument(metavar="PROBLEM", help="PyTorch file. Not run.")]
    answer: Annotated[Path, typer.Option("--answer", help="Its Triton code. Not run.")]
    title: Annotated[str | None, typer.Option("--title", help="One line; made from the code.")] = (
        None
    )
    licence: Annotated[
        str | None, typer.Option("--licence", help="Of both files: Apache-2.0; not stated.")
    ] = None
    source: Annotated[
        str | None, typer.Option("--source", help="Where it is from; the file's name.")
    ] = None
    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False


ExportFile = Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; gzip for .gz.")]


@dataclass(frozen=True)
class ExportFlags:
    """Write the entries into a file, a line of JSON each, to bring them to another machine."""

    path: ExportFile
    kinds: Kinds = None
    licences: Licences = None
    verified: VerifiedStates = None
    knowledge: EntriesFolder = EntriesFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class ImportFlags:
    """Take in an export; all of it is somebody else's word, and its sources say so."""

    path: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; gzip for .gz.")]
    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False


@dataclass(frozen=True)
class ImportKernelbookFlags:
    """Take in published pairs such as KernelBook; the same call goes on after a kill."""

    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A parquet or JSON file, or a folder of them.")
    ]
    permitted: Annotated[
        list[str] | None,
        typer.Option(
            "--licence", help="Take this licence, in place of the permissive ones. Repeat."
        ),
    ] = None
    licence_if_missing: Annotated[
        str, typer.Option("--licence-if-missing", help="The licence of rows that name none.")
    ] = ""
    allow_any_licence: Annotated[
        bool, typer.Option("--allow-any-licence", help="Take every row, whatever its licence.")
    ] = False
    knowledge: KnowledgeFolder = KnowledgeFolder()
    as_json: AsJson = False
