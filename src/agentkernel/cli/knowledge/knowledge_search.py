"""`agentkernel knowledge search`: what is known about these words, this module or this error?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from agentkernel.cli.knowledge.knowledge_options import (
    Chroma,
    EmbedderName,
    Kinds,
    Licences,
    VerifiedStates,
    Where,
)
from agentkernel.cli.options import AsJson, ConfigFile, Overrides

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agentkernel.domain.knowledge import Entry, Filters, Hit, Query, Score

PREVIEW_LINES = 8
INDENT = 3
ERROR_LINES = 30
"""An error is named at the end of a log: the last lines are asked for, the last one first."""
ERROR_CHARACTERS = 4000
LOG_BYTES = 2**20
"""The end of a log in which the line of a fix is looked for."""
STDIN = "-"
Words = Annotated[list[str] | None, typer.Argument(metavar="[WORDS]...", help="Plain words.")]
ModuleFile = Annotated[
    Path | None, typer.Option("--module", help="A PyTorch file: what computes the same? Not run.")
]
ErrorFile = Annotated[
    str | None, typer.Option("--error", metavar="FILE|-", help="A log or an error; -: from stdin.")
]
Architecture = Annotated[
    str | None, typer.Option("--arch", help="Leave out what is for other families: hopper, sm_90.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Hits at most.")]
Tokens = Annotated[
    int | None, typer.Option("--tokens", min=1, help="About so many tokens of hits at most.")
]


def search(
    words: Words = None,
    module: ModuleFile = None,
    error: ErrorFile = None,
    kinds: Kinds = None,
    arch: Architecture = None,
    licences: Licences = None,
    verified: VerifiedStates = None,
    limit: Limit = 6,
    tokens: Tokens = None,
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Find pairs, kernels, notes and fixes by words, by a module or by an error."""
    from agentkernel.cli.knowledge.knowledge_options import (
        filters_of,
        match_licences,
        open_knowledge,
        place_of,
        require_if_named,
    )
    from agentkernel.cli.knowledge.knowledge_text import readable
    from agentkernel.cli.knowledge_progress import indexing_progress
    from agentkernel.cli.output import console, print_json

    filters = filters_of(kinds, licences, verified, arch)
    log = "" if error is None else error_text(error)
    query = query_of(readable(" ".join(words or ())), module, log, filters, limit, tokens)
    place = require_if_named(place_of(where, chroma, embedder, overrides, config))
    with open_knowledge(place) as base:
        with indexing_progress(silent=as_json) as progress:
            base.refresh(progress, wait=False)
        hits = base.search(
            query.model_copy(update={"filters": match_licences(filters, base.truth)})
        )
    if as_json:
        print_json({"hits": [hit.model_dump(mode="json") for hit in hits]})
        return
    screen = console()
    for rank, hit in enumerate(hits, start=1):
        for part in hit_lines(rank, hit):
            screen.print(part, markup=False)
    if not hits:
        screen.print("Nothing found. Next: fewer or other words, or fewer filters.")


def query_of(
    words: str,
    module: Path | None,
    log: str,
    filters: Filters,
    limit: int,
    tokens: int | None,
) -> Query:
    """The question that the flags ask; `log` is the text of an error.

    Raises SettingError for no question, ProblemError for a file without a module.
    """
    from agentkernel.domain.errors import SettingError
    from agentkernel.domain.knowledge import Query
    from agentkernel.knowledge.code_structure import structure_of_code

    end = last_lines(log)
    code = "" if module is None else module_text(module)
    if not (words.strip() or code or end):
        raise SettingError(
            "search got nothing to look for. Expected WORDS, --module FILE or --error FILE. "
            "Next: agentkernel knowledge search softmax over rows"
        )
    return Query(
        text="\n".join(part for part in (words, end, code) if part.strip()),
        # The first words count most, so its end leads; a fix's own line is found in the whole.
        words="\n".join(part for part in (words, end, log) if part.strip()),
        structure=structure_of_code(code) if code else None,
        filters=filters,
        limit=limit,
        tokens=tokens,
    )


