from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentkernel.domain.knowledge import Entry, Filters, Query, Structure
from agentkernel.knowledge.search import (
    Mixture,
    Ranked,
    Retriever,
    Weights,
    asked_words,
    embedded_text,
    error_words,
    fuse,
    identifiers,
    question_kind,
    structure_words,
    tokens_of,
)
from agentkernel.knowledge.store_schema import Removed
from agentkernel.knowledge.structure_index import StructureIndex
from agentkernel.knowledge.vector_index import DenseIndex, open_vectors
from tests.knowledge.memory_store import HashEmbedder, MemoryTruth, entry, op_vector, similarity

EMBEDDER = HashEmbedder()
SOFTMAX = Structure(ops=("sub", "exp", "sum", "div"))


FLAT: dict[str, Any] = {
    "words": Weights(dense=1.0, lexical=0.7, structural=0.0, k=60.0),
    "structure": Weights(dense=0.8, lexical=0.5, structural=1.5, k=60.0),
}
"""Neighbours in a list are nearly equal: what else counts shows."""


def retriever(
    folder: Path, truth: MemoryTruth, mixture: Mixture | None = None, behind: bool = False
) -> Retriever:
    dense: DenseIndex = open_vectors(folder / "vectors", EMBEDDER)
    structures = StructureIndex(folder / "structures", op_vector, similarity)
    if not behind:
        dense.catch_up(truth)
        structures.catch_up(truth)
    return Retriever(truth, dense, structures, EMBEDDER, mixture or Mixture(**FLAT))


@pytest.fixture
def truth() -> MemoryTruth:
    return MemoryTruth(
        [
            entry("pair/softmax", "softmax of rows", ops=("sub", "exp", "sum", "div")),
            entry("pair/logsoftmax", "log softmax of rows", ops=("sub", "exp", "sum", "log")),
            entry("pair/gemm", "matrix product", ops=("matmul",), architectures=("hopper",)),
            entry("fixes/power", "arange range must be a power of two", kind="fix"),
            entry("notes/hopper", "warp groups and tensor memory", kind="note", licence="BSD"),
        ]
    )


def found(retriever: Retriever, **query: object) -> list[str]:
    return [hit.entry.id for hit in retriever.search(Query.model_validate(query))]


def test_a_hit_says_why_it_is_where_it_is(tmp_path: Path, truth: MemoryTruth) -> None:
    hit = retriever(tmp_path, truth).search(
        Query(text="softmax of rows", structure=SOFTMAX, limit=2)
    )[0]
    assert hit.entry.id == "pair/softmax"
    assert hit.passage == "softmax of rows"
    assert (hit.score.dense_rank, hit.score.lexical_rank, hit.score.structural_rank) == (1, 2, 1)
    meaning, passage = EMBEDDER.embed([structure_words(SOFTMAX), hit.passage])
    assert hit.score.dense == pytest.approx(float(meaning @ passage), abs=1e-5)
    assert hit.score.structural == 1.0
    assert hit.score.lexical == 2.0
    assert hit.score.fused == pytest.approx((0.8 + 1.5) / 61 + 0.5 / 62)


def test_structure_alone_and_words_alone(tmp_path: Path, truth: MemoryTruth) -> None:
    search = retriever(tmp_path, truth)
    assert found(search, structure=SOFTMAX)[0] == "pair/softmax"
    assert found(search, words="tensor memory") == ["notes/hopper"]
    assert found(search, text="matrix product")[0] == "pair/gemm"


@pytest.mark.parametrize(
    "query",
    [Query(), Query(text=" \n"), Query(text="\x00☃ ∑"), Query(structure=Structure(ops=()))],
)
def test_a_question_without_words_has_no_answer(
    tmp_path: Path, truth: MemoryTruth, query: Query
) -> None:
    class Blank(HashEmbedder):
        def embed(self, texts):  # type: ignore[no-untyped-def]
            return super().embed(["" for _ in texts])

    search = replace(retriever(tmp_path, truth), embedder=Blank())
    assert search.search(query) == ()


def test_an_empty_store_has_no_answer(tmp_path: Path) -> None:
    search = retriever(tmp_path, MemoryTruth())
    assert search.search(Query(text="softmax", structure=SOFTMAX)) == ()


