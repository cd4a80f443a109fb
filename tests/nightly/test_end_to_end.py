from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn

from agentkernel.domain.nightly import Form, ModelRow, Zoo, ZooModel
from agentkernel.domain.region import Kernel, ModelCut
from agentkernel.nightly import end_to_end
from agentkernel.nightly.end_to_end import checked_row, estimated_row
from agentkernel.nightly.scheduler.jobs import EndToEndJob, ZooPart
from agentkernel.swap.end_to_end import EndToEndVerdict, Oracle
from agentkernel.swap.selection import FormTimes, times_of
from agentkernel.tools.speedup import summarise
from tests.nightly.scheduler.night_work import region_of
from tests.swap.applied_kernels import (
    WRONG,
    WRONG_BLOCK,
    block,
    block_kernel,
    example,
    mlp_kernel,
    norm_kernel,
)

MODEL = ZooModel(name="block", model="nowhere:Block", inputs=("x=f32[4,8]",))
STEADY = (1.0, 1.002, 0.998, 1.001, 0.999, 1.0, 1.003, 0.997)


class Call:
    def __init__(self, x: torch.Tensor) -> None:
        self.args = (x,)
        self.kwargs: Mapping[str, object] = {}


class Source:
    def build(self, device: str = "cpu") -> nn.Module:
        return block().to(device)

    def make_call(self, device: str = "cpu", seed: int = 0) -> Call:
        return Call(example(seed).to(device))


class Clock:
    """Each region's kernel that is in takes a tenth off eager's time; the whole's makes it
    `whole_us`."""

    def __init__(self, whole_us: float = 50.0) -> None:
        self.asked: list[set[str]] = []
        self.whole_us = whole_us

    def __call__(self, kernels: Mapping[str, Kernel]) -> FormTimes:
        self.asked.append(set(kernels))
        us: dict[Form, float] = {"eager": 100.0, "torch.compile": 99.0}
        if kernels.keys() - {""}:
            us["regions"] = 95.0 - 10.0 * len(kernels.keys() - {""})
        if "" in kernels:
            us["one-region"] = self.whole_us
        medians = {form: [value * noise for noise in STEADY] for form, value in us.items()}
        return FormTimes(
            timings={form: summarise(values) for form, values in medians.items()},
            failed={},
            ratios=times_of(medians),
            rounds=len(STEADY),
        )


def job(kernels: dict[str, Kernel], no_whole: str = "") -> EndToEndJob:
    regions = (region_of("block", "norm", "norm", 0), region_of("block", "whole", "", 1))
    regions = tuple(
        region.evolve(signature=kernels[path].key.signature, eager_us=eager_us)
        for region, eager_us in zip(regions, (40.0, 100.0), strict=True)
        if (path := region.uses[0].path) in kernels
    )
    return EndToEndJob(
        night="night",
        part=ZooPart(zoo=Zoo(name="zoo", models=(MODEL,)), sha256="0" * 64),
        target=None,
        cut=ModelCut(model="block", basis="measured", time_us=100.0, regions=regions, shapes="f32"),
        kernels=kernels,
        parameters={path: kernel.parameters for path, kernel in kernels.items()},
        no_whole=no_whole,
    )


def signed(kernel: Kernel, signature: str) -> Kernel:
    key = kernel.key.evolve(signature=signature)
    return kernel.evolve(key=key)


NORM = signed(norm_kernel(), "a" * 16)
MLP = signed(mlp_kernel(), "b" * 16)
BAD = signed(norm_kernel(WRONG), "c" * 16)
WHOLE = signed(block_kernel(), "d" * 16)
BOTH = {"norm": NORM, "mlp": MLP, "": WHOLE}


def test_one_wrong_kernel_costs_the_model_that_one_alone() -> None:
    clock = Clock()
    row = checked_row(job({"norm": NORM, "mlp": MLP, "last": BAD}), Oracle(Source()), clock)
    assert clock.asked == [{"norm", "mlp"}]
    assert (row.form, row.swapped, row.verified) == ("regions", 2, True)
    assert row.dropped == ("c" * 16,)
    assert set(row.left_out) == {"c" * 16}
    assert row.left_out["c" * 16].startswith("seed 0: output 0: 2.09e-01 norm-wise")
    assert row.failed == {}
    assert row.worst_error is not None
    assert row.worst_error < 1e-6


def test_where_all_are_right_nothing_is_left_out() -> None:
    row = checked_row(job({"norm": NORM, "mlp": MLP}), Oracle(Source()), Clock())
    assert (row.swapped, row.dropped, row.left_out) == (2, (), {})


def test_where_none_is_right_a_baseline_is_handed_over() -> None:
    clock = Clock()
    row = checked_row(job({"norm": BAD}), Oracle(Source()), clock)
    assert clock.asked == [set()]
    assert (row.form, row.swapped, row.verified) == ("torch.compile", 0, False)
    assert row.dropped == ("c" * 16,)
    assert row.failed["regions"].startswith("the outputs are not right: seed 0")