def module_text(path: Path) -> str:
    """The text of a file that holds a module class, read and never run. Raises ProblemError."""
    from agentkernel.domain.errors import ProblemError
    from agentkernel.knowledge.code_structure import module_class

    text = read_text(path)
    if module_class(text) is None:
        raise ProblemError(
            f"No module in {str(path)!r}. Expected Python with a class that has a forward. "
            "Next: name the file of the module."
        )
    return text


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises ProblemError where there is none."""
    from agentkernel.domain.errors import ProblemError, one_line

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else one_line(error, 80)
        raise ProblemError(
            f"Cannot read {str(path)!r}: {what}. Expected a text file. Next: check the path."
        ) from error


def error_text(where: str) -> str:
    """The last `LOG_BYTES` of a file, or of stdin for "-"; what is no UTF-8 is replaced.

    Raises ProblemError where there is no such file.
    """
    from agentkernel.domain.errors import ProblemError

    try:
        if where == STDIN:
            log = _end_of(sys.stdin.buffer)
        else:
            with Path(where).open("rb") as file:
                log = _end_of(file)
    except OSError as error:
        raise ProblemError(
            f"Cannot read {where!r}: {error.strerror}. Expected a log. Next: check the path."
        ) from error
    return log.decode("utf-8", "replace")


def _end_of(file: BinaryIO) -> bytes:
    end = b""
    while block := file.read(LOG_BYTES):
        end = (end + block)[-LOG_BYTES:]
    return end


def last_lines(text: str) -> str:
    """The last `ERROR_LINES` lines that are not empty, the last one first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(reversed(lines[-ERROR_LINES:]))[:ERROR_CHARACTERS]


def hit_lines(rank: int, hit: Hit) -> list[RenderableType]:
    """A hit for the screen: what it is, where it comes from, why it is here, how it begins."""
    from rich.padding import Padding
    from rich.text import Text

    from agentkernel.cli.knowledge.knowledge_show import code_or_text, licence_words
    from agentkernel.domain.plain_text import plain_line

    entry = hit.entry
    facts = (entry.id, entry.kind, entry.source, licence_words(entry), verified_words(entry))
    parts: list[RenderableType] = [
        Text(" | ".join(plain_line(fact) for fact in facts if fact)),
        Text(score_words(hit.score)),
        code_or_text(entry, preview(entry)),
    ]
    return [
        Text(f"{rank}. {plain_line(entry.title)}", style="bold"),
        *(Padding(part, (0, 0, 0, INDENT), expand=False) for part in parts),
        "",
    ]


def verified_words(entry: Entry) -> str:
    """For people: where the answer was seen to be right. Notes and fixes have no such state."""
    if not entry.problem:
        return ""
    by = f", triton {entry.triton}" if entry.triton else ""
    return {
        "gpu": f"verified on a GPU{by}",
        "interpreter": f"verified in the interpreter{by}",
        "no": "not verified",
    }[entry.verified]


def score_words(score: Score) -> str:
    """The ranks in the lists, and what was made of them."""
    ranks = (
        ("dense", score.dense_rank),
        ("lexical", score.lexical_rank),
        ("structural", score.structural_rank),
    )
    named = ", ".join(f"{name} {'-' if rank is None else rank}" for name, rank in ranks)
    return f"score {score.fused:.4f} (ranks: {named})"


def preview(entry: Entry) -> str:
    """The first lines of the answer; of code from the first kernel on."""
    lines = [line for line in entry.answer.splitlines() if line.strip()]
    kernels = (place for place, line in enumerate(lines) if line.startswith("@triton"))
    first = next(kernels, 0) if entry.problem else 0
    return "\n".join(lines[first : first + PREVIEW_LINES])
