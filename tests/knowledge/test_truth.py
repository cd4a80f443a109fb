import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.errors import KnowledgeError
from agentkernel.domain.knowledge import Entry, Filters, Gain
from agentkernel.knowledge.store import KnowledgeStore, open_knowledge_store
from agentkernel.knowledge.store_schema import Progress, PutCounts, Removed


@pytest.fixture
def truth(tmp_path: Path) -> Iterator[KnowledgeStore]:
    with open_knowledge_store(tmp_path) as opened:
        yield opened


def pair(name: str, **changes: object) -> Entry:
    start = Entry(
        id=f"pairs/{name}",
        kind="pair",
        title=f"Pair {name}",
        answer="import triton",
        passages=(f"what {name} does",),
        source="here",
        licence="MIT",
    )
    return start.evolve(**changes)


def experience(name: str, time_us: float, triton: str = "3.6", **changes: object) -> Entry:
    gain = Gain(gpu=str(changes.pop("gpu", "H100")), time_us=time_us)
    return pair(
        name, kind="experience", problem="class Model: ...", triton=triton, gain=gain
    ).evolve(**changes)


def test_what_is_put_is_there_after_opening_again(tmp_path: Path) -> None:
    entry = pair("a", hints={"row.num_warps": "8"}, architectures=("hopper",))
    with open_knowledge_store(tmp_path) as truth:
        assert truth.put([entry, pair("b")]) == PutCounts(2, 0, 0)
    with open_knowledge_store(tmp_path) as truth:
        assert truth.get("pairs/a") == entry
        assert truth.get("pairs/c") is None
        assert (truth.count(), truth.count("pair"), truth.count("fix")) == (2, 2, 0)


def test_the_same_content_changes_nothing_and_another_one_keeps_the_old(
    truth: KnowledgeStore,
) -> None:
    truth.put([pair("a")])
    assert truth.put([pair("a", created="2026-01-01")]) == PutCounts(0, 0, 1)
    assert truth.last_seq == 1
    assert truth.put([pair("a", title="Better")]) == PutCounts(0, 1, 0)
    assert truth.get("pairs/a") == pair("a", title="Better")
    assert [past.entry for past in truth.history("pairs/a")] == [pair("a")]


def test_an_index_sees_each_changed_id_once_in_its_present_state(truth: KnowledgeStore) -> None:
    truth.put([pair("a"), pair("b"), pair("c")])
    seen = truth.last_seq
    truth.put([pair("a", title="Better")])
    truth.supersede("pairs/b", "pairs/a", "slower")
    truth.remove("pairs/c", "withdrawn")
    assert [change.entry for change in truth.entries(seen)] == [
        pair("a", title="Better"),
        Removed("pairs/b"),
        Removed("pairs/c"),
    ]
    assert [change.seq for change in truth.entries(limit=2)] == [4, 5]
    assert list(truth.entries(truth.last_seq)) == []


def test_entries_come_page_by_page_without_loss(truth: KnowledgeStore) -> None:
    truth.put(pair(str(number)) for number in range(450))
    assert [change.seq for change in truth.entries()] == list(range(1, 451))
    assert len(list(truth.entries(limit=401))) == 401


def test_a_superseded_entry_is_not_found_but_can_be_shown(truth: KnowledgeStore) -> None:
    truth.put([pair("old", title="Softmax rows"), pair("new", title="Softmax rows online")])
    assert truth.supersede("pairs/old", "pairs/new", "slower") is True
    assert truth.supersede("pairs/old", "pairs/new", "slower") is False
    assert truth.get("pairs/old") is None
    assert truth.get("pairs/old", superseded=True) == pair("old", title="Softmax rows")
    assert [found.id for found in truth.lexical("softmax")] == ["pairs/new"]
    (past,) = truth.history("pairs/old")
    assert (past.why, past.superseded_by) == ("slower", "pairs/new")
    assert truth.put([pair("old", title="Softmax rows")]) == PutCounts(same=1)
    assert truth.get("pairs/old") is None
    truth.put([pair("old", title="Softmax mended")])
    assert len(truth.lexical("softmax")) == 2


