"""Emitted convolutions against torch in Triton's interpreter; run as a script."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from agentkernel.compiler.convolutions.schedules import by_sums
from agentkernel.compiler.convolutions.spec import ConvolutionSpec, Geometry
from agentkernel.compiler.convolutions.step import emit_convolution
from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.tools.judge.interpreter.hooks import install_hooks
from tests.compiler.cross_compile import imported

EPILOGUE = (
    "residual = tl.load(residual_ptr + tile, mask=tile_mask, other=0.0)",
    "scale = tl.load(scale_ptr + rows, mask=row_mask, other=0.0)",
    "acc = tl.maximum(acc * scale[:, None], 0.0) + residual",
)
EXTRAS = (("residual_ptr", "residual"), ("scale_ptr", "scale"))


def run(shape: Geometry, schedule: dict[str, int], x: torch.Tensor, *rest: torch.Tensor) -> None:
    """Launch what the emitter says: `rest` are weight, bias, residual, scale and out."""
    dims = range(shape.rank)
    spec = ConvolutionSpec(
        "convolution", shape, "float32", "x", "weight", "bias", "out", "x.shape[0] + 0",
        tuple(f"x.shape[{2 + dim}] - 0" for dim in dims),
        tuple(f"out.shape[{2 + dim}] - 0" for dim in dims), EPILOGUE, EXTRAS,
    )  # fmt: skip
    text = emit_convolution(spec, schedule)
    body = "\n".join(f"    {line}" for line in text.launch)
    sources = "\n\n\n".join([*helper_sources(text.helpers), text.source])
    names = "x, weight, bias, residual, scale, out"
    imported(f"{sources}\n\n\ndef run({names}):\n{body}\n").run(x, *rest)


@st.composite
def geometries(draw: st.DrawFn) -> tuple[Geometry, tuple[int, ...], tuple[int, ...]]:
    """A geometry, the sizes of its picture, and the output padding of a transposed one."""
    rank, transposed = draw(st.integers(1, 3)), draw(st.booleans())
    every = lambda items: tuple(draw(st.sampled_from(items)) for _ in range(rank))  # noqa: E731
    kernel = every([1, 2, 3, 5] if rank < 3 else [1, 2, 3])
    stride = every([1, 2, 3, 4] if transposed else [1, 1, 2, 3])
    plain = transposed and all(step == 1 for step in stride)
    dilation = every([1, 2] if not transposed or plain else [1, 1, 2, 3, 4])
    reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    padding = tuple(draw(st.integers(0, min(most, 3))) for most in reach)
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inside, outside = draw(st.sampled_from([1, 3, 8, 20])), draw(st.sampled_from([1, 5, 16, 18]))
    sizes = every([4, 7, 12] if rank < 3 else [3, 5])
    assume(all(n + 2 * p > r for n, p, r in zip(sizes, padding, reach, strict=True)))
    most = [max(pair) for pair in zip(stride, dilation, strict=True)]
    extra = tuple(draw(st.integers(0, size - 1)) for size in most) if transposed else ()
    zeros = tuple(r - p for r, p in zip(reach, padding, strict=True)) if plain else padding
    after = tuple(z + e for z, e in zip(zeros, extra, strict=True)) if plain else zeros
    shape = Geometry(
        kernel, stride, zeros, after, dilation, groups, inside, outside,
        transposed and not plain, plain,
    )  # fmt: skip
    return shape, sizes, extra


@settings(max_examples=int(os.environ.get("EXAMPLES", "30")), deadline=None, database=None,
          phases=[Phase.generate])  # fmt: skip
@given(
    drawn=geometries(), batch=st.integers(1, 3), seed=st.integers(0, 99),
    read=st.integers(0, 2), places=st.sampled_from([32, 64, 128]),
    rows=st.sampled_from([1, 2, 4]),
)  # fmt: skip
def check_convolutions(
    drawn: tuple[Geometry, tuple[int, ...], tuple[int, ...]],
    batch: int, seed: int, read: int, places: int, rows: int,
) -> None:  # fmt: skip
    """Any geometry, read in any way, with a bias and an epilogue, is fp64's within rounding."""
    shape, sizes, extra = drawn
    turned = shape.transposed or shape.turned
    torch.manual_seed(seed)
    channels = (shape.inside * shape.groups, shape.outside * shape.groups)
    x = torch.randn(batch, channels[0], *sizes)
    first = (channels[0], shape.outside) if turned else (channels[1], shape.inside)
    weight = torch.randn(*first, *shape.kernel)
    bias, scale = torch.randn(channels[1]), torch.randn(channels[1])
    name = f"conv{'_transpose' if turned else ''}{shape.rank}d"
    padding = shape.padding
    if shape.turned:
        reach = zip(shape.dilation, shape.kernel, shape.padding, strict=True)
        padding = tuple(d * (k - 1) - p for d, k, p in reach)
    options = {"stride": shape.stride, "padding": padding, "dilation": shape.dilation,
               "groups": shape.groups}  # fmt: skip
    if turned:
        options["output_padding"] = extra
    call = getattr(torch.nn.functional, name)
    wanted = call(x.double(), weight.double(), bias.double(), **options)
    assume(0 not in wanted.shape)
    residual = torch.randn(wanted.shape)
    line = (-1, *(1,) * shape.rank)
    wanted = torch.relu(wanted * scale.double().view(line)) + residual
    schedule = {"READ": read, "BLOCK_M": 16, "BLOCK_N": places, "BLOCK_K": 16, "num_warps": 4,
                "num_stages": 2}  # fmt: skip
    if rows == 1 and not shape.transposed:
        schedule["APART"] = 1
    if by_sums(shape):
        schedule = {"ROWS": rows, "BLOCK_C": 2, "BLOCK_X": places, "num_warps": 4}
    elif shape.transposed and read == 1:
        schedule["READ"] = 2
    found = torch.full(wanted.shape, float("nan"))
    run(shape, schedule, x, weight, bias, residual, scale, found)
    error = (found - wanted).norm() / wanted.norm().clamp_min(1e-30)
    assert error <= 1e-6, (shape, sizes, schedule, float(error))


def check_a_nan_stays_where_it_is_read() -> None:
    """What no window reads does not turn a result into NaN, padded channels and runs included."""
    shape = Geometry((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, 3, 4)
    x, weight = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3)
    x[0, 1, 4, 4] = float("nan")
    bias, residual, scale = torch.zeros(4), torch.zeros(2, 4, 9, 9), torch.ones(4)
    wanted = torch.relu(torch.nn.functional.conv2d(x, weight, bias, padding=1))
    for read in range(3):
        schedule = {"READ": read, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 4,
                    "num_stages": 2}  # fmt: skip
        found = torch.full(wanted.shape, 7.0)
        run(shape, schedule, x, weight, bias, residual, scale, found)
        # max(NaN, 0) is the number here, as tl.maximum has it.
        rest = ~torch.isnan(wanted)
        assert torch.allclose(found[rest], wanted[rest], atol=1e-5), read


if __name__ == "__main__":
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    install_hooks()
    check_convolutions()
    check_a_nan_stays_where_it_is_read()
