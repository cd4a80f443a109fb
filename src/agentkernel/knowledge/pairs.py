"""Pairs of a PyTorch problem and its Triton kernel: files, sets, near duplicates.

Problem files follow the KernelBench convention and are not executed. Sets of pairs are read from
parquet, JSON lines or one JSON array. Near duplicates are found by MinHash signatures in banded
buckets, over tokens without names and comments.
"""

from __future__ import annotations

import ast
import gzip
import json
import keyword
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import MissingDependency, ProblemError, SettingError, one_line
from agentkernel.knowledge.op_names import FAMILIES
from agentkernel.storage.source_text import parse_source

MARKS = (re.compile(r"\bModel\b"), re.compile(r"\bget_inputs\b"))
"""What every problem in the KernelBench convention names."""


@dataclass(frozen=True)
class ProblemFile:
    """A file in the KernelBench convention, not executed. `name` is its path below the folder."""

    path: Path
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Hash of its text: what is looked up before anything is generated for it."""
        return sha256_text(self.text)


def problem_files(folder: Path) -> tuple[ProblemFile, ...]:
    """The problems at any depth of `folder`, by path; of equal texts the first. Nothing is run.

    Files that name no `Model` and `get_inputs` are no problems; hidden folders are left out. Raises
    ProblemError where `folder` is none, or holds no problem.
    """
    if not folder.is_dir():
        raise ProblemError(
            f"No such folder: {str(folder)!r}. Expected one with problems in the KernelBench "
            "convention (Model, get_inputs, get_init_inputs). Next: check the path."
        )
    found: dict[str, ProblemFile] = {}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        text = "" if _is_hidden(name) else _text(path)
        if all(mark.search(text) for mark in MARKS):
            found.setdefault(text, ProblemFile(path, name, text))
    if not found:
        raise ProblemError(
            f"No problem in {str(folder)!r}. Expected Python files with Model, get_inputs and "
            "get_init_inputs. Next: name the folder that holds them."
        )
    return tuple(found.values())


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__")) for part in name.split("/"))


def _text(path: Path) -> str:
    """ "" for what is no text: it is no problem either."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def title_of(file: ProblemFile) -> str:
    """The first line of its docstring, or of its Model's, or its name in words."""
    words = Path(file.name).stem.replace("_", " ")
    try:
        tree = parse_source(file.text)
    except SyntaxError:
        return words
    models = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    texts = [ast.get_docstring(tree), *(ast.get_docstring(model) for model in models)]
    lines = [text.strip().splitlines()[0] for text in texts if text and text.strip()]
    return lines[0] if lines else words


SUFFIXES = (".parquet", ".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")
COLUMNS = (
    *("entry_point", "module_name", "repo_name", "python_code", "pytorch_code", "triton_code"),
    *("original_triton_code", "licenses", "license", "stars", "sha", "repo_link", "uuid"),
    *("synthetic", "prompt", "completion", "messages"),
)
"""The columns that are read; of a parquet file the others are never loaded."""
LONGEST_ROW = 8 * 2**20
"""Characters of one JSON row: longer ones are broken, and are never held whole."""
BATCH = 256


def shards_of(path: Path) -> dict[str, Path]:
    """Name -> file, in the order of the names. Raises SettingError where there is none."""
    if path.is_dir():
        found = {
            item.relative_to(path).as_posix(): item
            for item in path.rglob("*")
            if item.is_file() and item.name.endswith(SUFFIXES)
        }
    else:
        found = {path.name: path} if path.is_file() and path.name.endswith(SUFFIXES) else {}
    if not found:
        raise SettingError(
            f"No pairs at {str(path)!r}. Expected a file or folder of {', '.join(SUFFIXES)}. "
            "Next: download the data set's files there and give that path."
        )
    return dict(sorted(found.items()))