@pytest.mark.parametrize(("old", "new"), [("a", "a"), ("a", "none"), ("none", "a"), ("a", "gone")])
def test_only_a_current_entry_supersedes_a_known_one(
    truth: KnowledgeStore, old: str, new: str
) -> None:
    truth.put([pair("a"), pair("gone")])
    truth.remove("pairs/gone", "withdrawn")
    with pytest.raises(KnowledgeError, match="Next:"):
        truth.supersede(f"pairs/{old}", f"pairs/{new}", "why")
    assert truth.get("pairs/a") is not None


@pytest.mark.parametrize(
    ("second", "current"),
    [
        (experience("two", 9.0), ["two"]),
        (experience("two", 11.0), ["one"]),
        (experience("two", 10.0), ["one"]),
        (experience("two", 11.0, triton="3.7"), ["two"]),
        (experience("two", 9.0, gpu="A100"), ["one", "two"]),
        (experience("two", 9.0, problem="another"), ["one", "two"]),
        (experience("two", 9.0, architectures=("ada",)), ["one", "two"]),
        (experience("two", 11.0, triton="3.5", created="2025-01-01"), ["one"]),
        (experience("two", 9.0, gain=None), ["one", "two"]),
    ],
)
def test_the_better_experience_stays(
    truth: KnowledgeStore, second: Entry, current: list[str]
) -> None:
    truth.settle(experience("one", 10.0, created="2026-01-01"))
    stamped = second if second.created else second.evolve(created="2026-02-01")
    settled = truth.settle(stamped)
    assert settled.put == PutCounts(added=1)
    assert sorted(entry.id for entry in truth.select(Filters())) == [f"pairs/{n}" for n in current]
    assert truth.count() + truth.count(state="superseded") == 2


OWN = experience("own", 10.0, verified="gpu", created="2026-01-01")
"""What was measured on this machine."""


@pytest.mark.parametrize(
    "foreign",
    [
        {"source": "imported: here", "verified": "gpu"},
        {"source": "imported: here", "verified": "gpu", "triton": "9.9"},
        {"source": "imported: here", "verified": "no"},
        {"verified": "no"},
        {"verified": "interpreter", "triton": "9.9"},
        {"verified": "gpu", "triton": "9.9", "created": "2999-01-01"},
        {"verified": "gpu", "triton": "9.9", "created": "tomorrow"},
    ],
)
def test_nothing_supersedes_what_was_measured_here_on_its_word_alone(
    tmp_path: Path, foreign: dict[str, object]
) -> None:
    claim = experience("claim", 0.5, created="2026-02-01").evolve(**foreign)
    for place, order in enumerate(((OWN, claim), (claim, OWN))):
        with open_knowledge_store(tmp_path / str(place)) as truth:
            winners = [truth.settle(entry).winner for entry in order]
            assert winners[-1] == OWN.id
            assert truth.get(OWN.id) == OWN
            assert truth.get(claim.id) is None
            assert truth.get(claim.id, superseded=True) == claim


def test_of_two_foreign_experiences_the_verified_one_stays(truth: KnowledgeStore) -> None:
    foreign = {"source": "imported: there", "created": "2026-01-01"}
    truth.settle(experience("seen", 10.0, verified="gpu", **foreign))
    settled = truth.settle(experience("said", 0.5, **foreign))
    assert (settled.winner, settled.superseded) == ("pairs/seen", ("pairs/said",))


