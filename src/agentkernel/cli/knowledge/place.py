"""The folder, server and embedder of the knowledge commands, and the entries let through."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from agentkernel.cli.configuration import settings_from
from agentkernel.cli.knowledge.options import EntriesFolder, KnowledgeFolder
from agentkernel.cli.options import settings_of
from agentkernel.cli.rendering.text import PlainConsole
from agentkernel.domain.errors import KnowledgeError, SettingError
from agentkernel.domain.knowledge import EntryKind, Filters, Verified
from agentkernel.domain.plain_text import plain_line
from agentkernel.knowledge.base import KnowledgeBase, checked_server, open_base
from agentkernel.knowledge.documents import ARCHITECTURES, family_of
from agentkernel.knowledge.store import KnowledgeStore, folder_of, open_knowledge_store
from agentkernel.knowledge.store_schema import FILE_NAME
from agentkernel.knowledge.transfer import NO_LICENCE

KNOWN_LICENCES = 12
"""How many of the licences there are here a line names, the most frequent first."""


class KnowledgePlace(NamedTuple):
    """Where the knowledge lies, and what makes vectors of it."""

    folder: Path
    chroma: str | None
    embedder: str
    named: bool = False
    """Whether a flag names the folder: then it is to be there already for who only reads."""


def place_of(flags: KnowledgeFolder | EntriesFolder) -> KnowledgePlace:
    """The flags, else the settings, else the user's folder. Raises SettingError."""
    chroma = flags.chroma if isinstance(flags, KnowledgeFolder) else None
    options = settings_from(flags.settings, settings_of(flags)).knowledge
    folder = folder_of(options.index)
    if chroma is not None:
        checked_server(chroma)
    return KnowledgePlace(folder, chroma, options.embedder, flags.where is not None)


def require_knowledge(place: KnowledgePlace) -> KnowledgePlace:
    """`place`, where there is knowledge: who reads begins no folder. Raises KnowledgeError."""
    if not (place.folder / FILE_NAME).is_file():
        flag = f" --where {str(place.folder)!r}" if place.named else ""
        raise KnowledgeError(
            f"No knowledge in {str(place.folder)!r}. Expected a folder that 'agentkernel knowledge "
            f"build' made. Next: check the path, or agentkernel knowledge build{flag}"
        )
    return place


def require_if_named(place: KnowledgePlace) -> KnowledgePlace:
    """As `require_knowledge`; a first search in the user's own folder begins it. Raises
    KnowledgeError."""
    return require_knowledge(place) if place.named else place


def open_knowledge(place: KnowledgePlace) -> KnowledgeBase:
    """All of it; what was fixed on opening is said on stderr."""
    return open_base(place.folder, place.embedder, chroma=place.chroma, say=print_to_stderr)


def open_entries(place: KnowledgePlace) -> KnowledgeStore:
    """The entries alone, without the indexes."""
    return open_knowledge_store(place.folder, print_to_stderr)


def print_to_stderr(line: str) -> None:
    """One line beside the answer."""

    PlainConsole(stderr=True).print(line, markup=False, highlight=False)


def filters_of(
    kinds: Sequence[str] | None,
    licences: Sequence[str] | None,
    verified: Sequence[str] | None,
    architecture: str | None = None,
) -> Filters:
    """What the flags let through. `architecture`: a family, or any name of an architecture.

    Raises SettingError for a kind, a state or an architecture that there is not.
    """
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


def match_licences(filters: Filters, truth: KnowledgeStore) -> Filters:
    """`filters` with the licences as the entries of `truth` spell them.

    Case does not count, and an entry under several licences is found by each. A name that no entry
    has is said on stderr.
    """
    if not filters.licences:
        return filters
    known = truth.stats().by_licence
    found: dict[str, None] = {}
    for asked in filters.licences:
        same = [name for name in known if asked.strip().lower() in _names_in(name)]
        found.update(dict.fromkeys(same or [readable(asked)]))
        if not same:
            names = [name or NO_LICENCE for name in known][:KNOWN_LICENCES]
            print_to_stderr(
                plain_line(
                    f"--licence is {asked!r}, which no entry has. Known here: "
                    f"{', '.join(names) or 'none'}."
                )
            )
    return filters.evolve(licences=tuple(found))


def _names_in(licence: str) -> set[str]:
    """The whole and its parts, in lower case: 'Apache-2.0, GPL-2.0' is two."""
    whole = licence.strip().lower() or NO_LICENCE
    return {whole, *(part.strip() for part in whole.split(","))}


def licence_name(flag: str, name: str) -> str:
    """The name of a licence that a flag gives. Raises SettingError for none."""
    if not name.strip():
        raise SettingError(
            f"{flag} is {name!r}. Expected the name of a licence: MIT, Apache-2.0. Next: name it, "
            "or leave the flag out."
        )
    return readable(name.strip())


def _unknown(flag: str, value: str, known: Sequence[str]) -> SettingError:
    return SettingError(
        f"{flag} is {value!r}. Expected one of {', '.join(known)}. Next: give one of these, or "
        "leave it out."
    )


REPLACED = "\ufffd"


def readable(text: str) -> str:
    """`text` with the bytes replaced that are no UTF-8 (Python hands them over as surrogates)."""
    return "".join(REPLACED if "\ud800" <= sign <= "\udfff" else sign for sign in text)