def test_a_model_without_kernels_is_timed_alone() -> None:
    row = checked_row(job({}), Oracle(Source()), Clock())
    assert (row.form, row.verified, row.left_out) == ("torch.compile", None, {})


def test_the_whole_as_one_region_is_handed_over_where_it_is_faster_than_its_regions() -> None:
    clock = Clock()
    row = checked_row(job(BOTH), Oracle(Source()), clock)
    assert clock.asked == [{"norm", "mlp", ""}]
    assert (row.form, row.swapped, row.verified, row.shapes) == ("one-region", 1, True, "f32")
    assert row.dropped == ("a" * 16, "b" * 16)
    assert row.vs_eager is not None
    assert row.vs_eager.value == pytest.approx(2.0, rel=0.01)
    assert row.why == "as one region 1.50× (1.50 to 1.50) as fast as regions"
    assert set(row.timings) == {"eager", "torch.compile", "regions", "one-region"}


def test_its_regions_are_where_they_are_faster() -> None:
    row = checked_row(job(BOTH), Oracle(Source()), Clock(whole_us=90.0))
    assert (row.form, row.swapped, row.dropped) == ("regions", 2, ("d" * 16,))
    assert row.why.startswith("as one region 0.83× (")


def test_a_fast_whole_is_no_reason_to_keep_a_region_that_costs() -> None:
    class Costly(Clock):
        def __call__(self, kernels: Mapping[str, Kernel]) -> FormTimes:
            self.whole_us = 95.0
            found = super().__call__(
                {path: item for path, item in kernels.items() if path != "mlp"}
            )
            slow = super().__call__({"": WHOLE})
            return slow if "mlp" in kernels else found

    row = checked_row(job(BOTH), Oracle(Source()), Costly())
    assert (row.form, row.dropped) == ("regions", ("b" * 16, "d" * 16))


def test_a_whole_with_wrong_outputs_costs_itself_alone() -> None:
    clock = Clock()
    wrong = signed(block_kernel(WRONG_BLOCK), "e" * 16)
    row = checked_row(job({"norm": NORM, "": wrong}), Oracle(Source()), clock)
    assert clock.asked == [{"norm"}]
    assert (row.form, row.verified, row.dropped) == ("regions", True, ("e" * 16,))
    assert row.failed["one-region"].startswith("the outputs are not right: seed 0")
    assert row.why == f"not as one region: {row.failed['one-region']}"
    assert set(row.left_out) == {"e" * 16}


def test_a_model_without_a_kernel_for_the_whole_says_why_in_one_line() -> None:
    row = checked_row(job({"norm": NORM}, "it runs 80 ops"), Oracle(Source()), Clock())
    assert (row.form, row.why) == ("regions", "not as one region: it runs 80 ops")


def test_what_the_time_limit_cut_short_is_the_first_cause() -> None:
    why = "cut short: 56344a5fe6 was drafted; the time limit was over before it was judged"
    alone = job({}, why).evolve(cut_short=why)
    assert estimated_row(alone).why == why
    assert checked_row(alone, Oracle(Source()), Clock()).why == why
    useless = {"norm": NORM.evolve(time_us=90.0)}
    assert estimated_row(job(useless, why)).why == (
        f"not as one region: {why}; no kernel is estimated to save anything"
    )


def row_estimated(
    patch: pytest.MonkeyPatch, norm_us: float, whole_us: float, wrong: str = ""
) -> ModelRow:
    """`wrong`: the kernel at that path gives wrong outputs."""

    def outputs(asked: EndToEndJob) -> EndToEndVerdict:
        (path,) = asked.kernels
        fine = (path or "whole") != wrong
        return EndToEndVerdict(accepted=fine, worst_error=1e-7, eager_error=1e-7, reason="far off")

    patch.setattr(end_to_end, "interpreted_outputs", outputs)
    kernels = {"norm": NORM.evolve(time_us=norm_us), "": WHOLE.evolve(time_us=whole_us)}
    return estimated_row(job(kernels))


def test_without_a_gpu_the_better_estimate_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_estimated(monkeypatch, norm_us=10.0, whole_us=40.0)
    assert (row.basis, row.form, row.estimated_us, row.swapped) == (
        "estimated",
        "one-region",
        40.0,
        1,
    )
    assert row.estimated_forms_us == {"regions": 70.0, "one-region": 40.0}
    assert row.why == "estimated to be faster as one region than in regions"
    assert row.dropped == ("a" * 16,)
    other = row_estimated(monkeypatch, norm_us=10.0, whole_us=75.0)
    assert (other.form, other.estimated_us, other.dropped) == ("regions", 70.0, ("d" * 16,))
    assert other.why == "estimated to be no faster as one region than in regions"


def test_without_a_gpu_wrong_outputs_leave_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_estimated(monkeypatch, norm_us=10.0, whole_us=40.0, wrong="whole")
    assert (row.form, row.verified, row.estimated_us) == ("regions", True, 70.0)
    assert row.left_out == {"d" * 16: "far off"}
    assert row.failed == {"one-region": "the outputs are not right: far off"}
