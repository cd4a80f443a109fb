"""Does the passage that speaks of what is asked bring its entry to the front?"""

from __future__ import annotations

from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.search import by_best_passage, passages_of
from tests.knowledge import memory_store


def entry(name: str, answer: str, *passages: str, kind: str = "note") -> Entry:
    return memory_store.entry(name, *passages, answer=answer, kind=kind, title="Tiles")


LONG = "\n\n".join(
    (
        "Registers spill where a block is too large for them.",
        "Warps wait for memory unless enough of them are at hand.",
        "Cards of this family have a large cache of the second level.",
    )
)


def test_a_note_is_read_by_paragraphs_below_its_title() -> None:
    found = passages_of(entry("notes/a", f"# Head\n\n{LONG}\n- one item of a longer list", "own"))
    assert found[0] == "own"
    assert found[1] == "Tiles. Registers spill where a block is too large for them."
    assert found[-1] == "Tiles. - one item of a longer list"
    assert not any("Head" in passage for passage in found), "a heading is no paragraph"
    assert passages_of(entry("kernels/a", LONG, "own", kind="kernel")) == ("own",)


def test_words_that_stand_together_count_for_more() -> None:
    together = entry("notes/z", "Large blocks spill registers and warps wait.")
    found = by_best_passage("warps wait while registers spill", [entry("notes/a", LONG), together])
    assert list(found) == ["notes/z", "notes/a"]
    assert found["notes/z"] > found["notes/a"] > 0


def test_what_shares_no_word_is_left_out_and_ties_go_by_id() -> None:
    same = [entry(f"notes/{name}", "the cache of the card is large") for name in "ba"]
    found = by_best_passage("caches", [*same, entry("notes/c", "nothing of the kind is said here")])
    assert list(found) == ["notes/a", "notes/b"]
    assert by_best_passage("", same) == by_best_passage("caches", []) == {}


def test_a_word_that_all_have_tells_little() -> None:
    common = entry("notes/a", "block block block of common words here")
    rare = entry("notes/b", "block of rarely seen things: swizzle")
    assert next(iter(by_best_passage("block swizzle", [common, rare]))) == "notes/b"
