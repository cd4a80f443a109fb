"""Is a corpus read as its README says, and is a bad header one clear line?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.bench.redteam.corpus import acts_on, read_corpus
from agentkernel.domain.errors import ProblemError
from tests.redteam.small import HONEST, HOSTILE, candidate, put

BASE = "def a(x):\n    return x\n\n\ndef b(x):\n    return x + 1\n"
CORPUS = Path(__file__).parents[2] / "redteam"


def test_both_kinds_are_read(corpus: Path) -> None:
    hostile, honest = read_corpus(corpus)
    assert (hostile.name, hostile.kind, hostile.gate) == ("nearly", "hostile", "correctness")
    assert (hostile.title, hostile.problem_name) == ("Adds a little more.", "plus")
    assert (hostile.needs, hostile.policy, hostile.static) == ("cpu", "triton", False)
    assert (honest.name, honest.gate, honest.static) == ("plus", None, True)
    assert "plus_kernel" in honest.source


def test_more_may_be_said_between_first_line_and_header(corpus: Path) -> None:
    header = "It says: more, and\nmore.\n\n" + HOSTILE + "\npolicy: mixed"
    put(corpus, "hostile", "wordy", candidate("One.", header, "2"))
    entry = read_corpus(corpus, ["wordy"])[0]
    assert (entry.title, entry.policy) == ("One.", "mixed")


@pytest.mark.parametrize(
    ("kind", "header", "hint"),
    [
        ("hostile", "", "no header"),
        ("hostile", HONEST, "'gate' is missing"),
        ("hostile", HOSTILE.replace("cpu", "tpu"), "expected one of cpu, gpu"),
        ("hostile", HOSTILE.replace("correctness", "accepted"), "gate is 'accepted'"),
        ("hostile", HOSTILE.replace("problem: plus\n", ""), "'problem' is missing"),
        ("hostile", HOSTILE.replace("plus", "minus"), "'minus'"),
        ("hostile", f"{HOSTILE}\nmood: bad", "'mood: bad'"),
        ("hostile", f"{HOSTILE}\nneeds: gpu", "twice"),
        ("hostile", f"{HOSTILE}\nstatic: only", "go together"),
        ("hostile", HOSTILE.replace("correctness", "policy"), "go together"),
        ("honest", HOSTILE, "neither"),
    ],
)
def test_a_bad_header_is_one_line_with_the_files_name(
    kind: str, header: str, hint: str, corpus: Path
) -> None:
    put(corpus, kind, "odd", candidate("A title.", header, "1"))
    with pytest.raises(ProblemError) as caught:
        read_corpus(corpus)
    assert hint in str(caught.value)
    assert f"{kind}/odd.py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_python_and_no_corpus_and_no_such_name(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no red-team corpus"):
        read_corpus(tmp_path)
    with pytest.raises(ProblemError, match="nearest is 'nearly'"):
        read_corpus(corpus, ["nearl"])
    put(corpus, "hostile", "odd", "def (:\n")
    with pytest.raises(ProblemError, match=r"hostile/odd\.py: it cannot be read"):
        read_corpus(corpus)


def test_two_files_of_one_name_are_refused(corpus: Path) -> None:
    (corpus / "bases").mkdir()
    (corpus / "bases" / "plus.py").write_text(BASE)
    put(corpus, "hostile", "nearly", patch(""), ".patch")
    with pytest.raises(ProblemError, match=r"nearly\.(py|patch): another file of this kind"):
        read_corpus(corpus)


def patch(edits: str) -> str:
    return f'"""A title.\n\n{HOSTILE}\nbase: plus\n"""\n{edits}'


@pytest.mark.parametrize(
    ("edits", "same_as"),
    [
        ("", ("", "")),
        ("-    return x + 1\n+    return x + 2\n", ("x + 1", "x + 2")),
        ("     return x\n-\n-...\n-    return x + 1\n", (BASE[23:], "")),
        (" def a(x):\n+    x = -x\n-    return x\n-...\n", (BASE[10:], "    x = -x\n")),
    ],
)
def test_a_patch_is_its_base_with_edits(corpus: Path, edits: str, same_as: tuple[str, str]) -> None:
    (corpus / "bases").mkdir()
    (corpus / "bases" / "plus.py").write_text(BASE)
    put(corpus, "hostile", "odd", patch(edits), ".patch")
    entry = read_corpus(corpus, ["odd"])[0]
    whole = f'"""A title.\n\n{HOSTILE}\n"""\n\n' + BASE.replace(*same_as)
    assert (entry.name, entry.title, entry.source) == ("odd", "A title.", whole)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (patch("-    return x + 3\n"), "'-    return x + 3' adds no line"),
        (patch("-    return x + 1\n-    return x\n"), "'-    return x' adds no line"),
        (patch("return x\n"), "'return x' adds no line"),
        (patch("").replace('plus\n"', 'minus\n"'), "no file of bases/"),
        (patch("").replace("base: plus\n", ""), "no file of bases/"),
        (patch("+def (:\n"), "cannot be read"),
    ],
)
def test_a_bad_patch_is_one_line_with_the_files_name(corpus: Path, text: str, hint: str) -> None:
    (corpus / "bases").mkdir()
    (corpus / "bases" / "plus.py").write_text(BASE)
    put(corpus, "hostile", "odd", text, ".patch")
    with pytest.raises(ProblemError, match=r"hostile/odd\.patch: ") as caught:
        read_corpus(corpus)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_acts_where(corpus: Path) -> None:
    put(corpus, "hostile", "gpu", candidate("G.", HOSTILE.replace("cpu", "gpu"), "1"))
    put(corpus, "hostile", "late", candidate("T.", HOSTILE.replace("correctness", "timing"), "1"))
    entries = read_corpus(corpus)
    assert [e.name for e in entries if acts_on(e, "cpu")] == ["nearly", "plus"]
    assert all(acts_on(entry, "cuda") for entry in entries)


def test_the_projects_own_corpus_reads() -> None:
    kinds = {entry.kind for entry in read_corpus(CORPUS)}
    assert kinds == {"hostile", "honest"}
