"""Operators without a lowering of their own are computed as PyTorch decomposes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from torch import fx, nn

from agentkernel.compiler.fusion import Region
from agentkernel.compiler.lowering import LOWERINGS
from agentkernel.compiler.lowering.decompositions import decomposition
from agentkernel.compiler.lowering.grid_sample import (
    BICUBIC,
    BILINEAR,
    NEAREST,
    grid_sampler_2d,
)
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import OfOne, functional
from tests.compiler.forms import compiled_graph, written
from tests.compiler.lowering.cases import (
    FLOATS,
    FORMS,
    SIZES,
    Call,
    check_case,
    no_library_call,
    operands,
)
from tests.compiler.sandboxed_drop_in import Sandboxed

F = nn.functional

# Name -> the call, and the shapes of its operands over the sizes a, b and c.
CALLS: dict[str, tuple[Call, str]] = {
    "linear": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), "2 a b"),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "1 2 a b"),
    "aligned": (
        lambda x: F.interpolate(x, (5, 11), mode="bilinear", align_corners=True), "1 2 a b",
    ),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), "1 1 a b"),
    "trilinear": (lambda x: F.interpolate(x, (3, 5, 4), mode="trilinear"), "1 2 a b 3"),
    "sampled": (lambda x, grid: F.grid_sample(x, grid, align_corners=False), "1 2 a b,1 3 c 2"),
    "nearest": (
        lambda x, grid: F.grid_sample(x, grid, "nearest", "border", False), "1 2 a b,1 3 c 2",
    ),
    "sampled nearest": (
        lambda x, grid: F.grid_sample(x, grid, "nearest", align_corners=True), "2 2 a b,2 3 c 2",
    ),
    "sampled bicubic": (
        lambda x, grid: F.grid_sample(x, 2 * grid, "bicubic", align_corners=False),
        "1 1 a b,1 2 c 2",
    ),
    "channels": (lambda x: F.channel_shuffle(x, 2) * 2.0, "2 2*a b 3"),
    "glu": (lambda x: F.glu(x, 1), "a 2*b 3"),
    "poisson": (lambda x, y: F.poisson_nll_loss(x, y.abs()), "a b,a b"),
    "counted": (lambda x: x.relu().count_nonzero(1), "a b c"),
    "logit": (lambda x: torch.logit(x.sigmoid(), 1e-3), "a b"),
    "margins": (
        lambda x, y: F.multilabel_soft_margin_loss(x, (y > 0).to(x.dtype)), "a b,a b",
    ),
    "distances": (lambda x, y: F.pairwise_distance(x, y), "a b,a b"),
    "renormed": (lambda x: x.renorm(2, 0, 1.0), "a b"),
    "patches": (lambda x: F.unfold(x, 3, padding=1), "1 2 a b"),
    "three operands": (lambda x, y, z: torch.einsum("bn,anm,bm->ba", x, y, z), "2 a,3 a b,2 b"),
    "of a diagonal": (lambda x: torch.diag_embed(x), "2 a"),
    "shrunk": (lambda x: F.hardshrink(x) + F.softshrink(x), "a b"),
    "without NaN": (lambda x: x.log().nan_to_num(), "a b"),
    "kron": (lambda x, y: torch.kron(x, y), "a 3,2 b"),
}  # fmt: skip


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CALLS)
def test_no_part_of_it_is_left_to_the_library(name: str) -> None:
    assert no_library_call(*CALLS[name])


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@example(name="renormed", sizes=(17, 3, 17), dtype=torch.float16, form="looped")
@given(
    name=st.sampled_from(sorted(CALLS)),
    sizes=SIZES,
    dtype=FLOATS,
    form=FORMS,
)
def test_it_computes_what_eager_does(
    box: Sandboxed, name: str, sizes: tuple[int, int, int], dtype: torch.dtype, form: str
) -> None:
    check_case(box, CALLS[name], sizes, dtype, form)


def test_one_drop_in_interpolates_free_sizes(box: Sandboxed) -> None:
    """The ratio of two sizes is worked out in the kernel."""
    module = OfOne(lambda x: F.interpolate(x, (7, 6), mode="bilinear")).eval()
    text = written(module, (torch.randn(2, 3, 4, 5),), "looped")
    for shape in ((2, 3, 4, 5), (1, 2, 9, 3)):
        box.check(text, module, [torch.randn(shape)])


def test_infinities_are_weighted_as_eager_weighs_them(box: Sandboxed) -> None:
    """Of differences `inf - inf` would be NaN, and next to an infinity of weight 0 too much is."""
    module = OfOne(lambda x: F.interpolate(x, (8, 10), mode="bilinear")).eval()
    text = written(module, (torch.randn(1, 2, 4, 5),), "looped")
    x = torch.randn(1, 2, 4, 5)
    x[0, 0, 1, 1:3] = math.inf
    x[0, 1, 3] = -math.inf
    box.check(text, module, [x])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_a_place_outside_of_an_image_is_zero_whatever_its_corner_is(
    box: Sandboxed, mode: str
) -> None:
    module = functional(lambda x, grid: F.grid_sample(x, grid, mode, align_corners=False)).eval()
    image, grid = torch.ones(1, 2, 9, 8), torch.rand(1, 6, 5, 2) * 0.5 + 1.5
    text = written(module, (image, grid), "looped")
    image[0, :, 0, 0] = torch.tensor([math.inf, math.nan])
    box.check(text, module, [image, grid])


@pytest.mark.parametrize("place", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode", [BILINEAR, NEAREST, BICUBIC])
def test_a_place_that_is_no_number_is_as_on_a_gpu(mode: int, align: bool, place: float) -> None:
    """There it is outside of the image (a CPU gives NaN, or any pixel), or clipped."""
    image, grid = torch.rand(2, 3, 4, 5) + 1, torch.zeros(2, 6, 7, 2)
    grid[1, 2, 3, 0] = place
    for padding in (0, 1, 2):
        found = grid_sampler_2d(image, grid, mode, padding, align)[1, :, 2, 3]
        if mode == BICUBIC and (not math.isfinite(place) or padding == 0):
            assert bool((found.isnan() | (found == 0)).all())
        elif padding == 0:
            assert bool((found == 0).all())
        elif mode == BICUBIC:
            assert bool(found.isfinite().all())
        elif not math.isfinite(place) or padding == 1:
            # NaN and what has no remainder end at the first pixel, a border's infinity at an edge.
            last = padding == 1 and place > 0
            column = image[1, :, :, 4 if last else 0]
            assert bool((found >= column.amin(1)).all())
            assert bool((found <= column.amax(1)).all())


def test_an_infinity_times_nothing_ends_at_the_first_pixel() -> None:
    image = torch.tensor([[[[1.0, 2.0, 3.0]]]])
    grid = torch.tensor([[[[0.0, math.inf]], [[0.0, math.nan]]]])
    found = grid_sampler_2d(image, grid, BILINEAR, 1, True)
    assert found.flatten().tolist() == [2.0, 2.0]


def call_of(function: Call, inputs: Sequence[torch.Tensor]) -> tuple[fx.Node, dict[str, int]]:
    """The last call of ATen in `function`, and the sizes that are free."""
    captured = capture(problem_from_module(functional(function), tuple(inputs)))
    calls = [node for node in captured.graph.graph.nodes if "aten." in str(node.target)]
    return calls[-1], {item.symbol: item.size for item in captured.free_dims}


REFUSED: dict[str, tuple[Call, list[torch.Tensor]]] = {
    "a mask of all pairs": (lambda x: x.cumsum(0), [torch.randn(40)]),
    "random": (lambda x: F.dropout(x, 0.5, True), [torch.randn(40)]),
    "unrolled": (
        lambda x, h, *weights: torch.gru(x, h, weights, True, 1, 0.0, False, False, False),
        [torch.randn(4, 2, 3), torch.randn(1, 2, 5), torch.randn(15, 3), torch.randn(15, 5),
         torch.randn(15), torch.randn(15)],
    ),
}  # fmt: skip


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", REFUSED)
def test_what_costs_more_than_the_call_is_left_to_it(name: str) -> None:
    call, sizes = call_of(*REFUSED[name])
    assert decomposition(call, LOWERINGS.keys(), sizes) is None


@pytest.mark.quick(1)
def test_a_choice_by_a_free_size_is_no_decomposition() -> None:
    """Of the quotient and the rest of its channels; asked twice, since an answer is remembered."""
    captured = capture(
        problem_from_module(OfOne(lambda x: F.pixel_shuffle(x, 2)), (torch.randn(2, 8, 3, 5),))
    )
    assert captured.free_dims
    (call,) = (n for n in captured.graph.graph.nodes if "pixel_shuffle" in str(n.target))
    sizes = {item.symbol: item.size for item in captured.free_dims}
    assert decomposition(call, (), sizes) is None
    assert decomposition(call, (), sizes) is None


class Folded(nn.Module):
    """Columns of windows added up where they overlap."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.fold(x, (6, 7), 3, padding=1)