def rows_of(shard: Path, skip: int) -> Iterator[Mapping[str, object] | str]:
    """The rows after the first `skip`; a text is why a row cannot be read."""
    if shard.name.endswith(".parquet"):
        yield from _parquet_rows(shard, skip)
        return
    opener = gzip.open if shard.name.endswith(".gz") else open
    try:
        with opener(shard, "rt", encoding="utf-8", errors="replace") as file:
            first = file.read(1)
            while first.isspace():
                first = file.read(1)
            if first == "[":
                yield from _array_rows(file, skip)
            else:
                yield from _line_rows(file, first, skip)
    except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
        yield f"the file ends or breaks here: {one_line(error, 120)}"


def _line_rows(file: IO[str], first: str, skip: int) -> Iterator[Mapping[str, object] | str]:
    number = 0
    while True:
        line = first + file.readline(LONGEST_ROW)
        first = ""
        if not line:
            return
        whole = line.endswith("\n") or len(line) < LONGEST_ROW
        while not line.endswith("\n") and len(line) >= LONGEST_ROW:
            line = file.readline(LONGEST_ROW)
        if whole and not line.strip():
            continue
        number += 1
        if number > skip:
            yield _row(line) if whole else f"a row of over {LONGEST_ROW} characters"


def _row(line: str) -> Mapping[str, object] | str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {one_line(error, 120)}"
    return value if isinstance(value, dict) else f"a {type(value).__name__}, not a JSON object"


def _array_rows(file: IO[str], skip: int) -> Iterator[Mapping[str, object] | str]:
    """The elements of one JSON array, read piece by piece."""
    decoder = json.JSONDecoder()
    text, number, ended = "", 0, False
    while True:
        text = text.lstrip().removeprefix(",").lstrip()
        if text.startswith("]"):
            return
        try:
            value, end = decoder.raw_decode(text)
        except (ValueError, RecursionError) as error:
            piece = "" if ended or len(text) > LONGEST_ROW else file.read(2**18 + len(text))
            ended = not piece
            if ended:
                if text:
                    yield f"the JSON array breaks here: {one_line(error, 120)}"
                return
            text += piece
            continue
        text = text[end:]
        number += 1
        if number > skip:
            yield value if isinstance(value, dict) else f"a {type(value).__name__}, not an object"


def _parquet_rows(shard: Path, skip: int) -> Iterator[Mapping[str, object] | str]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency(
            f"Reading {shard.name} needs the package pyarrow, which is not installed. "
            "Next: run 'pip install pyarrow', or give the data set's JSON file."
        ) from error
    try:
        with parquet.ParquetFile(shard) as file:
            columns = [name for name in file.schema_arrow.names if name in COLUMNS]
            passed = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if passed + rows <= skip:
                    passed += rows
                    continue
                batches = file.iter_batches(BATCH, row_groups=[group], columns=columns)
                for batch in batches:
                    yield from batch.slice(max(0, skip - passed)).to_pylist()
                    passed += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        yield f"the file breaks here: {one_line(error, 120)}"


PERMUTATIONS = 128
BANDS = 16
"""Bands of 8 rows: two sources with a Jaccard similarity of 0.9 meet in a band with a chance of
0.9999, of 0.8 with 0.95, of 0.5 with 0.06 (1 - (1 - s^8)^16)."""
SHINGLE = 5
"""Tokens in a shingle."""
THRESHOLD = 0.9
"""Estimated Jaccard similarity of the shingle sets from which two sources are one."""
MOST_IN_BUCKET = 8
"""Rows compared from one bucket of a band: a bound on time where thousands look alike."""
MOST_CHARACTERS = 100_000
Signature = NDArray[np.uint32]

