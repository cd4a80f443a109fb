"""The plan knows what a call holds, and takes the first route that fits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.tools.judge.memory import (
    RESERVE_BYTES,
    Footprint,
    FreeMemory,
    measure,
    plan_memory,
)
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.tools.judge.sliced_modules import Call

KB = 1024
ROW = (64, 64)
"""16 KB in fp32."""
BIG = (1 << 15, 1 << 15)
"""4 GB in fp32: never allocated here."""
COUNTED: dict[str, tuple[nn.Module, list[tuple[int, ...]], tuple[int, int, int, int]]] = {
    "one pointwise": (Call(torch.relu), [ROW], (16 * KB, 0, 16 * KB, 16 * KB)),
    "a chain": (Call(lambda x: torch.relu(x + 1) * 2), [ROW], (16 * KB, 0, 16 * KB, 32 * KB)),
    "in place": (Call(lambda x: torch.relu_((x + 1).mul_(2))), [ROW],
        (16 * KB, 0, 16 * KB, 16 * KB)),
    "a view": (Call(lambda x: x.t()[:8]), [ROW], (16 * KB, 0, 0, 0)),
    "a row's sum": (Call(lambda x: x.sum(1)), [ROW], (16 * KB, 0, 256, 256)),
    "softmax": (Call(lambda x: F.softmax(x, 1)), [ROW], (16 * KB, 0, 16 * KB, 16 * KB)),
    "a product": (Call(torch.mm), [ROW, ROW], (32 * KB, 0, 16 * KB, 16 * KB)),
    "a layer": (Call(lambda m, x: m(x), nn.Linear(64, 16)), [ROW],
        (16 * KB, 4 * KB + 64, 4 * KB, 4 * KB)),
    "pooling with its indices": (Call(lambda x: F.max_pool2d(x, 2)), [(1, 1, 64, 64)],
        (16 * KB, 0, 4 * KB, 12 * KB)),
    "a loss with its elements": (Call(F.mse_loss), [ROW, ROW], (32 * KB, 0, 4, 16 * KB + 4)),
    "attention without scores": (Call(F.scaled_dot_product_attention), [(1, 1, 64, 64)] * 3,
        (48 * KB, 0, 16 * KB, 16 * KB)),
    "a scan": (Call(lambda x: x.cumsum(0)), [ROW], (16 * KB, 0, 16 * KB, 16 * KB)),
}  # fmt: skip
"""Module, shapes, and bytes of inputs, weights, outputs and work."""


def footprint(module: nn.Module, shapes: list[tuple[int, ...]]) -> Footprint:
    loaded = problem_from_module(module.eval(), [torch.empty(shape) for shape in shapes])
    meta = loaded.build(seed=0, device="meta")
    return measure(capture(loaded), loaded.problem.shape_sets[0], meta)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", COUNTED)
def test_bytes_are_what_the_call_holds(name: str) -> None:
    module, shapes, expected = COUNTED[name]
    held = footprint(module, shapes)
    assert (held.inputs, held.weights, held.outputs, held.work) == expected
    assert held.double_inputs == 2 * held.inputs
    assert held.eager == sum((held.inputs, held.weights, held.work))


def test_attention_in_fp64_holds_its_scores() -> None:
    held = footprint(Call(F.scaled_dot_product_attention), [(1, 1, 256, 8)] * 3)
    assert held.work == 256 * 8 * 4
    assert held.double_work > 256 * 256 * 8


def routes(module: nn.Module, frees: list[float], shape: tuple[int, ...] = BIG) -> list[str]:
    """The route with so many GB free, nothing of which is allocated."""
    with torch.device("meta"):
        loaded = problem_from_module(module.eval(), [torch.empty(shape)])
    captured, inputs = capture(loaded), loaded.problem.shape_sets[0]
    return [
        plan_memory(captured, inputs, FreeMemory(int(free * 1e9), 1 << 40)).route for free in frees
    ]


def test_the_first_route_that_fits_is_taken() -> None:
    quarter = (1 << 14, 1 << 13)
    assert routes(Call(torch.relu), [300, 80, 18], quarter) == ["whole", "whole", "slices"]
    assert routes(Call(torch.relu), [300, 80, 24, 13, 9]) == [
        "slices",
        "slices",
        "slices",
        "slices",
        "none",
    ]


def test_gradients_are_asked_where_those_of_all_sides_have_room() -> None:
    """Of a pooling the outputs are small, and the gradients of its inputs are not."""
    with torch.device("meta"):
        pool = Call(lambda x: F.avg_pool2d(x[None], 4)).eval()
        loaded = problem_from_module(pool, [torch.empty((1 << 14, 1 << 14))])
    captured, inputs = capture(loaded), loaded.problem.shape_sets[0]
    asked = [plan_memory(captured, inputs, FreeMemory(free << 30)) for free in (16, 7)]
    assert [plan.route for plan in asked] == ["whole", "whole"]
    assert [plan.differentiates for plan in asked] == [True, False]


def test_without_slices_fp64_is_kept_on_the_host_or_left_out() -> None:
    scan = Call(lambda x: x.flatten().cumsum(0))
    assert routes(scan, [300, 80, 20]) == ["whole", "offload", "eager"]


def test_outputs_wait_on_the_host_where_the_device_is_short() -> None:
    with torch.device("meta"):
        loaded = problem_from_module(Call(torch.relu).eval(), [torch.empty(BIG)])
    captured, inputs = capture(loaded), loaded.problem.shape_sets[0]
    placed = []
    for free in (22e9, 17e9, 10.5e9):
        plan = plan_memory(captured, inputs, FreeMemory(int(free), 1 << 40))
        assert plan.route == "slices"
        assert plan.peak.device <= free
        placed.append((plan.eager_on_host, plan.found_on_host))
    assert placed == [(False, False), (True, False), (True, True)]


def test_what_does_not_fit_says_what_is_missing() -> None:
    with torch.device("meta"):
        loaded = problem_from_module(Call(torch.relu).eval(), [torch.empty(BIG)])
    plan = plan_memory(capture(loaded), loaded.problem.shape_sets[0], FreeMemory(8 << 30))
    assert plan.route == "none"
    assert plan.peak.device > plan.room.free
    assert plan.footprint.eager + RESERVE_BYTES > plan.room.free
    assert "8.59 GB free" in plan.label


def test_a_second_call_needs_room_for_what_the_first_left() -> None:
    with torch.device("meta"):
        loaded = problem_from_module(Call(lambda x: x.sum(1)).eval(), [torch.empty(BIG)])
    captured, inputs = capture(loaded), loaded.problem.shape_sets[0]
    ample = plan_memory(captured, inputs, FreeMemory(1 << 40))
    tight = plan_memory(captured, inputs, FreeMemory(int(ample.peak.device / 0.89)))
    assert (ample.route, ample.again) == ("whole", True)
    assert (tight.route, tight.again) == ("whole", False)
