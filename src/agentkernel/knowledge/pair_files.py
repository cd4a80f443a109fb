"""Which rows hold the files of a set of pairs: parquet, JSON lines or one JSON array?"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from agentkernel.domain.errors import MissingDependency, SettingError, one_line

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