@pytest.mark.parametrize(
    "filters",
    [
        Filters(kinds=("pair",)),
        Filters(kinds=("fix", "note")),
        Filters(architecture="ampere"),
        Filters(licences=("BSD",)),
        Filters(verified=("gpu",)),
        Filters(without_ids=("pair/softmax", "fixes/power")),
    ],
)
def test_every_list_honours_the_filters(
    tmp_path: Path, truth: MemoryTruth, filters: Filters
) -> None:
    query = Query(
        text="softmax of rows", words="softmax matrix power tensor", structure=SOFTMAX, limit=9
    )
    search = retriever(tmp_path, truth)
    everything = {hit.entry.id: hit.entry for hit in search.search(query)}
    hits = search.search(query.evolve(filters=filters))

    def passes(item: Entry) -> bool:
        return (
            (not filters.kinds or item.kind in filters.kinds)
            and (not filters.licences or item.licence in filters.licences)
            and (not filters.verified or item.verified in filters.verified)
            and item.id not in filters.without_ids
            and (filters.architecture is None or item.architectures in ((), ("ampere",)))
        )

    assert len(everything) == 5
    assert {hit.entry.id for hit in hits} == {n for n, item in everything.items() if passes(item)}


def test_what_the_truth_no_longer_has_is_not_found(tmp_path: Path, truth: MemoryTruth) -> None:
    search = retriever(tmp_path, truth)
    truth.put(Removed("pair/softmax"))
    truth.put(entry("pair/gemm", "matrix product", licence="GPL"))
    assert "pair/softmax" not in found(search, text="softmax of rows", structure=SOFTMAX)
    assert "pair/gemm" not in found(
        search, text="matrix product", filters=Filters(licences=("MIT",))
    )


def test_indexes_that_hold_nothing_yet_leave_the_words(tmp_path: Path, truth: MemoryTruth) -> None:
    search = retriever(tmp_path, truth, behind=True)
    assert found(search, text="tensor memory") == ["notes/hopper"]


def test_verified_answers_and_the_asked_architecture_go_before_equals(tmp_path: Path) -> None:
    truth = MemoryTruth(
        [
            entry("a/plain", "same text"),
            entry("b/interpreter", "same text", verified="interpreter"),
            entry("c/gpu", "same text", verified="gpu"),
            entry("d/hopper", "same text", architectures=("hopper",)),
        ]
    )
    search = retriever(tmp_path, truth)
    assert found(search, text="same text")[:2] == ["c/gpu", "b/interpreter"]
    asked = found(search, text="same text", filters=Filters(architecture="hopper"))
    assert asked.index("d/hopper") < asked.index("a/plain")
    flat = Mixture(**FLAT, verified_gpu=0.0, verified_interpreter=0.0, architecture=0.0)
    assert found(retriever(tmp_path, truth, flat), text="same text")[0] == "a/plain"


def test_of_equal_answers_the_best_one_stays(tmp_path: Path) -> None:
    truth = MemoryTruth(
        [
            entry("e/one", "row sum", answer="x = 1\n"),
            entry("e/two", "row sum", answer="x  =  1", verified="gpu"),
            entry("e/three", "row sum", answer="y = 2"),
        ]
    )
    assert found(retriever(tmp_path, truth), text="row sum") == ["e/two", "e/three"]


def test_diversity_brings_what_computes_something_else(tmp_path: Path) -> None:
    truth = MemoryTruth(
        [
            *[entry(f"e/{i}", "row norm layer", ops=("mean", "sub")) for i in range(3)],
            entry("e/other", "row norm other", ops=("cumsum",)),
        ]
    )
    plain = found(retriever(tmp_path, truth, Mixture(**FLAT, diversity=0.0)), text="row norm layer")
    assert plain == ["e/0", "e/1", "e/2", "e/other"]
    diverse = found(retriever(tmp_path, truth), text="row norm layer", limit=2)
    assert diverse == ["e/0", "e/other"]


def test_the_budget_takes_whole_hits_and_at_least_one(tmp_path: Path) -> None:
    truth = MemoryTruth(
        [
            entry("e/long", "first words", answer="x" * 4000),
            entry("e/longer", "first words second", answer="y" * 4000),
            entry("e/short", "first words third", answer="z" * 40),
        ]
    )
    search = retriever(tmp_path, truth)
    everything = [hit.entry for hit in search.search(Query(text="first words"))]
    assert everything[0].id == "e/long"
    assert found(search, text="first words", tokens=1) == ["e/long"]
    enough = tokens_of(everything[0]) + 20
    assert found(search, text="first words", tokens=enough) == ["e/long", "e/short"]
    assert len(found(search, text="first words", tokens=10**6)) == 3
    assert len(found(search, text="first words", tokens=10**6, limit=1)) == 1