_TOKEN = re.compile(
    r"#[^\n]*"
    r"|[rRbBuUfF]{0,2}(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|[A-Za-z_]\w*|\d[\w.]*|\n|\*\*|//|->|[<>=!]=|[^\s\w]",
    re.DOTALL,
)
_KEPT = frozenset(
    [
        *keyword.kwlist,
        *("self", "torch", "nn", "F", "forward", "dim", "keepdim", "size"),
        *("Module", "Sequential", "ModuleList", "Parameter"),
        *(
            word
            for ops in FAMILIES.values()
            for op, others in ops.items()
            for word in (op, *others.split())
        ),
    ]
)
_random = np.random.Generator(np.random.PCG64(20_240_607))
_MULTIPLIERS = _random.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(
    1
)
_OFFSETS = _random.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64)
_STEPS = _random.integers(0, 2**63, SHINGLE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


class NearDuplicates:
    """The sources seen so far, as MinHash signatures in banded buckets.

    It holds no state on disk: after a restart it is made again from the problems of the stored
    entries (`NearDuplicates.of`, under a millisecond each), so there is nothing to fall out of step
    with them. About 4 KB of memory for each source kept.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self.threshold = threshold
        self._signatures = np.empty((1024, PERMUTATIONS), dtype=np.uint32)
        self._count = 0
        self._buckets: dict[int, list[int]] = {}

    @classmethod
    def of(cls, sources: Iterable[str], threshold: float = THRESHOLD) -> NearDuplicates:
        """One that has seen `sources`."""
        seen = cls(threshold)
        for source in sources:
            seen.add(source)
        return seen

    def __len__(self) -> int:
        return self._count

    def add(self, source: str) -> bool:
        """Keep `source` unless one like it is kept already; whether it was kept."""
        signature = signature_of(source)
        bands = enumerate(signature.reshape(BANDS, -1))
        keys = [hash((band, part.tobytes())) for band, part in bands]
        near = list({row for key in keys for row in self._buckets.get(key, ())})
        # Without a row that shares a band the highest share of equal places is 0.
        same = (self._signatures[near] == signature).mean(axis=1)
        if same.max(initial=0.0) >= self.threshold:
            return False
        if self._count == len(self._signatures):
            self._signatures = np.concatenate([self._signatures, np.empty_like(self._signatures)])
        self._signatures[self._count] = signature
        for key in keys:
            rows = self._buckets.setdefault(key, [])
            if len(rows) < MOST_IN_BUCKET:
                rows.append(self._count)
        self._count += 1
        return True


def signature_of(source: str) -> Signature:
    """uint32[128]: for each hash function the least hash of the source's shingles.

    The share of equal places of two signatures estimates the Jaccard similarity of the sets.
    """
    hashes = np.fromiter(map(_token_hash, _tokens(source)), dtype=np.uint64)
    if len(hashes) < SHINGLE:
        hashes = np.concatenate([hashes, np.zeros(SHINGLE - len(hashes), dtype=np.uint64)])
    count = len(hashes) - SHINGLE + 1
    shingles = np.zeros(count, dtype=np.uint64)
    for place, step in enumerate(_STEPS):
        shingles += hashes[place : place + count] * step
    shingles = np.unique(shingles ^ (shingles >> np.uint64(31)))
    mixed = np.multiply.outer(_MULTIPLIERS, shingles) + _OFFSETS[:, None]
    least: Signature = (mixed >> np.uint64(32)).astype(np.uint32).min(axis=1)
    return least


def _tokens(source: str) -> list[str]:
    """The source's tokens: ops, keywords, numbers and signs as they are, other names as `N`,
    strings as `S`; no comments, docstrings or line ends."""
    found: list[str] = []
    fresh = True
    for token in _TOKEN.findall(source[:MOST_CHARACTERS]):
        first = token[0]
        if first == "\n":
            fresh = True
            continue
        if first == "#":
            continue
        if first.isalpha() or first == "_":
            if token[-1] in "\"'":
                kind = "" if fresh else "S"
            else:
                kind = token if token in _KEPT else "N"
        elif first in "\"'":
            kind = "" if fresh else "S"
        else:
            kind = token
        if kind:
            found.append(kind)
        fresh = False
    return found


@lru_cache(maxsize=65_536)
def _token_hash(token: str) -> int:
    """64 bits, the same in every process."""
    content = token.encode(errors="replace")
    return (zlib.crc32(content) << 32 | zlib.crc32(content, 0x9E3779B9)) & 0xFFFF_FFFF_FFFF_FFFF
