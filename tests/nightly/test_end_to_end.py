from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from agentkernel.domain.nightly import Form, Zoo, ZooModel
from agentkernel.domain.region import Kernel, ModelCut
from agentkernel.nightly.end_to_end import checked_row
from agentkernel.nightly.scheduler.jobs import EndToEndJob, ZooPart
from agentkernel.swap.end_to_end import Oracle
from agentkernel.swap.selection import FormTimes, times_of
from agentkernel.tools.speedup import summarise
from tests.swap.applied_kernels import WRONG, block, example, mlp_kernel, norm_kernel

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
    """Each kernel that is in takes a tenth off eager's time."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def __call__(self, kernels: Mapping[str, Kernel]) -> FormTimes:
        self.asked.append(set(kernels))
        us: dict[Form, float] = {"eager": 100.0, "torch.compile": 99.0}
        if kernels:
            us["regions"] = 95.0 - 10.0 * len(kernels)
        medians = {form: [value * noise for noise in STEADY] for form, value in us.items()}
        return FormTimes(
            timings={form: summarise(values) for form, values in medians.items()},
            failed={},
            ratios=times_of(medians),
            rounds=len(STEADY),
        )


def job(kernels: dict[str, Kernel]) -> EndToEndJob:
    return EndToEndJob(
        night="night",
        part=ZooPart(zoo=Zoo(name="zoo", models=(MODEL,)), sha256="0" * 64),
        target=None,
        cut=ModelCut(model="block", basis="measured", time_us=100.0, regions=()),
        kernels=kernels,
        parameters={path: kernel.parameters for path, kernel in kernels.items()},
    )


def signed(kernel: Kernel, signature: str) -> Kernel:
    key = kernel.key.evolve(signature=signature)
    return kernel.evolve(key=key)


NORM = signed(norm_kernel(), "a" * 16)
MLP = signed(mlp_kernel(), "b" * 16)
BAD = signed(norm_kernel(WRONG), "c" * 16)


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
