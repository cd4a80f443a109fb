"""All that is known, in one place: the entries, what makes them found, and the search over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from agentkernel.domain.knowledge import Entry, Filters, Hit, Query
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.documents import load_documents
from agentkernel.knowledge.embedding import load_embedder
from agentkernel.knowledge.fixes import load_fixes, match
from agentkernel.knowledge.graph_structure import VECTORS, op_vector, similarity
from agentkernel.knowledge.packaged import packaged_entries
from agentkernel.knowledge.paths import default_folder
from agentkernel.knowledge.retrieval import Mixture, Retriever
from agentkernel.knowledge.structures import StructureIndex
from agentkernel.knowledge.truth import Truth, open_truth
from agentkernel.knowledge.truth_types import Put
from agentkernel.knowledge.vectors import DenseIndex, Progress, open_vectors

PACKAGED = ("notes/", "kernels/", "fixes/")
"""How the ids of what the package brings begin."""
GONE = "the package does not bring it any more"
Say = Callable[[str], None]


class Built(NamedTuple):
    """What a refresh did: the packaged entries that were written, and the changes that the vectors
    and the structures caught up with."""

    packaged: Put
    removed: int
    vectors: int
    structures: int


class KnowledgeBase:
    """An open knowledge folder. Several processes may read and write one at once."""

    def __init__(
        self, truth: Truth, dense: DenseIndex, structures: StructureIndex, retriever: Retriever
    ) -> None:
        self.truth = truth
        self._dense = dense
        self._structures = structures
        self._retriever = retriever

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.truth.close()

    def refresh(self, progress: Progress | None = None, *, wait: bool = True) -> Built:
        """Bring the packaged entries into the truth, and what changed there into the indexes.

        `progress` hears the number of the change reached and the last one. Without `wait`, an
        index that another process is writing is left to it.
        """
        packaged = tuple(_packaged())
        put = self.truth.put(packaged)
        names = {entry.id for entry in packaged}
        old = [name for name in self._packaged_ids() if name not in names]
        for name in old:
            self.truth.remove(name, GONE)
        return Built(
            put,
            len(old),
            self._dense.catch_up(self.truth, progress, wait),
            self._structures.catch_up(self.truth, progress, wait),
        )

    def search(self, query: Query, mixture: Mixture | None = None) -> tuple[Hit, ...]:
        """At most `query.limit` hits, best first; `mixture` in place of the base's own."""
        searching = self._retriever if mixture is None else self._retriever.mixed(mixture)
        return searching.search(query)

    def get(self, entry_id: str) -> Entry | None:
        """The current entry of that id."""
        return self.truth.get(entry_id)

    def remember(self, entry: Entry) -> str:
        """Take an experience in (see `Truth.settle`): the id of the entry that stands now. What
        another process is writing at is left to it; the next refresh catches up."""
        settled = self.truth.settle(entry)
        self._dense.catch_up(self.truth, None, False)
        self._structures.catch_up(self.truth, None, False)
        return settled.winner

    def _packaged_ids(self) -> list[str]:
        kinds = Filters(kinds=("note", "kernel", "fix"))
        found = (entry.id for entry in self.truth.select(kinds))
        return [name for name in found if name.startswith(PACKAGED)]


def open_base(
    where: Path | None = None,
    embedder: str = "static",
    *,
    chroma: str | None = None,
    mixture: Mixture | None = None,
    say: Say | None = None,
) -> KnowledgeBase:
    """Open (or begin) the knowledge folder `where`. `chroma`: the address of a Chroma server that
    holds the vectors; else they lie in the folder. `say` hears one line for each thing mended.

    Raises OutputError where the folder cannot be written and SettingError for an embedder or a
    server that is not there.
    """
    folder = where or default_folder()
    vectors = load_embedder(embedder)
    with ExitStack() as cleanup:
        truth = cleanup.enter_context(open_truth(folder, say))
        dense = open_vectors(chroma or folder / "vectors", vectors, say)
        structures = StructureIndex(folder / "structures", op_vector, similarity, VECTORS)
        retriever = Retriever(truth, dense, structures, vectors, mixture, match)
        cleanup.pop_all()
    return KnowledgeBase(truth, dense, structures, retriever)


def _packaged() -> Iterable[Entry]:
    yield from packaged_entries(load_documents(), structure_of_code)
    yield from load_fixes()
