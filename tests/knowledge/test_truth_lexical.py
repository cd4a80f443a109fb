import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.knowledge import store_schema
from agentkernel.knowledge.store import KnowledgeStore, open_knowledge_store
from agentkernel.knowledge.store_schema import (
    distinct_stems,
    distinct_words,
    stem,
    stems_of,
    words_of,
)

ERROR = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144"


def entry(name: str, title: str = "", answer: str = "", **changes: object) -> Entry:
    start = Entry(
        id=name, kind="pair", title=title, answer=answer, passages=(), source="", licence="MIT"
    )
    return start.evolve(**changes)


@pytest.fixture
def truth(tmp_path: Path) -> Iterator[KnowledgeStore]:
    with open_knowledge_store(tmp_path) as opened:
        opened.put(
            [
                entry("norm", "Layer norm", "y = F.layer_norm(x)"),
                entry("scaled", "Block scaled product", "tl.dot_scaled(a, b)"),
                entry("spill", "Too much shared memory", ERROR, kind="fix"),
                entry("relu", "Activation", "def forward(self, x): return torch.relu(x)"),
            ]
        )
        yield opened


def ids(truth: KnowledgeStore, words: str, **fields: object) -> list[str]:
    return [found.id for found in truth.lexical(words, 9, Filters.model_validate(fields))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LayerNorm2d", ["layer", "norm", "2d", "layernorm2d", "layernorm"]),
        ("layer_norm_2d", ["layer", "norm", "2d", "layernorm2d", "layernorm"]),
        ("tl.dot_scaled", ["tl", "dot", "scaled", "dotscaled"]),
        ("RMSNorm HTTPError", ["rms", "norm", "rmsnorm", "http", "error", "httperror"]),
        ("float32 x 7", ["float", "32", "float32"]),
        ("def forward(self): return x", []),
        ("Größe über", ["größe", "über"]),
        ("a" * 60, []),
    ],
)
def test_identifiers_are_split(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


FORMS = """tile tiles tiled tiling
program programs
spill spills spilled spilling
query queries
pass passes passing"""


@pytest.mark.parametrize("words", FORMS.splitlines())
def test_forms_of_one_word_share_a_stem(words: str) -> None:
    assert len(set(map(stem, words.split()))) == 1


@pytest.mark.parametrize("word", ["bus", "gemm", "gpu", "sm90", "layernorm2d", "loss", "cuda"])
def test_a_name_is_no_form_of_a_word(word: str) -> None:
    assert stem(word) == word


def test_stems_are_those_of_the_words() -> None:
    assert list(stems_of("Tiles of tiles")) == [stem("tiles")] * 2
    assert list(distinct_stems("tiles", "tiled kernels")) == [stem("tile"), stem("kernel")]


def test_a_word_comes_once_where_that_is_asked_for() -> None:
    assert list(distinct_words("dot dot", "dot sum")) == ["dot", "sum"]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("nn.LayerNorm2d", "norm"),
        ("layernorm", "norm"),
        ("dotScaled", "scaled"),
        (ERROR, "spill"),
        ("OutOfResources: shared memory, Required: 262144", "spill"),
        ("ReLU()", "relu"),
    ],
)
def test_spellings_meet(truth: KnowledgeStore, words: str, first: str) -> None:
    assert ids(truth, words)[0] == first


ODD = ("", "  ", '"', "AND", "norm AND (", "NEAR(norm", "^*:-+{}", "\x00\ud800norm")


@pytest.mark.parametrize("words", [*ODD, "'; drop table words"])
def test_no_character_is_an_error(truth: KnowledgeStore, words: str) -> None:
    truth.lexical(words)
    assert ids(truth, f"{words} dot_scaled")[0] == "scaled"


def test_the_title_counts_most_and_ranks_go_up(truth: KnowledgeStore) -> None:
    truth.put([entry("other", "Other", "swizzle"), entry("named", "Swizzle", "nothing of it")])
    found = truth.lexical("swizzle")
    assert [(hit.id, hit.rank) for hit in found] == [("named", 1), ("other", 2)]
    assert found[0].score > found[1].score > 0


def test_what_changed_or_ended_is_found_by_its_present_words_only(truth: KnowledgeStore) -> None:
    truth.put([entry("norm", "Group norm")])
    assert ids(truth, "layer") == []
    assert ids(truth, "group") == ["norm"]
    truth.remove("norm", "withdrawn")
    assert ids(truth, "group norm") == []


def test_document_counts_are_those_of_the_current_entries(truth: KnowledgeStore) -> None:
    truth.put([entry("norm", "Group norm"), entry("new", "norm norm")])
    truth.remove("relu", "withdrawn")
    truth.close()
    with sqlite3.connect(truth.path) as file:
        counts = dict(file.execute("select term, documents from terms where documents <> 0"))
    file.close()
    assert (counts["norm"], counts["group"]) == (2, 1)
    assert "relu" not in counts


def test_common_words_are_searched_together_titles_first(
    truth: KnowledgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_schema, "MOST_MATCHES", 1)
    truth.put(
        [
            entry("body", "Other", "softmax online"),
            entry("title", "Online softmax"),
            entry("half", "Softmax"),
        ]
    )
    assert ids(truth, "softmax online") == ["title", "body"]
    assert ids(truth, "softmax online", without_ids=("title",))[0] != "title"
    assert len(truth.lexical("softmax online", 1)) == 1
    assert ids(truth, "swizzle softmax online", licences=("MIT",)) == ["title", "body"]
    truth.put([entry("rare", "Swizzle", licence="BSD")])
    assert ids(truth, "swizzle softmax online", licences=("MIT",)) == ["title", "body"]


def test_an_index_of_another_version_is_made_anew(truth: KnowledgeStore) -> None:
    truth.remove("relu", "withdrawn")
    truth.close()
    file = sqlite3.connect(truth.path)
    file.execute("update meta set value = '0' where key = 'words_format'")
    file.execute("insert into words (words) values ('delete-all')")
    file.execute("delete from terms")
    file.commit()
    file.close()
    with open_knowledge_store(truth.path.parent) as again:
        assert ids(again, "layernorm") == ["norm"]
        assert ids(again, "relu") == []
