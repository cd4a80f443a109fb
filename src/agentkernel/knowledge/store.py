"""Where is the index over the packaged documents, and is it whole?"""

from __future__ import annotations

import fcntl
import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.base import sha256_text
from agentkernel.errors import OutputError, one_line
from agentkernel.knowledge.documents import (
    PACKAGE,
    Document,
    documents_sha256,
    load_documents,
)
from agentkernel.knowledge.embedding import Embedder, load_embedder
from agentkernel.knowledge.index import KnowledgeIndex
from agentkernel.knowledge.truth import default_folder

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

COLLECTION = "agentkernel-knowledge"
INDEX_FORMAT = 1
POINTER = "current.json"
STALE_SECONDS = 3600.0
Say = Callable[[str], None]


def open_index(
    path: Path | None = None,
    embedder: str = "static",
    say: Say | None = None,
    package: Path = PACKAGE,
) -> KnowledgeIndex:
    """Open the index in `path`, building it first where it is missing, outdated or corrupt.

    `say` gets one line for each rebuild. Processes may open the same folder at once: an index is
    built in a folder of its own, and a pointer file names the current one. Raises OutputError
    where the folder cannot be written and SettingError for an embedder that cannot be loaded.
    """
    root = path or default_folder()
    vectors = load_embedder(embedder)
    documents = load_documents(package)
    content = _content_sha256(documents, vectors)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root):
            found = _open_current(root, content)
            if isinstance(found, str):
                if found and say is not None:
                    say(f"Knowledge index {found}: rebuilt from the packaged files.")
                found = _build(root, documents, vectors, content)
                _drop_stale(root)
    except OSError as error:
        raise OutputError(
            f"Cannot keep the knowledge index in {str(root)!r}: {error.strerror or error}. "
            "Expected a folder that can be written. Next: set XDG_DATA_HOME, or free some space."
        ) from error
    return KnowledgeIndex(found, documents, vectors)


def _content_sha256(documents: tuple[Document, ...], vectors: Embedder) -> str:
    parts = (str(INDEX_FORMAT), documents_sha256(documents), vectors.fingerprint)
    return sha256_text("\0".join(parts))


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process that held it."""
    with (root / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _open_current(root: Path, content: str) -> Collection | str:
    """The current collection, or why it cannot be used ("" where there never was one)."""
    from chromadb.errors import ChromaError

    try:
        pointer = json.loads((root / POINTER).read_text(encoding="utf-8"))
        folder = root / str(pointer["folder"])
        recorded = str(pointer["content"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError):
        return "pointer was unreadable"
    if recorded != content:
        return "was outdated"
    damage = database_damage(folder / "chroma.sqlite3")
    if damage is not None:
        return f"was corrupt ({damage})"
    try:
        collection = _client(folder).get_collection(COLLECTION, embedding_function=None)
        if (collection.metadata or {}).get("content") != content or collection.count() == 0:
            return "was incomplete"
    except (ChromaError, ValueError) as error:
        return f"was corrupt ({one_line(error, 120)})"
    return collection


def database_damage(database: Path) -> str | None:
    """What SQLite says against the file; asked first, because Chroma aborts on some of it."""
    if not database.is_file():
        return "its database is missing"
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            answer = connection.execute("PRAGMA quick_check").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if answer == ("ok",) else str(answer)[:120]


def _build(
    root: Path, documents: tuple[Document, ...], vectors: Embedder, content: str
) -> Collection:
    folder = Path(tempfile.mkdtemp(prefix="index-", dir=root))
    collection = _client(folder).create_collection(
        COLLECTION,
        metadata={"content": content, "hnsw:space": "cosine"},
        embedding_function=None,
    )
    rows = [
        (f"{document.id}#{number}", document.id, passage)
        for document in documents
        for number, passage in enumerate(document.passages)
    ]
    collection.add(
        ids=[row[0] for row in rows],
        metadatas=[{"document": row[1]} for row in rows],
        documents=[row[2] for row in rows],
        embeddings=vectors.embed([row[2] for row in rows]),
    )
    _point(root, folder, content)
    return collection


def _point(root: Path, folder: Path, content: str) -> None:
    """Make `folder` the current one, in one step."""
    draft = folder / POINTER
    draft.write_text(json.dumps({"folder": folder.name, "content": content}), encoding="utf-8")
    draft.replace(root / POINTER)


def _drop_stale(root: Path) -> None:
    """Remove old index folders, except those that another process may have just opened."""
    current = json.loads((root / POINTER).read_text(encoding="utf-8"))["folder"]
    limit = time.time() - STALE_SECONDS
    for folder in root.glob("index-*"):
        if folder.name != current and folder.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)


def _client(folder: Path) -> ClientAPI:
    import chromadb
    from chromadb.config import Settings

    return chromadb.PersistentClient(
        str(folder), settings=Settings(anonymized_telemetry=False, allow_reset=False)
    )
