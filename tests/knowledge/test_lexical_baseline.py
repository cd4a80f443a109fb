"""Does the baseline search by words, honour what may be found, and get its best constants?"""

from __future__ import annotations

from agentkernel.domain.knowledge import Entry, Filters, Query
from agentkernel.knowledge.evaluation import Bm25, LabelledQuestion, Tuning, tuned_bm25


def entry(name: str, text: str) -> Entry:
    kind = "fix" if name.startswith("fixes/") else "note"
    return Entry(
        id=name,
        kind=kind,
        title=text,
        answer=text,
        passages=(text,),
        source="s",
        licence="l",
    )


ENTRIES = (
    entry("notes/a", "shared memory of a block"),
    entry("notes/b", "registers and spills"),
    entry("fixes/c", "out of shared memory"),
)
ANY = Tuning(1.2, 0.75, "all")


def test_words_and_kinds() -> None:
    search = Bm25(ENTRIES, ANY).search
    assert set(search(Query(text="SharedMemory limit"))) == {"notes/a", "fixes/c"}
    assert search(Query(text="SharedMemory", filters=Filters(kinds=("fix",)))) == ["fixes/c"]
    assert search(Query(text="spills", limit=1)) == ["notes/b"]
    assert not search(Query(text="???"))
    assert not Bm25((), ANY).search(Query(text="spills"))


def test_the_best_of_the_grid() -> None:
    questions = [
        LabelledQuestion(
            id="s1", kind="symptom", query=Query(text="it spills"), answers=("notes/b",)
        )
    ]
    tuning, found = tuned_bm25(ENTRIES, questions)
    assert found.by_kind["all"].recall[1] == 1.0
    assert tuning.field in {"title", "passages", "all"}
