"""Which flags do the knowledge commands share, and which folder, server and embedder are meant?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args

import typer

if TYPE_CHECKING:
    from agentkernel.domain.knowledge import Filters
    from agentkernel.errors import SettingError
    from agentkernel.knowledge.base import KnowledgeBase
    from agentkernel.knowledge.truth import Truth

Where = Annotated[
    Path | None,
    typer.Option("--where", metavar="FOLDER", help="The knowledge folder; the user's own."),
]
Chroma = Annotated[
    str | None,
    typer.Option("--chroma", metavar="URL", help="A Chroma server that holds the vectors."),
]
EmbedderName = Annotated[
    str | None,
    typer.Option("--embedder", help="static, or sentence-transformers:NAME_OR_FOLDER."),
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


class Place(NamedTuple):
    """Where the knowledge lies, and what makes vectors of it."""

    folder: Path
    chroma: str | None
    embedder: str


def place_of(
    where: Path | None,
    chroma: str | None,
    embedder: str | None,
    overrides: Sequence[str] | None,
    config: Path | None,
) -> Place:
    """The flags, else the settings, else the user's folder. Raises SettingError."""
    from agentkernel.knowledge.paths import default_folder
    from agentkernel.tools.settings import load_settings

    flags = {
        "knowledge.index": None if where is None else str(where),
        "knowledge.embedder": embedder,
    }
    options = load_settings(config, overrides or (), flags).knowledge
    folder = Path(options.index).expanduser() if options.index else default_folder()
    return Place(folder, chroma, options.embedder)


def opened_base(place: Place) -> KnowledgeBase:
    """All of it; what was mended on opening is said on stderr."""
    from agentkernel.knowledge.base import open_base

    return open_base(place.folder, place.embedder, chroma=place.chroma, say=say_on_stderr)


def opened_truth(place: Place) -> Truth:
    """The entries alone, without the indexes."""
    from agentkernel.knowledge.truth import open_truth

    return open_truth(place.folder, say_on_stderr)


def say_on_stderr(line: str) -> None:
    """One line beside the answer."""
    from rich.console import Console

    Console(stderr=True).print(line, markup=False, highlight=False)


def filters_of(
    kinds: Sequence[str] | None,
    licences: Sequence[str] | None,
    verified: Sequence[str] | None,
    architecture: str | None = None,
) -> Filters:
    """What the flags let through. `architecture`: a family, or any name of an architecture.

    Raises SettingError for a kind, a state or an architecture that there is not.
    """
    from agentkernel.domain.knowledge import EntryKind, Filters, Verified
    from agentkernel.knowledge.documents import ARCHITECTURES, family_of

    for flag, given, known in (
        ("--kind", kinds, get_args(EntryKind)),
        ("--verified", verified, get_args(Verified)),
    ):
        for value in given or ():
            if value not in known:
                raise _unknown(flag, value, known)
    family = None if architecture is None else family_of(architecture)
    if architecture is not None and family is None:
        raise _unknown("--arch", architecture, tuple(ARCHITECTURES))
    return Filters.model_validate(
        {
            "kinds": tuple(kinds or ()),
            "architecture": family,
            "licences": tuple(licences or ()),
            "verified": tuple(verified or ()),
        }
    )


def _unknown(flag: str, value: str, known: Sequence[str]) -> SettingError:
    from agentkernel.errors import SettingError

    return SettingError(
        f"{flag} is {value!r}. Expected one of {', '.join(known)}. Next: give one of these, or "
        "leave it out."
    )
