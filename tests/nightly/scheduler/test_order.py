"""The order of a night: the most gain for a second first, and no region eats the whole budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.domain.nightly import RegionStatus
from agentkernel.domain.region import ModelCut, Region, RegionUse
from agentkernel.nightly.library.library import Library
from agentkernel.nightly.regions import WorkOrder, budget_of, draft_seconds, merge_cuts
from agentkernel.nightly.scheduler.jobs import (
    CutDone,
    CutJob,
    EndToEndJob,
    KernelDone,
    KernelJob,
    NightRequest,
    Ranking,
)
from agentkernel.nightly.scheduler.scheduler import Scheduler
from agentkernel.storage.configuration import load_settings
from tests.nightly.scheduler.night_work import answered, parts_of, zoo_of

WHOLE_S = 4000.0


def region(name: str, path: str, share: float, ops: int, parts: tuple[str, ...] = ()) -> Region:
    signature = name[0] * 16
    return Region(
        signature=signature, name=name, ops=("aten.add",), shapes="x", basis="estimated",
        uses=(RegionUse(model="m", path=path, parameters=("weight",), share=share),),
        eager_us=10.0, bound_us=5.0, share=share, headroom=0.5, score=share / 2, parts=parts,
        device_ops=ops,
    )  # fmt: skip


BLOCK = region("block", "block", 0.8, 11, ("a" * 16,))
INNER = region("attention", "block.attn", 0.5, 8)
NORM = region("dcale_norm", "norm", 0.15, 5)


class Night:
    """A night by hand, one job at a time, with a clock that jobs move on."""

    def __init__(
        self,
        folder: Path,
        budget_s: float | None,
        store: Library,
        regions: tuple[Region, ...] = (BLOCK, INNER, NORM),
    ) -> None:
        self.now, self.regions = 0.0, regions
        request = NightRequest(
            night=folder.name, parts=parts_of(zoo_of(folder, m="")), target="h100-sxm",
            settings=load_settings(None, (), {"runs": str(folder / "runs")}), gpu=None,
            torch="2.13.0", triton="3.9.0", budget_s=budget_s, reserve=0.0,
        )  # fmt: skip
        ranking = Ranking(merge_cuts, WorkOrder, budget_of)
        self.scheduler = Scheduler(request, store, ranking, clock=lambda: self.now)
        self.jobs: list[tuple[str, int]] = []
        self.compared: list[EndToEndJob] = []

    def run(self, needed: dict[str, float]) -> None:
        """`needed`: seconds by name that a region's kernel takes in all."""
        spent: dict[str, float] = {}
        while (job := self.scheduler.take()) is not None:
            if isinstance(job, CutJob):
                cut = ModelCut(model="m", basis="estimated", time_us=100.0, regions=self.regions)
                self.scheduler.done(job, CutDone(cut=cut))
            elif isinstance(job, EndToEndJob):
                self.compared.append(job)
                self.scheduler.done(job, answered(job))
            else:
                self.scheduler.done(job, self._kernel(job, needed, spent))

    def _kernel(
        self, job: KernelJob, needed: dict[str, float], spent: dict[str, float]
    ) -> KernelDone:
        name = job.region.name
        self.jobs.append((name, job.again))
        before = spent.get(name, 0.0)
        took = min(needed[name] - before, job.budget_s or WHOLE_S)
        self.now += took
        spent[name] = before + took
        if spent[name] >= needed[name]:
            done = answered(job)
            assert isinstance(done, KernelDone)
            return done.evolve(seconds=took)
        status: RegionStatus = "kept"
        return KernelDone(
            status=status, reason="drafted; the time limit was over", limited=True,
            resumable=True, seconds=took,
        )  # fmt: skip

    def status(self) -> dict[str, str]:
        known = self.scheduler.regions
        return {known[key].name: item.status for key, item in self.scheduler.decided.items()}


def test_what_is_cheap_for_its_gain_begins(tmp_path: Path) -> None:
    model = region("complete", "", 1.0, 60).evolve(ops=("aten.linear", "aten.add"))
    assert model.score > NORM.score
    with Library(tmp_path / "library.sqlite") as store:
        night = Night(tmp_path, None, store, (model, NORM))
        night.run({"complete": WHOLE_S, "dcale_norm": 20.0})
    assert [name for name, _ in night.jobs] == ["dcale_norm", "complete"]


