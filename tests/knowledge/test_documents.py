import re
from pathlib import Path

import pytest

from agentkernel.knowledge.documents import (
    ARCHITECTURES,
    Document,
    DocumentError,
    family_of,
    hints_for,
    load_documents,
    read_kernel,
    read_note,
)

NOTE = """---
title: A note
summary: what it says
architectures: [hopper]
hints:
  row.num_warps: "8"
  row.num_warps@ada: "4"
  row.order@hopper+bf16: "last"
  gemm.fp32.tile: "64x64x32"
source: here
licence: Apache-2.0
---

Lead.

## First

One.

## Second

Two.
"""
NAMES = """amd_counterparts attention autotuning clocks_and_power convolution launch_overhead
memory_hierarchy mma_shapes numerics occupancy persistent_kernels reductions tma_and_async_copies
triton_idioms triton_limits"""
TOPICS = {f"notes/{name}" for name in NAMES.split()}
"""Notes that hold for every architecture."""


def test_architectures_and_topics_have_notes_and_forty_kernels_are_there() -> None:
    documents = load_documents()
    notes = {item.id: item.architectures for item in documents if item.kind == "hardware"}
    families = {f"notes/{family}": (family,) for family in ARCHITECTURES}
    assert notes == families | dict.fromkeys(TOPICS, ())
    assert sum(item.kind == "kernel" for item in documents) >= 40
    assert len({item.title for item in documents}) == len(documents)


def test_every_document_is_the_projects_own_and_says_what_it_is_for() -> None:
    for item in load_documents():
        assert (item.source, item.licence) == ("agentkernel", "Apache-2.0"), item.id
        assert item.patterns or item.architectures or item.id in TOPICS, item.id
        if item.kind == "kernel":
            assert "Helps:" in item.text, item.id
            assert "Pitfalls:" in item.text, item.id


def test_every_number_of_a_note_has_a_named_source() -> None:
    for item in load_documents():
        if item.kind == "hardware":
            assert item.text.startswith("Sources"), item.id
            sources, *sections = item.text.split("\n## ")
            named = set(re.findall(r"\[(\w+)\]", sources))
            used = {key for part in sections for key in _cited(part)}
            assert used, item.id
            assert used <= named, f"{item.id} cites {used - named}"


def _cited(section: str) -> set[str]:
    brackets = re.findall(r"\[([A-Z]\w*(?:, [A-Z]\w*)*)\]", section)
    return {key for bracket in brackets for key in bracket.split(", ")}


def test_a_topic_is_many_sections_that_stand_alone() -> None:
    for item in load_documents():
        if item.id in TOPICS:
            assert 6 <= len(item.passages) - 1 <= 12, item.id
            assert max(len(part) for part in item.passages) < 1500, item.id
            assert 40 <= len(item.text.splitlines()) <= 90, item.id


@pytest.fixture
def note(tmp_path: Path) -> Document:
    path = tmp_path / "hopper.md"
    path.write_text(NOTE)
    return read_note(path)


def test_a_note_splits_into_passages(note: Document) -> None:
    assert note.id == "notes/hopper"
    sections = ("A note: First\n\nOne.", "A note: Second\n\nTwo.")
    assert note.passages == ("A note. what it says", *sections)


@pytest.mark.parametrize(
    ("family", "dtype", "expected"),
    [
        ("hopper", "float32", {"row.num_warps": "8", "gemm.fp32.tile": "64x64x32"}),
        ("ada", "float32", {"row.num_warps": "4", "gemm.fp32.tile": "64x64x32"}),
        ("hopper", "bfloat16", {"row.num_warps": "8", "row.order": "last"}),
    ],
)
def test_hints_hold_for_an_architecture_and_a_dtype(
    note: Document, family: str, dtype: str, expected: dict[str, str]
) -> None:
    assert hints_for(note.hints, family, (dtype,)) == expected


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("80", "ampere"),
        ("86", "ampere"),
        ("89", "ada"),
        ("sm_90", "hopper"),
        ("sm_90a", "hopper"),
        ("100", "blackwell"),
        ("120", "blackwell"),
        ("gfx942", "cdna3"),
        ("hopper", "hopper"),
        ("75", None),
    ],
)
def test_family_of(name: str, family: str | None) -> None:
    assert family_of(name) == family


def test_a_kernel_is_parsed_and_never_executed(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        '"""What it is."""\nraise SystemExit\n'
        'META = {"title": "T", "patterns": ["p"], "source": "s", "licence": "l"}\n'
    )
    assert read_kernel(path).title == "T"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"""Doc."""\nX = 1\n', "no META"),
        ('META = {"title": "T", "source": "s", "licence": "l"}\n', "no docstring"),
        ('"""Doc."""\nMETA = {"title": "T"}\n', "source"),
        (
            '"""D."""\nMETA = {"title": "T", "source": "s", "licence": "l", '
            '"architectures": ["volta"]}\n',
            "'volta'",
        ),
    ],
)
def test_a_bad_kernel_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(DocumentError, match=message) as caught:
        read_kernel(path)
    assert "bad.py" in str(caught.value)
