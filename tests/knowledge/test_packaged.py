"""Does each packaged document become an entry that says what it computes, and nothing of Triton?"""

from __future__ import annotations

import ast

import pytest

from agentkernel.domain.knowledge import Entry, Structure
from agentkernel.knowledge.documents import load_documents, packaged_entries

SOME = Structure(ops=("add",))


@pytest.fixture(scope="module")
def entries() -> dict[str, Entry]:
    found = packaged_entries(load_documents(), lambda source: SOME if "forward" in source else None)
    return {entry.id: entry for entry in found}


def test_every_document_has_one(entries: dict[str, Entry]) -> None:
    assert set(entries) == {document.id for document in load_documents()}


def test_a_kernels_problem_is_its_module_alone(entries: dict[str, Entry]) -> None:
    kernels = [entry for entry in entries.values() if entry.kind == "kernel"]
    assert kernels
    for entry in kernels:
        names = {node.name for node in ast.parse(entry.problem).body if hasattr(node, "name")}
        assert {"Model", "get_inputs"} <= names, entry.id
        assert "ModelNew" not in entry.problem, entry.id
        assert "triton" not in entry.problem, entry.id
        assert "class ModelNew" in entry.answer
        assert entry.structure == SOME


def test_a_note_has_no_problem(entries: dict[str, Entry]) -> None:
    note = entries["notes/hopper"]
    assert (note.kind, note.problem, note.structure) == ("note", "", None)
    assert note.architectures == ("hopper",)
    assert note.hints
    assert len(note.passages) > 3
