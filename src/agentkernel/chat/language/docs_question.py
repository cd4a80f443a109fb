"""Questions to the documentation."""

from __future__ import annotations

from agentkernel.chat.language.tagging import Pattern, Tag, text_of
from agentkernel.chat.requests import AskDocs, Intent

REPORT = Pattern(
    r"^(?:(?:but|and|well|so|since|because) )*(?:the |your |its |our )?(?:\w+ )?"
    r"(?:docs?|documentation|manuals?|handbook|reference)(?: docs)? "
    r"(?:says?|said|tells?|told|claims?|recommends?|suggests?|states?|mentions?)\b"
)


def docs_question(tags: list[Tag], shown: str) -> Intent | None:
    """A question to the documentation; its own words are taken as typed."""
    words = [tag for tag in tags if not tag.has("MARK")]
    if any(tag.has("NEG") for tag in words):
        return None
    if _quotes_the_docs(words):
        return None
    about = {"for", "about", "on", "regarding"}
    docs = [at for at, tag in enumerate(tags) if tag.has("DOCS") and not tag.has("CAND", "PLACE")]
    asks = [at for at, tag in enumerate(tags) if tag.text in ("look up", "search for", "google")]
    if docs:
        behind = docs[-1] + 1
        if behind < len(tags) and tags[behind].text == "say":
            behind += 1
        while behind < len(tags) and tags[behind].text in about | {"to", "how", "what", ":"}:
            behind += 1
        if any(not tag.has("MARK", "FILLER", "THIS") for tag in tags[behind:]):
            return _query(tags[behind:], shown)
        starts = [at for at in range(docs[-1]) if tags[at].has("SEARCH") or tags[at].text in about]
        first = next((at for at in starts if tags[at].has("SEARCH")), None)
        if first is not None:
            return _query(_without_edges(tags[first + 1 : docs[-1]]), shown)
        return None
    if asks and asks[0] == next((at for at, tag in enumerate(tags) if not _edge(tag)), None):
        return _query(tags[asks[0] + 1 :], shown)
    return None


def _quotes_the_docs(tags: list[Tag]) -> bool:
    """True for "the manual says to use tf32": a report."""
    text = text_of(tags)
    return bool(REPORT.match(text)) and tags[-1].text != "?"


def _edge(tag: Tag) -> bool:
    return tag.has("FILLER", "PREP", "POLITE", "MARK", "THIS", "SEP", "MAY", "DOCS")


def _without_edges(tags: list[Tag]) -> list[Tag]:
    """Without "for" before and "in the" behind."""
    while tags and (tags[-1].has("PREP", "MARK") or tags[-1].text in ("the", "triton", "our")):
        tags = tags[:-1]
    while tags and tags[0].text in ("for", "about", "on", "up"):
        tags = tags[1:]
    return tags


def _query(tags: list[Tag], shown: str) -> Intent | None:
    if not tags:
        return None
    query = shown[tags[0].start : tags[-1].end].strip(" .,;:!?\"'")
    return AskDocs(query=query) if query else None
