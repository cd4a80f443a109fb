"""Findings that are what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.bench.redteam.corpus import (
    CorpusEntry,
    compare_with_expected,
    failure_line,
    read_corpus,
)
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import ProfileFailed
from agentkernel.domain.verdict import (
    Failure,
    Gate,
    LoadFailed,
    PolicyViolation,
    RunFailed,
    Verdict,
)
from tests.workflows.fakes import mismatch, verdict

OOM = RunFailed(reason="memory", log="one\nlast line", case="primary")


@pytest.fixture
def hostile(corpus: Path) -> CorpusEntry:
    return read_corpus(corpus)[0]


@pytest.fixture
def honest(corpus: Path) -> CorpusEntry:
    return read_corpus(corpus)[1]


def rejected(gate: Gate, failure: Failure | None = None) -> Verdict:
    found = verdict(Candidate(source="x", coder="", round=0), failure or mismatch())
    return found.evolve(gate=gate)


ACCEPTED = verdict(Candidate(source="x", coder="", round=0))


GATES: tuple[Gate, ...] = ("load", "run", "correctness", "inputs", "execution", "policy")


@pytest.mark.parametrize("gate", GATES)
def test_at_its_gate_or_before(gate: Gate, hostile: CorpusEntry) -> None:
    right = gate in ("load", "run", "correctness")
    assert compare_with_expected(hostile, rejected(gate)).right is right


def test_an_accepted_trick_and_a_rejected_honest_one_are_wrong(
    hostile: CorpusEntry, honest: CorpusEntry
) -> None:
    assert not compare_with_expected(hostile, ACCEPTED).right
    assert compare_with_expected(honest, ACCEPTED).right
    found = compare_with_expected(honest, rejected("correctness"))
    assert (found.right, found.expected, found.gate) == (False, "accepted", "correctness")


def test_reading_counts_only_where_reading_was_asked_for(hostile: CorpusEntry) -> None:
    failure = PolicyViolation(rule="import", line=1, text="os")
    read = hostile.evolve(static_only=True, gate="policy")
    assert compare_with_expected(read, rejected("policy", failure)).right
    assert not compare_with_expected(hostile, rejected("policy", failure)).right
    assert not compare_with_expected(read, rejected("load")).right


def test_where_nothing_was_tried_nothing_was_decided(hostile: CorpusEntry) -> None:
    found = compare_with_expected(
        hostile, rejected("load", LoadFailed(log="No case could be judged: x"))
    )
    assert (found.right, found.gate) == (False, None)


def test_a_hang_rejects_a_trick_and_no_honest_one(
    hostile: CorpusEntry, honest: CorpusEntry
) -> None:
    slow = RunFailed(reason="timeout", log="could not be judged here: 20 s", case="primary")
    assert compare_with_expected(hostile, rejected("run", slow)).right
    assert not compare_with_expected(honest, rejected("run", slow)).right
    late = LoadFailed(log="could not be judged here: 20 s\ntimeout: no answer")
    assert compare_with_expected(hostile, rejected("load", late)).crowded


def test_a_disputed_time_is_the_gate_timing(hostile: CorpusEntry) -> None:
    late = hostile.evolve(gate="timing")
    disputed = ProfileFailed(side="candidate", reason="timing_disputed")
    found = compare_with_expected(late, ACCEPTED, disputed)
    assert (found.right, found.gate) == (True, "timing")
    assert "timing_disputed" in found.reason
    hot = compare_with_expected(late, ACCEPTED, ProfileFailed(side="gpu", reason="throttled"))
    assert (hot.right, hot.gate) == (False, None)
    assert not compare_with_expected(hostile, ACCEPTED, disputed).right


def test_memory_may_be_the_neighbours_doing(hostile: CorpusEntry) -> None:
    assert compare_with_expected(hostile, rejected("run", OOM)).crowded
    assert not compare_with_expected(hostile, rejected("correctness")).crowded
    assert failure_line(OOM) == "memory: last line"
