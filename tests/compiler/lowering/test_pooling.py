"""Windows that overlap, are padded or have gaps are folded as in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import sympy
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.lowering.adaptive_pooling import equal_part_size
from tests.compiler.families import OfOne
from tests.compiler.forms import written
from tests.compiler.sandboxed_drop_in import Sandboxed

FORMS = ("looped", "single", "persistent")
MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
LARGEST = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
Call = Callable[[torch.Tensor], torch.Tensor]


def check(box: Sandboxed, call: Call, inputs: Sequence[torch.Tensor], form: str) -> str:
    """The drop-in of `call`, which answers as eager does and leaves no pooling to the library."""
    module = OfOne(call)
    text = written(module, (inputs[0],), form)
    drop_in = text[text.index("class ModelNew") :]
    assert "functional" not in drop_in, drop_in
    for x in inputs:
        box.check(text, module, (x,))
    return text


USES: dict[str, Callable[[Call, torch.Tensor], torch.Tensor]] = {
    "alone": lambda call, x: call(x),
    "before": lambda call, x: call(x.relu() * 2.0),
    "long": lambda call, x: call(x.exp().sigmoid().sin().tanh().cos()),
    "after": lambda call, x: call(x).exp() + 1.0,
    "normed": lambda call, x: call(x).softmax(-1),
    "summed": lambda call, x: call(x).sum(0),
}


@st.composite
def pools(draw: st.DrawFn) -> tuple[str, Call, torch.Tensor]:
    """A pooling of any options that eager allows, and an input for it."""
    spatial = draw(st.integers(1, 3))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(spatial)]  # noqa: E731
    kernel, largest = each(1, 4), draw(st.booleans())
    stride = each(1, 4) if draw(st.booleans()) else None
    padding = [draw(st.integers(0, size // 2)) for size in kernel]
    dilation = each(1, 2) if largest else [1] * spatial
    least = [d * (k - 1) + 1 - 2 * p for k, p, d in zip(kernel, padding, dilation, strict=True)]
    if spatial == 3:  # eager wants the window to fit into the input without its padding
        least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [max(1, low) + draw(st.integers(0, 5)) for low in least]
    lead = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    torch.manual_seed(draw(st.integers(0, 1 << 20)))
    x = torch.randn(*lead, *size)
    options: dict[str, object] = {
        "kernel_size": kernel, "stride": stride, "padding": padding,
        "ceil_mode": draw(st.booleans()),
    }  # fmt: skip
    if largest:
        options["dilation"] = dilation
        x[torch.rand(x.shape) < draw(st.sampled_from((0.0, 0.1)))] = -torch.inf
    else:
        options["count_include_pad"] = draw(st.booleans())
        if spatial > 1 and draw(st.booleans()):
            options["divisor_override"] = draw(st.integers(1, 5))
    pool = (LARGEST if largest else MEANS)[spatial]
    return str((pool.__name__, options, x.shape)), lambda given: pool(given, **options), x


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@example(
    pool=(
        "zeros beside a window, loaded one by one",
        lambda x: F.avg_pool2d(x, (3, 4), None, (0, 2), True, False, 4),
        torch.arange(12.0).reshape(1, 4, 3),
    ),
    use="summed",
    form="single",
)
@given(pool=pools(), use=st.sampled_from(sorted(USES)), form=st.sampled_from(FORMS))
@pytest.mark.slow
def test_windows_are_folded_as_eager_folds_them(
    box: Sandboxed, pool: tuple[str, Call, torch.Tensor], use: str, form: str
) -> None:
    _, call, x = pool
    if use == "long" or (use == "before" and torch.isinf(x).any()):
        x = x.nan_to_num(neginf=-3.0)
    check(box, lambda given: USES[use](call, given), [x], form)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("pool", "options", "shapes"),
    [
        (F.avg_pool2d, (3, 2, 1, True, False), [(2, 3, 9, 8), (3, 2, 6, 11)]),
        (F.avg_pool2d, (3, 2, 1, True), [(2, 3, 9, 8), (3, 2, 6, 11)]),
        (F.max_pool2d, (3, 2, 1), [(2, 3, 9, 8), (1, 5, 10, 11)]),
        (F.max_pool2d, (2, 3, 1, 2, True), [(2, 3, 9, 8), (1, 5, 10, 11)]),
        (F.max_pool1d, (4, 1, 2, 3), [(2, 3, 19), (4, 5, 19), (5, 1, 19)]),
        (F.avg_pool3d, (3, 2, 1), [(2, 3, 5, 6, 7), (1, 2, 6, 5, 8)]),
    ],
    ids=lambda item: getattr(item, "__name__", None) or str(item),
)
def test_sizes_may_change_from_call_to_call(
    box: Sandboxed,
    pool: Callable[..., torch.Tensor],
    options: tuple[object, ...],
    shapes: list[tuple[int, ...]],
) -> None:
    check(box, lambda x: pool(x, *options), [torch.randn(shape) for shape in shapes], "single")


@pytest.mark.quick(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.avg_pool2d(x, 9, 1, 4),
        lambda x: F.avg_pool2d(x, 9, 2, 4, True, False),
        lambda x: F.max_pool2d(x.exp(), 9, 2, 4, 1, True) + 1.0,
        lambda x: F.max_pool2d(x, (9, 8), 3, 2, 2),
    ],
)
def test_large_windows_are_reduced(box: Sandboxed, call: Call, form: str) -> None:
    inputs = [torch.randn(1, 2, 17, 15)]
    text = check(box, call, inputs, form)
    assert "col_1" in text
    assert text.count("tl.load(") <= 2


@pytest.mark.quick(4)
@pytest.mark.parametrize("form", ["looped", "persistent"])
@pytest.mark.parametrize(
    ("shape", "output"),
    [((2, 6), 3), ((2, 3, 8), 5), ((3, 6, 8), (2, 4)), ((2, 3, 6, 8), (6, 1)),
     ((2, 3, 7, 7), (3, 5)), ((2, 3, 3, 5), (4, 7)), ((2, 3, 4, 6, 8), (2, 3, 1))],
)  # fmt: skip
def test_adaptive_windows_are_averaged(
    box: Sandboxed, shape: tuple[int, ...], output: int | tuple[int, ...], form: str
) -> None:
    spatial = 1 if isinstance(output, int) else len(output)
    call = lambda x: ADAPTIVE[spatial](x.relu(), output) * 2.0  # noqa: E731
    check(box, call, [torch.randn(shape)], form)


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("call", [lambda x: F.avg_pool2d(x, 3, 2, 1),
                                  lambda x: F.max_pool2d(x, 3, 2, 1)])  # fmt: skip
def test_other_floats_are_folded(box: Sandboxed, call: Call, dtype: torch.dtype) -> None:
    check(box, call, [torch.randn(2, 3, 9, 8).to(dtype)], "single")


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
def test_the_largest_of_whole_numbers_is_eagers(box: Sandboxed, dtype: torch.dtype) -> None:
    x = torch.randint(0, 200, (2, 3, 9, 8)).to(dtype)
    x = x if dtype == torch.uint8 else -x.abs()
    check(box, lambda x: F.max_pool2d(x, 3, 2, 1), [x], "single")


def test_windows_that_lie_in_padding_alone(box: Sandboxed) -> None:
    check(box, lambda x: F.max_pool2d(x, (2, 1), 2, (1, 0), 2), [torch.randn(3, 1, 3)], "single")


def test_nan_is_the_largest_of_its_windows(box: Sandboxed) -> None:
    x = torch.randn(2, 3, 9, 8)
    x[0, 1, 5, 5] = x[1, 0, 0, 0] = torch.nan
    module = OfOne(lambda x: F.max_pool2d(x, 3, 2, 1)).eval()
    (ours,) = box.call(written(module, (x,), "single"), module, (x,))
    assert torch.equal(ours.isnan(), module(x).isnan())
    assert ours.isnan().sum() == 5


PLACED: dict[str, tuple[Call, tuple[int, ...]]] = {
    "overlapping": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (2, 3, 9, 8)),
    "with gaps": (lambda x: F.max_pool2d(x, 2, 3, 1, 2, True, True), (2, 3, 11, 7)),
    "side by side": (lambda x: F.max_pool1d(x, 4, return_indices=True), (2, 3, 17)),
    "of a volume": (lambda x: F.max_pool3d(x, 2, 1, return_indices=True), (1, 2, 3, 5, 4)),
    "shared out": (lambda x: F.adaptive_max_pool2d(x, (3, 5), True), (2, 3, 7, 9)),
    "in equal parts": (lambda x: F.adaptive_max_pool2d(x, (2, 3), True), (2, 3, 8, 9)),
    "along a line": (lambda x: F.adaptive_max_pool1d(x, 5, True), (2, 3, 17)),
    "in a volume": (lambda x: F.adaptive_max_pool3d(x, (2, 1, 3), True), (1, 2, 3, 5, 7)),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", ["normal", "few values", "all below"])
@pytest.mark.parametrize("name", PLACED)
def test_places_of_the_largest_are_eagers(box: Sandboxed, name: str, kind: str) -> None:
    """The first of equal ones, and of a window that is -inf everywhere one of the input."""
    call, shape = PLACED[name]
    x = torch.randn(shape)
    x = x.round() if kind == "few values" else x
    x = torch.full(shape, -torch.inf) if kind == "all below" else x
    module = OfOne(call).eval()
    text = written(module, (x,), "single")
    assert "functional" not in text[text.index("class ModelNew") :]
    box.check(text, module, (x,))


@pytest.mark.quick(4)
@pytest.mark.parametrize("form", ["looped", "persistent"])
@pytest.mark.parametrize(
    ("shape", "output"),
    [((2, 3, 8), 5), ((2, 6), 3), ((2, 3, 7, 7), (3, 5)), ((2, 3, 33, 17), 1),
     ((2, 3, 4, 6, 9), (2, 3, 2))],
)  # fmt: skip
def test_adaptive_windows_give_their_largest(
    box: Sandboxed, shape: tuple[int, ...], output: int | tuple[int, ...], form: str
) -> None:
    spatial = len(shape) - 2 if len(shape) > 2 else 1
    pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}[spatial]
    check(box, lambda x: pool(x.relu(), output) * 2.0, [torch.randn(shape)], form)


@pytest.mark.parametrize(("size", "count", "each"), [(8, 4, 2), (8, 1, 8), (8, 8, 1), (8, 3, None)])
def test_equal_parts_are_known(size: int, count: int, each: int | None) -> None:
    assert equal_part_size(sympy.Integer(size), sympy.Integer(count)) == each


def kernels(module: nn.Module, x: torch.Tensor) -> str:
    return written(module.eval(), (x,), "single")


def test_a_stem_pools_in_the_kernel_of_its_norm(box: Sandboxed) -> None:
    """Behind the convolution's kernel; each parameter of the norm is read once for all nine
    elements of a window."""
    stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    x = torch.randn(2, 3, 13, 14)
    text = kernels(stem, x)
    assert (text.count("_kernel["), text.count("tl.load(running_mean_ptr")) == (2, 1)
    box.check(text, stem, (x,))


def test_what_is_long_is_stored_once_before_windows_overlap() -> None:
    module = OfOne(
        lambda x: F.avg_pool2d(
            F.gelu(x).sin().exp() + x.cos() * F.hardswish(x.tan().abs() + x.square()), 3, 1, 1
        )
    )
    assert kernels(module, torch.randn(2, 3, 13, 14)).count("_kernel[") == 2


@pytest.mark.quick(1)
@pytest.mark.parametrize("options", [(2,), (3, 2, 1), (3, 2, 1, True, False)], ids=str)
def test_means_of_whole_numbers_are_rounded_towards_zero(
    box: Sandboxed, options: tuple[object, ...]
) -> None:
    x = torch.randint(-90, 90, (2, 3, 6, 8))
    check(box, lambda x: F.avg_pool2d(x, *options) * 2, [x], "single")
