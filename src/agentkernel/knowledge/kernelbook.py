"""Import of published pairs of a PyTorch module and its Triton code.

Two layouts are read: the columns of GPUMODE/KernelBook
(https://huggingface.co/datasets/GPUMODE/KernelBook) and rows of a prompt and a completion with
the code in fences. Either may be parquet or JSON.
"""

from __future__ import annotations

import ast
import hashlib
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import SettingError, one_line
from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.code_structure import module_class, parsed, structure_of_code
from agentkernel.knowledge.pairs import NearDuplicates, rows_of, shards_of
from agentkernel.knowledge.store_schema import Progress
from agentkernel.storage.source_text import compile_source

PERMISSIVE = frozenset(
    {
        *("MIT", "MIT-0", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Clear"),
        *("0BSD", "ISC", "Zlib", "BSL-1.0", "Unlicense", "CC0-1.0", "Python-2.0", "PSF-2.0"),
        *("BSD", "NCSA", "WTFPL"),
    }
)
"""SPDX names of licences that ask for a notice at most of who stores or builds upon the code."""


@dataclass(frozen=True)
class LicenceRule:
    """Which rows may be kept: those whose licences are all `permitted` (None: any licence).
    `if_missing` is the licence of rows that name none, as of a set under one licence."""

    permitted: frozenset[str] | None = PERMISSIVE
    if_missing: str = ""

    def names(self, licences: Sequence[str]) -> tuple[str, ...]:
        """The licences of a row that names these."""
        return tuple(licences) or ((self.if_missing,) if self.if_missing else ())

    def permits(self, names: Sequence[str]) -> bool:
        """Whether a row under these licences may be kept."""
        if self.permitted is None:
            return True
        lower = {item.lower() for item in self.permitted}
        return bool(names) and all(name.lower() in lower for name in names)


LONGEST_CODE = 400_000
LONGEST_PASSAGE = 800
BATCH = 256
NAMED_BROKEN = 20

_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SAFE = re.compile(r"[A-Za-z0-9._-]{1,80}")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")


@dataclass(frozen=True, slots=True)
class Pair:
    """One published pair. `uuid` is its address in the set; empty fields are not known."""

    at: Progress
    """The row itself is the last of `at.position` rows."""
    uuid: str
    python_code: str
    triton_code: str
    entry_point: str = ""
    repo: str = ""
    link: str = ""
    sha: str = ""
    licences: tuple[str, ...] = ()
    stars: int | None = None
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no pair, and why, on one line."""

    at: Progress
    name: str
    reason: str


class ImportReport(Frozen):
    """What an import did with the rows that it read."""

    read: int = 0
    added: int = 0
    duplicates: int = 0
    refused_licence: int = 0
    licences_refused: dict[str, int] = Field(default_factory=dict)
    """Licence -> rows refused for it; "" for rows that name none."""
    broken: int = 0
    first_broken: tuple[str, ...] = ()
    """The first 20: shard, row, name and reason."""
    seconds: float = 0.0
    source: str = ""
    """The shard read last; "" where there was no row."""
    position: int = 0
    """Its rows that are done: with `source`, where the next import may start."""


class PutBatch(Protocol):
    """Stores entries together with how far the import is."""

    def __call__(self, entries: Sequence[Entry], progress: Progress) -> None: ...


ProblemOf = Callable[[str], str | None]
"""The problem of the entry of that id, also of one that was ended; None: there is none."""


def empty_store(entry_id: str) -> str | None:
    """An empty store."""
    return None


def read_pairs(
    path: Path, start_at: Progress | tuple[str, int] | None = None
) -> Iterator[Pair | BadRow]:
    """The pairs of a file, or of all shards of a folder by name; rows come one at a time.

    `start_at` is the last progress reported: the rows up to it are passed over. Raises SettingError
    where there is no such file, MissingDependency for parquet without pyarrow.
    """
    shards = shards_of(path)
    start = Progress(*start_at) if start_at else None
    if start and start.source not in shards:
        raise SettingError(
            f"The import cannot go on from {start.source!r}: no such shard in {path}. Expected one "
            f"of {len(shards)} shards. Next: start it anew, or give the path that it began with."
        )
    for name, shard in shards.items():
        if start and name < start.source:
            continue
        skip = start.position if start and name == start.source else 0
        for number, row in enumerate(rows_of(shard, skip), start=skip + 1):
            at = Progress(name, number)
            yield BadRow(at, "", row) if isinstance(row, str) else _pair(row, at)


def id_of(pair: Pair) -> str:
    """The id of the entry of a pair."""
    return f"kernelbook/{pair.uuid}"


def pair_entry(pair: Pair) -> Entry:
    """The entry `kernelbook/UUID` of a pair: its structure and its passages."""
    structure = structure_of_code(pair.python_code, pair.entry_point or None)
    node = module_class(pair.python_code, pair.entry_point or None)
    name = node.name if node else pair.entry_point or "module"
    ops = structure.ops if structure else ()
    words = " ".join(_split(name))
    distinct = ", ".join(op.replace("_", " ") for op in dict.fromkeys(ops))
    return Entry(
        id=id_of(pair),
        kind="pair",
        title=f"{name}: {', '.join(list(dict.fromkeys(ops))[:6])}" if ops else name,
        summary=_docstring(node)[:300],
        problem=pair.python_code,
        answer=pair.triton_code,
        passages=_passages(f"{words}. {distinct}. {_docstring(node)}", node, pair.python_code),
        source=_source(pair),
        licence=", ".join(pair.licences),
        structure=structure,
    )


def import_pairs(
    path: Path,
    put: PutBatch,
    rule: LicenceRule = LicenceRule(),
    *,
    seen: NearDuplicates | None = None,
    held: ProblemOf = empty_store,
    say: Callable[[ImportReport], None] | None = None,
    start_at: Progress | tuple[str, int] | None = None,
) -> ImportReport:
    """Read pairs, keep the sound, permitted and new ones, and hand them to `put` in batches.

    The codes of a pair have to parse; neither is executed. `seen` holds what the store has already:
    on resuming, make it from the stored problems, so that a row handed over twice is a duplicate.
    `held` tells which ids the store has: of two modules with one uuid, the later one is named by
    its content, and neither takes the other's place. `say` gets the counts so far after each batch.
    Raises what `read_pairs` and `put` raise.
    """
    work = _Import(rule, NearDuplicates() if seen is None else seen, held)
    at = Progress(*start_at) if start_at else None
    for row in read_pairs(path, start_at):
        if at and row.at.source != at.source:
            _hand_over(work, put, at, say)
        work.take(row)
        at = row.at
        if row.at.position % BATCH == 0:
            _hand_over(work, put, at, say)
    if at:
        _hand_over(work, put, at, say)
    return work.report(at)


def _hand_over(
    work: _Import, put: PutBatch, at: Progress, say: Callable[[ImportReport], None] | None
) -> None:
    put(tuple(work.waiting), at)
    work.waiting.clear()
    if say:
        say(work.report(at))


@dataclass
class _Import:
    """The counts of an import, and the entries that wait to be stored."""

    rule: LicenceRule
    seen: NearDuplicates
    held: ProblemOf
    taken: set[str] = field(default_factory=set)
    """The ids that were given to rows of this import."""
    waiting: list[Entry] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def take(self, row: Pair | BadRow) -> None:
        """Count one row, and keep its entry where it is one."""
        self.counts["read"] += 1
        if isinstance(row, BadRow):
            self._break(row)
            return
        names = self.rule.names(row.licences)
        if not self.rule.permits(names):
            self.counts["refused"] += 1
            self.refused[", ".join(names)] += 1
            return
        reason = _unsound(row)
        if reason:
            self._break(BadRow(row.at, row.entry_point or row.uuid, reason))
        elif not self.seen.add(row.python_code):
            self.counts["duplicates"] += 1
        else:
            self.counts["added"] += 1
            entry = pair_entry(self._named(row))
            self.taken.add(entry.id)
            self.waiting.append(entry.evolve(licence=", ".join(names)))

    def report(self, at: Progress | None) -> ImportReport:
        """The counts so far."""
        return ImportReport(
            read=self.counts["read"],
            added=self.counts["added"],
            duplicates=self.counts["duplicates"],
            refused_licence=self.counts["refused"],
            licences_refused=dict(self.refused.most_common(50)),
            broken=self.counts["broken"],
            first_broken=tuple(self.broken),
            seconds=time.monotonic() - self.started,
            source=at.source if at else "",
            position=at.position if at else 0,
        )

    def _named(self, pair: Pair) -> Pair:
        """The pair, under a uuid that stands for no other module."""
        while not self._is_free(pair):
            name = content_name(pair.uuid, pair.python_code, pair.triton_code)
            pair = replace(pair, uuid=name)
        return pair

    def _is_free(self, pair: Pair) -> bool:
        entry_id = id_of(pair)
        return entry_id not in self.taken and self.held(entry_id) in (None, pair.python_code)

    def _break(self, bad: BadRow) -> None:
        self.counts["broken"] += 1
        if len(self.broken) < NAMED_BROKEN:
            name = f" ({bad.name})" if bad.name else ""
            self.broken.append(f"{bad.at.source} row {bad.at.position}{name}: {bad.reason}")


def _unsound(pair: Pair) -> str:
    """Why a pair cannot be used; "" for a sound one."""
    for label, code in (("Triton", pair.triton_code), ("PyTorch", pair.python_code)):
        if len(code) > LONGEST_CODE:
            return f"{label} code of {len(code)} characters, over {LONGEST_CODE}"
    if not _compiles(pair.triton_code):
        return "Triton code is no Python"
    if parsed(pair.python_code) is None:
        return "PyTorch code is no Python"
    if module_class(pair.python_code, pair.entry_point or None) is None:
        return "PyTorch code without a module class that has a forward"
    return ""


def _compiles(code: str) -> bool:
    """Whether `code` is Python, in two thirds of the time that its tree would take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile_source(code, "triton_code")
        except SyntaxError:
            return False
    return True


# -- one row ---------------------------------------------------------------------------------------


def _pair(row: Mapping[str, object], at: Progress) -> Pair | BadRow:
    """A row in either layout as a pair."""
    name = _text(row, "entry_point", "module_name")
    python_code = _text(row, "python_code", "pytorch_code")
    triton_code = _text(row, "triton_code", "original_triton_code")
    if not python_code and not triton_code:
        prompt, completion = _conversation(row)
        python_code = _fenced(prompt, "nn.Module")
        triton_code = _fenced(completion, "triton")
        name = name if name in python_code else ""
    if not python_code.strip() or not triton_code.strip():
        missing = "PyTorch" if not python_code.strip() else "Triton"
        return BadRow(at, name, f"no {missing} code")
    stars = row.get("stars")
    return Pair(
        at=at,
        uuid=_uuid(row, python_code, triton_code),
        python_code=python_code,
        triton_code=triton_code,
        entry_point=name,
        repo=_text(row, "repo_name"),
        link=_text(row, "repo_link"),
        sha=_text(row, "sha"),
        licences=_licences(row),
        stars=stars if isinstance(stars, int) else None,
        synthetic=row.get("synthetic") is True,
    )


def _text(row: Mapping[str, object], *names: str) -> str:
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _uuid(row: Mapping[str, object], *codes: str) -> str:
    """The row's own name; where it has none that can be an address, one of its content.

    A number is none: sets are numbered from 0, and the rows of two would stand for each other.
    """
    own = str(row.get("uuid", "")).strip()
    if _SAFE.fullmatch(own) and not own.isdigit() and own != "None":
        return own
    return content_name(*codes)


def content_name(*texts: str) -> str:
    """16 hex digits that stand for `texts`."""
    return hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()[:16]


def _licences(row: Mapping[str, object]) -> tuple[str, ...]:
    value = row.get("licenses", row.get("license"))
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(
        dict.fromkeys(item.strip() for item in items if isinstance(item, str) and item.strip())
    )


def _conversation(row: Mapping[str, object]) -> tuple[str, str]:
    """(what was asked, what was answered) of a row of prompt and completion, or of messages."""
    prompt, completion = row.get("prompt"), row.get("completion")
    messages = row.get("messages")
    if isinstance(messages, list) and prompt is None:
        prompt = [item for item in messages if _role(item) == "user"]
        completion = [item for item in messages if _role(item) == "assistant"]
    return _joined(prompt), _joined(completion)


def _role(item: object) -> str:
    return str(item.get("role", "")) if isinstance(item, Mapping) else ""


def _joined(value: object) -> str:
    if isinstance(value, str):
        return value
    items = value if isinstance(value, list) else []
    texts = (item.get("content") for item in items if isinstance(item, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _fenced(text: str, wanted: str) -> str:
    """The last fenced block that holds `wanted`, else the last one; a text without fences whole."""
    blocks: list[str] = _FENCE.findall(text)
    if not blocks:
        return text if wanted in text else ""
    return next((item for item in reversed(blocks) if wanted in item), blocks[-1])


# -- what is embedded ------------------------------------------------------------------------------


def _split(name: str) -> list[str]:
    """`MultiHeadAttention2d` -> multi, head, attention, 2, d."""
    return [word.lower() for word in _WORDS.findall(name)]


def _docstring(node: ast.ClassDef | None) -> str:
    text = ast.get_docstring(node) if node else None
    return one_line(text, 300) if text else ""


def _passages(words: str, node: ast.ClassDef | None, source: str) -> tuple[str, ...]:
    forward = next(
        (
            item
            for item in (node.body if node else ())
            if isinstance(item, ast.FunctionDef) and item.name == "forward"
        ),
        node,
    )
    code = ""
    if forward is not None:
        lines = source.splitlines()[forward.lineno - 1 : forward.end_lineno]
        code = "\n".join(line[forward.col_offset :].rstrip() for line in lines if line.strip())
    passages = (words.strip(" .")[:LONGEST_PASSAGE], code[:LONGEST_PASSAGE])
    return tuple(item for item in passages if item)


def _source(pair: Pair) -> str:
    link = pair.link or pair.repo
    if not link:
        return "KernelBook"
    return f"{link}@{pair.sha}" if _COMMIT.fullmatch(pair.sha) else link