def test_what_does_not_fit_its_part_of_the_budget_waits_and_what_lies_in_it_comes_in(
    tmp_path: Path,
) -> None:
    model = region("complete", "", 1.0, 60).evolve(ops=("aten.linear", "aten.add"))
    large = BLOCK.evolve(device_ops=12, ops=("aten.linear",))
    small = region("dcale_norm", "norm", 0.01, 5)
    needed = {"complete": WHOLE_S, "block": 600.0, "attention": 60.0, "dcale_norm": 20.0}
    with Library(tmp_path / "library.sqlite") as store:
        night = Night(tmp_path, 400.0, store, (model, large, INNER, small))
        night.run(needed)
        alone = Night(tmp_path / "alone", 400.0, store, (model,))
        alone.run(needed)
    assert [name for name, _ in night.jobs][:2] == ["attention", "dcale_norm"]
    assert {name for name, _ in night.jobs} >= {"complete"}, "it has what is left"
    assert alone.jobs[0] == ("complete", 0), "nothing else waits"


def test_a_large_region_is_put_back_and_goes_on_where_time_is_left(tmp_path: Path) -> None:
    with Library(tmp_path / "library.sqlite") as store:
        night = Night(tmp_path, 1000.0, store)
        night.run({"block": 500.0, "attention": 60.0, "dcale_norm": 20.0})
    assert night.jobs.index(("attention", 0)) < night.jobs.index(("block", 1))
    assert night.status() == {"dcale_norm": "new", "attention": "new", "block": "new"}
    assert list(night.scheduler.put_back) == ["b" * 16]
    assert night.now < 1000.0


def test_without_time_left_its_answer_stands_and_the_small_ones_are_there(tmp_path: Path) -> None:
    with Library(tmp_path / "library.sqlite") as store:
        night = Night(tmp_path, 240.0, store)
        night.run({"block": 5000.0, "attention": 60.0, "dcale_norm": 20.0})
    assert night.status() == {"dcale_norm": "new", "attention": "new", "block": "kept"}
    assert night.now <= 240.0
    assert "m" in night.scheduler.rows, "the model is compared all the same"


def test_a_model_without_kernels_says_that_the_time_was_over(tmp_path: Path) -> None:
    with Library(tmp_path / "library.sqlite") as store:
        night = Night(tmp_path, 60.0, store, (region("complete", "", 1.0, 60), NORM))
        night.run({"complete": 5000.0, "dcale_norm": 5000.0})
    assert set(night.status().values()) == {"kept"}
    (asked,) = night.compared
    assert asked.no_whole == asked.cut_short == "cut short: drafted; the time limit was over"


def test_the_seconds_of_an_earlier_night_are_better_than_a_guess(tmp_path: Path) -> None:
    needed = {"block": 2000.0, "attention": 60.0, "dcale_norm": 20.0}
    orders = []
    with Library(tmp_path / "library.sqlite") as store:
        for name in ("first", "second"):
            night = Night(tmp_path / name, None, store)
            night.run(needed)
            orders.append([region for region, _ in night.jobs])
            for kernel in store.kernels():
                store.withdraw(kernel.sha256, "so that the next night drafts again")
    assert orders == [["block", "dcale_norm"], ["dcale_norm", "block"]]


def test_a_killed_night_takes_a_region_up_where_it_was_put_back(tmp_path: Path) -> None:
    needed = {"block": 500.0, "attention": 60.0, "dcale_norm": 20.0}
    with Library(tmp_path / "library.sqlite") as store:
        whole = Night(tmp_path, 1000.0, store)
        whole.run(needed)
        again = Night(tmp_path, 1000.0, store)
        again.run(needed)
    assert again.jobs == [], "every answer is on the books"
    assert again.status() == whole.status()


def test_a_product_takes_the_interpreter_longer_than_a_norm() -> None:
    linear = NORM.evolve(ops=("aten.linear",), device_ops=1)
    assert draft_seconds(linear, True) > 2 * draft_seconds(NORM, True)
    assert draft_seconds(linear, False) < draft_seconds(NORM, False)


@pytest.mark.parametrize("interpreted", [False, True])
def test_more_operations_take_longer(interpreted: bool) -> None:
    times = [draft_seconds(item, interpreted) for item in (NORM, INNER, BLOCK)]
    assert times == sorted(times)
    assert times[0] > 0
