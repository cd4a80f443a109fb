"""Is a model cut anew where it changed, and which of its regions get a kernel?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.domain.region import ModelCut, Refused, RegionUse
from agentkernel.nightly.library import Library
from agentkernel.nightly.scheduler.jobs import CutDone, CutJob, NightRequest
from agentkernel.nightly.scheduler.region_outcomes import (
    KnownCuts,
    Placement,
    RegionOutcome,
    missing_whole,
    placements,
)
from tests.nightly.scheduler.night_work import cut_of
from tests.nightly.scheduler.test_engine import wanted, zoo_of

GPU = "NVIDIA H200"


def question(
    folder: Path, night: str, gpu: str | None = GPU, torch: str = "2.11.0"
) -> NightRequest:
    asked = wanted(folder, zoo_of(folder, a="one two"))
    return NightRequest(
        night=night,
        parts=asked.parts,
        target="h200",
        settings=asked.settings,
        gpu=gpu,
        torch=torch,
        triton="3.6.0",
    )


def job(asked: NightRequest, sha256: str | None = None) -> CutJob:
    part = asked.parts[0]
    if sha256 is not None:
        part = part.evolve(sha256=sha256)
    return CutJob(night=asked.night, part=part, target="h200")


def measured(asked: NightRequest) -> CutDone:
    cut = cut_of(asked.parts[0].model).evolve(basis="measured")
    return CutDone(cut=cut, gpu=GPU, seconds=60.0)


def test_the_next_night_takes_the_cut_for_no_time(tmp_path: Path) -> None:
    first, second = question(tmp_path, "one"), question(tmp_path, "two")
    with Library(tmp_path / "library.sqlite") as library:
        assert KnownCuts(first, library).known(job(first)) is None
        KnownCuts(first, library).keep(job(first), measured(first))
        found = KnownCuts(second, library).known(job(second))
    assert found is not None
    assert (found.cut, found.gpu) == (measured(first).cut, GPU)
    assert found.seconds == 0.0


@pytest.mark.parametrize("changed", ["model", "gpu", "torch", "no gpu"])
def test_what_changed_is_cut_anew(tmp_path: Path, changed: str) -> None:
    first = question(tmp_path, "one")
    gpu = {"gpu": "NVIDIA H100", "no gpu": None}.get(changed, GPU)
    torch = "2.12.0" if changed == "torch" else "2.11.0"
    second = question(tmp_path, "two", gpu, torch)
    asked = job(second, "f" * 64 if changed == "model" else None)
    with Library(tmp_path / "library.sqlite") as library:
        KnownCuts(first, library).keep(job(first), measured(first))
        assert KnownCuts(second, library).known(asked) is None


def test_an_estimated_cut_is_made_anew(tmp_path: Path) -> None:
    first = question(tmp_path, "one")
    estimated = CutDone(cut=cut_of(first.parts[0].model), gpu=GPU)
    with Library(tmp_path / "library.sqlite") as library:
        KnownCuts(first, library).keep(job(first), estimated)
        assert KnownCuts(first, library).known(job(first)) is None


def test_a_kernel_within_another_is_not_placed_and_the_whole_comes_beside_them() -> None:
    paths = ("a.b", "a", "", "ab", "a.b.c")
    able = [Placement(RegionUse(model="m", path=path), path) for path in paths]
    assert [item.signature for item in placements(able)] == ["", "a", "ab"]


def test_why_a_whole_has_no_kernel() -> None:
    refused = (
        Refused(model="m", path="a", reason="not this"),
        Refused(model="m", path="", reason="it runs 80 ops"),
    )
    cut = ModelCut(model="m", basis="estimated", time_us=1.0, regions=(), refused=refused)
    whole = [Placement(RegionUse(model="m", path=""), "s")]
    found = RegionOutcome(status="new", sha256="0")
    assert missing_whole(cut, [], {}) == "it runs 80 ops"
    assert missing_whole(cut, whole, {}) == "it takes too little of the time, or has no headroom"
    assert missing_whole(cut, whole, {"s": found}) == ""
    assert missing_whole(cut, whole, {"s": RegionOutcome("failed", "hung")}) == "failed: hung"