def test_the_same_question_has_the_same_answer(tmp_path: Path, truth: MemoryTruth) -> None:
    query = Query(text="softmax of rows", structure=SOFTMAX)
    first = retriever(tmp_path, truth).search(query)
    assert retriever(tmp_path, truth).search(query) == first
    assert retriever(tmp_path / "other", truth).search(query) == first


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (Query(text="softmax of rows"), "words"),
        (Query(text="class Model", structure=SOFTMAX), "structure"),
        (Query(text="raise ValueError", structure=SOFTMAX), "structure"),
        (Query(text="CompilationError: at 3:4", words=""), "error"),
        (Query(words="an illegal memory access", structure=SOFTMAX), "error"),
        (Query(text="ValueError('arange')"), "error"),
        (Query(text="UnsupportedLanguageConstruct: at 4:12"), "error"),
        (Query(text="at 9:4:\n    tl.store(p, x)\n    ^\nExpected a pointer"), "error"),
    ],
)
def test_kinds_of_question(query: Query, kind: str) -> None:
    assert question_kind(query) == kind


def test_identifiers_are_the_different_words_of_a_text() -> None:
    text = "def forward(self, x): return F.softmax(x, dim=-1) # softmax_row"
    assert identifiers(text) == ("x", "F", "softmax", "dim", "1", "softmax_row")
    assert identifiers('"; DROP TABLE -- *') == ("DROP", "TABLE")
    assert len(identifiers(" ".join(f"w{i}" for i in range(900)))) == 64


TRACEBACK = """Traceback (most recent call last):
  File "/home/someone/run.py", line 8, in launch
    kernel[grid](x)
  File "jit.py", line 9, in run
    ~~~^^^
ValueError: tile of 48 is no power of 2
"""


def test_an_error_is_asked_without_the_files_of_its_traceback() -> None:
    own = "kernel[grid](x) ~~~^^^ ValueError: tile of 48 is no power of 2"
    assert " ".join(error_words(TRACEBACK).split()) == own
    assert embedded_text(Query(text=TRACEBACK)) == error_words(TRACEBACK)
    words = asked_words(Query(words=TRACEBACK))
    assert "tile" in words
    assert "someone" not in words
    only = 'File "a.py", line 1'
    assert error_words(only) == only, "an error that is a frame alone keeps it"


def test_what_is_computed_is_asked_for_in_words_too() -> None:
    asked = asked_words(Query(text="def forward(self, q): return q", structure=SOFTMAX))
    assert asked.split()[0] == "softmax"


def test_one_passage_that_holds_all_words_counts(tmp_path: Path) -> None:
    title, text = "t", "one two three four five six"
    rest = "of other matters entirely here"
    truth = MemoryTruth(
        [
            entry("notes/apart", kind="note", answer=f"alpha {text}\n\nbeta {text}\n\n{rest}"),
            entry("notes/together", kind="note", answer=f"{text} alpha beta\n\n{rest}\n\n{title}"),
        ]
    )
    weights = Weights(dense=0.0, lexical=0.1, structural=0.0, passage=1.0)
    search = retriever(tmp_path, truth, Mixture(words=weights))
    hits = search.search(Query(text="alpha beta"))
    assert hits[0].entry.id == "notes/together"
    assert hits[0].score.passage_rank == 1
    assert (hits[0].score.passage or 0.0) > (hits[1].score.passage or 0.0) > 0.0


def test_reciprocal_rank_fusion() -> None:
    weights = Weights(dense=1.0, lexical=2.0, structural=0.0)
    scores = fuse(
        {
            "dense": Ranked(("a", "b"), (0.9, 0.8)),
            "lexical": Ranked(("b",), (-3.0,)),
            "structural": Ranked(("c",), (1.0,)),
        },
        weights,
        10.0,
    )
    assert set(scores) == {"a", "b"}
    assert scores["a"].fused == pytest.approx(1 / 11)
    assert scores["b"].fused == pytest.approx(1 / 12 + 2 / 11)
    assert (scores["b"].dense_rank, scores["b"].lexical) == (2, -3.0)


def test_who_knows_the_very_message_comes_first(tmp_path: Path, truth: MemoryTruth) -> None:
    search = retriever(tmp_path, truth)
    words = "two rows"
    plain = [hit.entry.id for hit in search.search(Query(text=words, words=words))]
    assert plain[0] != "pair/gemm"
    knowing = Retriever(
        truth,
        open_vectors(tmp_path / "vectors", EMBEDDER),
        StructureIndex(tmp_path / "structures", op_vector, similarity),
        EMBEDDER,
        Mixture(words=Weights(dense=0.0, lexical=1.0, structural=0.0)),
        lambda message: ["pair/gemm", "pair/none"] if message == words else [],
    )
    hits = knowing.search(Query(text=words, words=words))
    assert hits[0].entry.id == "pair/gemm"
    assert hits[0].score.lexical_rank == 1
    kinds = Filters(kinds=("fix",))
    assert found(knowing, text=words, words=words, filters=kinds) == ["fixes/power"]
    assert found(knowing, text=words)[0] != "pair/gemm", "only a message has words of its own"