@pytest.mark.parametrize("time_us", [1e-9, 0.099, float("inf")])
def test_a_time_that_cannot_be_is_refused(truth: KnowledgeStore, time_us: float) -> None:
    truth.settle(OWN)
    claim = experience("claim", time_us)
    with pytest.raises(KnowledgeError, match=r"refused: a time of .* expected 0\.1 us or more"):
        truth.settle(claim)
    truth.put([claim])
    slower = OWN.evolve(id="pairs/new", verified="no", created="2026-02-01")
    assert truth.settle(slower).winner == OWN.id
    assert [entry.id for entry in truth.select(Filters())] == [OWN.id]


def test_figures_that_cannot_be_read_are_refused(truth: KnowledgeStore) -> None:
    with pytest.raises(KnowledgeError, match="'experience' cannot be read"):
        truth.settle(experience("claim", 9.0, hints={"experience": '{"tried": 1}'}))
    assert truth.count() == 0


@pytest.mark.parametrize(
    "foreign", [{"source": "imported: here", "verified": "gpu"}, {"verified": "no"}]
)
def test_a_claim_under_the_id_of_an_own_experience_changes_nothing(
    truth: KnowledgeStore, foreign: dict[str, object]
) -> None:
    truth.settle(OWN)
    claim = OWN.evolve(answer="other", **foreign)
    assert truth.put([claim]) == PutCounts(same=1)
    assert truth.settle(claim).winner == OWN.id
    assert truth.get(OWN.id) == OWN
    assert truth.put([OWN.evolve(answer="better")]) == PutCounts(changed=1)


def test_progress_is_written_with_the_last_batch(truth: KnowledgeStore) -> None:
    def broken() -> Iterator[Entry]:
        for number in range(700):
            yield pair(str(number))
        raise RuntimeError("the source broke")

    assert truth.progress("book") is None
    with pytest.raises(RuntimeError):
        truth.put(broken(), progress=Progress("book", 700))
    assert (truth.count(), truth.progress("book")) == (500, None)
    truth.put((pair(str(number)) for number in range(700)), progress=Progress("book", 700))
    assert truth.progress("book") == Progress("book", 700, "unfinished")
    truth.put([], progress=Progress("book", 900, "finished"))
    assert truth.progress("book") == Progress("book", 900, "finished")


def test_filters_let_through_what_they_say(truth: KnowledgeStore) -> None:
    truth.put(
        [
            pair("a", verified="gpu", architectures=("hopper", "ada")),
            pair("b", kind="note", licence="BSD"),
            pair("c", architectures=("cdna3",)),
        ]
    )

    def ids(**fields: object) -> str:
        found = [entry.id[-1] for entry in truth.select(Filters.model_validate(fields))]
        hits = sorted(
            hit.id[-1] for hit in truth.lexical("what", 9, Filters.model_validate(fields))
        )
        assert hits == found
        return "".join(found)

    assert ids() == "abc"
    assert ids(kinds=("note",)) == "b"
    assert ids(architecture="hopper") == "ab"
    assert ids(architecture="hop") == "b"
    assert ids(licences=("MIT",)) == "ac"
    assert ids(verified=("gpu", "interpreter")) == "a"
    assert ids(without_ids=("pairs/a",)) == "bc"


def test_stats_count_what_is_current(truth: KnowledgeStore) -> None:
    truth.put([pair("a"), pair("b", kind="note", licence="BSD"), pair("c")])
    truth.put([pair("a", title="Better")])
    truth.remove("pairs/c", "withdrawn")
    stats = truth.stats()
    assert (stats.current, stats.superseded, stats.removed, stats.versions) == (2, 0, 1, 1)
    assert stats.by_kind == {"note": 1, "pair": 1}
    assert stats.by_licence == {"BSD": 1, "MIT": 1}
    assert stats.by_verified == {"no": 2}
    assert stats.by_source == {"here": 2}
    assert stats.file_bytes > 0


def test_threads_share_one_truth(truth: KnowledgeStore) -> None:
    def work(name: int) -> None:
        for number in range(20):
            truth.put([pair(f"{name}-{number}")])
            truth.lexical(f"pair {number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert truth.count() == truth.last_seq == 80