def test_known_sizes_stay_known_in_a_decomposition(box: Sandboxed) -> None:
    """Of free sizes the call is the library's, and so it is written for those that are given."""
    x = torch.randn(2, 27, 42)
    found = compiled_graph(Folded(), [x])
    assert not found.captured.free_dims
    assert all(isinstance(step, Region) for step in found.partition.steps)
    box.check(written(Folded(), [x], "single"), Folded(), (x,))


SCALED: dict[str, tuple[Call, str, bool]] = {
    "by a whole number": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), "1 2 a b",
                          True),
    "by a half": (lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), "1 2 a b", True),
    "by a quarter": (lambda x: F.interpolate(x, scale_factor=0.25, mode="nearest") * 2.0,
                     "1 2 4*a 5*b", True),
    "by what rounds": (lambda x: F.interpolate(x, scale_factor=1.3, mode="linear"), "2 a b", False),
}  # fmt: skip


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", SCALED)
def test_sizes_that_a_float_scales_are_whole_in_kernels(box: Sandboxed, name: str) -> None:
    """Kernels have no `math` to round them with."""
    call, shapes, free = SCALED[name]
    x, other = operands(shapes, (5, 7, 3)) + operands(shapes, (7, 9, 3))
    found = compiled_graph(OfOne(call), [x])
    text = written(OfOne(call), [x], "single")
    assert bool(found.captured.free_dims) == free
    assert "sym_float" not in text
    for each in (x, other) if free else (x,):
        box.check(text, OfOne(call), (each,))
