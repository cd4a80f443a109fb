"""Open knowledge folder: the store of entries, the indexes made from it, and the search.

Several processes may read and write one folder at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from agentkernel.domain.errors import OutputError, SettingError, one_line
from agentkernel.domain.knowledge import Entry, Filters, Hit, Query
from agentkernel.knowledge.documents import ORIGINS, all_packaged, match, packaged_sha256
from agentkernel.knowledge.embedding import load_embedder
from agentkernel.knowledge.graph_structure import VECTORS, op_vector, similarity
from agentkernel.knowledge.search import Mixture, Retriever
from agentkernel.knowledge.store import KnowledgeStore, default_folder, open_knowledge_store
from agentkernel.knowledge.store_schema import BATCH, Progress, PutCounts
from agentkernel.knowledge.structure_index import StructureIndex
from agentkernel.knowledge.transfer import ImportCounts, ImportFilter, import_entries
from agentkernel.knowledge.vector_index import DenseIndex, open_vectors
from agentkernel.knowledge.vector_index import Progress as Watch
from agentkernel.knowledge.vector_ledger import keeping, refuse_failing_disk

PACKAGED = "the package"
"""The source under which the truth keeps what the packaged entries were made from."""
GONE = "the package does not bring it any more"
Say = Callable[[str], None]


def ignore_line(line: str) -> None:
    """Nobody listens."""


class PackagedUpdate(NamedTuple):
    """What became of the packaged entries."""

    put: PutCounts
    removed: int = 0


class RefreshReport(NamedTuple):
    """What a refresh did: the packaged entries that were written, and the changes that the vectors
    and the structures caught up with."""

    packaged: PutCounts
    removed: int
    vectors: int
    structures: int


class KnowledgeBase:
    """An open knowledge folder. Several processes may read and write one at once."""

    def __init__(
        self,
        truth: KnowledgeStore,
        dense: DenseIndex,
        structures: StructureIndex,
        retriever: Retriever,
        say: Say = ignore_line,
    ) -> None:
        self.truth = truth
        self._say = say
        self._dense = dense
        self._structures = structures
        self._retriever = retriever

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.truth.close()

    def refresh(self, progress: Watch | None = None, *, wait: bool = True) -> RefreshReport:
        """Bring the packaged entries into the truth, and what changed there into the indexes.

        `progress` hears the number of the change reached and the last one. Without `wait`, an
        index that another process is writing is left to it.
        """
        brought = self._bring()
        return RefreshReport(
            *brought,
            self._catch_up(progress, wait),
            self._structures.catch_up(self.truth, progress, wait),
        )

    def _catch_up(self, progress: Watch | None, wait: bool) -> int:
        from chromadb.errors import ChromaError

        folder = self.truth.path.parent
        with keeping("vectors", folder):
            try:
                return self._dense.catch_up(self.truth, progress, wait)
            except ChromaError as error:
                refuse_failing_disk(folder)
                raise OutputError(
                    f"Cannot keep the vectors of {str(folder)!r}: {one_line(error, 120)}. Expected "
                    "an index that can be written. Next: run 'agentkernel knowledge build'; if "
                    "that fails too, remove the folder 'vectors'."
                ) from error

    def search(self, query: Query, mixture: Mixture | None = None) -> tuple[Hit, ...]:
        """At most `query.limit` hits, best first; `mixture` in place of the base's own. Where the
        vectors fail, which is said, by words and structures alone."""
        from chromadb.errors import ChromaError

        searching = self._retriever
        if mixture is not None:
            searching = replace(searching, mixture=mixture)
        try:
            return searching.search(query)
        except ChromaError as error:
            self._say(
                f"The vectors cannot be searched: {one_line(error, 120)}. The answer is by "
                "words and structures alone."
            )
            return searching.without_dense().search(query)

    def get(self, entry_id: str) -> Entry | None:
        """The current entry of that id."""
        return self.truth.get(entry_id)

    def remember(self, entry: Entry) -> str:
        """Take an experience in (see `KnowledgeStore.settle`): the id of the entry that stands now.
        What another process is writing at is left to it; the next refresh catches up."""
        settled = self.truth.settle(entry)
        self._catch_up(None, wait=False)
        self._structures.catch_up(self.truth, None, False)
        return settled.winner

    def import_(self, path: Path) -> ImportCounts:
        """Take an export in as somebody else's word (see `transfer.Border`), its experiences as
        `remember` does. `refresh` comes first: what the package brings has to be known.

        Raises what `transfer.import_entries` raises.
        """
        border = ImportFilter(lambda entry_id: self.truth.get(entry_id, superseded=True))
        found = import_entries(lambda entries: self._settled(border.admitted(entries)), path)
        return ImportCounts(found, tuple(border.refused))

    def _settled(self, entries: Iterable[Entry]) -> PutCounts:
        """Put `entries`, and settle the experiences, of which not all are to stand."""
        source = iter(entries)
        done = PutCounts()
        while batch := tuple(islice(source, BATCH)):
            done = done.plus(self.truth.put(item for item in batch if item.kind != "experience"))
            for item in batch:
                if item.kind == "experience":
                    done = done.plus(self.truth.settle(item).put)
        return done

    def _bring(self) -> PackagedUpdate:
        """Bring the packaged entries in; a few ms, and no write, where they are as they were.

        They are where neither what they are made from nor any entry of theirs changed since.
        """
        files = packaged_sha256()
        held = self.truth.held(ORIGINS)
        if self.truth.progress(PACKAGED) == Progress(PACKAGED, held.last_seq, files):
            return PackagedUpdate(PutCounts(same=held.current))
        packaged = all_packaged()
        brought = self._put(packaged)
        held = self.truth.held(ORIGINS)
        # Noted only where a second round finds nothing to do: other processes write as well.
        again = self._put(packaged)
        if not (again.put.added or again.put.changed or again.removed):
            self.truth.put((), Progress(PACKAGED, held.last_seq, files))
        return brought

    def _put(self, packaged: Sequence[Entry]) -> PackagedUpdate:
        put = self.truth.put(packaged)
        names = {entry.id for entry in packaged}
        # Other kinds have no place below these ids, and all of them are read only to fix that.
        more = self.truth.held(ORIGINS).current > len(names)
        found = self.truth.select(Filters()) if more else ()
        old = [item.id for item in found if item.id.startswith(ORIGINS) and item.id not in names]
        for name in old:
            self.truth.remove(name, GONE)
        return PackagedUpdate(put, len(old))


def open_base(
    where: Path | None = None,
    embedder: str = "static",
    *,
    chroma: str | None = None,
    say: Say | None = None,
) -> KnowledgeBase:
    """Open (or begin) the knowledge folder `where`. `chroma`: the address of a Chroma server that
    holds the vectors; else they lie in the folder. `say` hears one line for each thing fixed.

    Raises OutputError where the folder cannot be written and SettingError for an embedder or a
    server that is not there.
    """
    if chroma is not None:
        checked_server(chroma)
    folder = where or default_folder()
    vectors = load_embedder(embedder)
    with ExitStack() as cleanup:
        truth = cleanup.enter_context(open_knowledge_store(folder, say))
        dense = open_vectors(chroma or folder / "vectors", vectors, say)
        structures = StructureIndex(folder / "structures", op_vector, similarity, VECTORS, say)
        retriever = Retriever(truth, dense, structures, vectors, literal=match)
        cleanup.pop_all()
    return KnowledgeBase(truth, dense, structures, retriever, say or ignore_line)


def checked_server(chroma: str) -> str:
    """`chroma`, where it is the address of a server. Raises SettingError."""
    try:
        parts = urlsplit(chroma)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise SettingError(
            f"The Chroma server is {chroma!r}. Expected an address such as 'http://localhost:8000'."
            " Next: give one, or leave it out to keep the vectors in the knowledge folder."
        )
    return chroma
