"""Wrappers that were written by hand, and things that no file can hold."""

import functools

import pytest
import torch

from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.lift.drop_in import lift
from agentkernel.compiler.lift.inductor_code import (
    InductorCode,
    InductorKernel,
    LaunchConfig,
    NotLifted,
)
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, problem_from_module
from tests.compiler.lift.cases import Wrapped

KERNEL = """
import triton
import triton.language as tl

@triton_heuristics.pointwise()
@triton.jit
def triton_poi_fused_relu_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 24
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.full([1], 0, tl.int32)
    tmp2 = triton_helpers.maximum(tmp1, tmp0)
    tl.store(out_ptr0 + (x0), tmp2, xmask)
"""
WRAPPER = """
def call(args):
    arg0_1, = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((4, 6), (6, 1), torch.float32)
        raw_stream0 = get_raw_stream(0)
        triton_poi_fused_relu_0.run(arg0_1, buf0, 24, stream=raw_stream0)
        buf1 = reinterpret_tensor(buf0, (24, ), (1, ), 0)
        del buf0
        buf2 = empty_strided_cuda((4, 6), (6, 1), torch.float32)
        triton_poi_fused_relu_0.run(buf1, buf2, 24, stream=raw_stream0)
        del buf1
    return (buf2, )
"""


@functools.cache
def problem() -> tuple[LoadedProblem, Captured]:
    """What the wrapper computes. One graph for all tests: it is traced for training once."""
    loaded = problem_from_module(Wrapped(lambda m, x: x.relu()).eval(), [torch.randn(4, 6)])
    return loaded, capture(loaded)


def lifted(wrapper: str = WRAPPER, kernel: str = KERNEL) -> DropInSource | NotLifted:
    loaded, captured = problem()
    config = LaunchConfig(constants=(("XBLOCK", 8),), num_warps=1, num_stages=1, prefix=(),
                    grid=("-((xnumel) // -(8))", "1", "1"))  # fmt: skip
    code = InductorKernel(variable="triton_poi_fused_relu_0", source=kernel, heuristic="pointwise",
                      configs=(config,), origins=("relu",), operators=("relu",))  # fmt: skip
    made = InductorCode(variant="default", source=wrapper, kernels=(code,),
                        inputs=captured.user_inputs, torch_version="", pretended=True)  # fmt: skip
    return lift(made, loaded, captured)


def test_memory_is_not_given_back_while_a_view_of_it_is_to_be_read() -> None:
    source = lifted()
    assert isinstance(source, DropInSource)
    words = "".join(source.text.split())
    assert "relu_kernel[(-(-24//8),)](input_0,relu,XBLOCK=8" in words
    assert "relu_kernel[(-(-24//8),)](relu.view(24),output,XBLOCK=8" in words
    assert "delrelu" not in words
    assert source.kernels == ("relu_kernel",)
    assert source.schedule == {"relu_kernel": {"XBLOCK": 8, "num_warps": 1, "num_stages": 1}}


def test_memory_is_given_back_before_more_is_taken() -> None:
    again = WRAPPER.replace(
        "        del buf1\n",
        "        del buf1\n        buf3 = empty_strided_cuda((4, 6), (6, 1), torch.float32)\n"
        "        triton_poi_fused_relu_0.run(buf2, buf3, 24, stream=raw_stream0)\n",
    ).replace("return (buf2, )", "return (buf3, )").replace(
        "        buf1 = reinterpret_tensor(buf0, (24, ), (1, ), 0)\n        del buf0\n", ""
    ).replace("run(buf1, buf2", "run(buf0, buf2").replace("del buf1", "del buf0")  # fmt: skip
    source = lifted(again)
    assert isinstance(source, DropInSource)
    lines = [line.strip() for line in source.text.splitlines()]
    assert lines.index("del relu") < next(
        place for place, line in enumerate(lines) if line.startswith("output = torch.empty")
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(4, 6), (6, 1)", "(s0, 6), (6, 1)", "s0 is not fixed"),
        ("(24, ), (1, ), 0)", "(24, ), (1, ), s1)", "s1 is not fixed"),
        ("arg0_1, = args", "arg0_1, arg1_1 = args", "takes 2 tensors, not 1"),
        ("return (buf2, )", "return (arg0_1, )", "an output is an input as it came"),
        ("return (buf2, )", "return ()", "returns something else"),
        ("(buf1, buf2, 24", "(buf7, buf2, 24", "reads buf7, which nothing wrote"),
        ("_relu_0.run(buf1", "_other_0.run(buf1", "no way to launch triton_poi_fused_other_0"),
        ("del buf1", "buf3 = torch.ops.mine.topk.default(buf1, 3)", "topk.default stays with"),
        ("del buf1", "torch.ops.aten.relu_.default(buf1)", "relu_.default stays with"),
        ("del buf1", "buf3 = buf0[1]", "the wrapper makes buf0[1]"),
        ("del buf1", "while buf1: pass", "the wrapper says while buf1"),
        ("buf2 = empty_strided_cuda((4, 6), (6, 1)", "buf2 = empty_strided_cuda((4, 6), (8, 1)",
         "an output has strides (8, 1), not (6, 1)"),
    ],
)  # fmt: skip
def test_a_wrapper_that_cannot_be_lifted_says_why(old: str, new: str, reason: str) -> None:
    assert old in WRAPPER
    found = lifted(WRAPPER.replace(old, new))
    assert isinstance(found, NotLifted)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("triton_helpers.maximum", "triton_helpers.sort_with_index", "calls triton_helpers.sort"),
        ("tmp0 = tl.load", "triton_helpers.x_grid_barrier(out_ptr0)\n    tmp0 = tl.load",
         "calls triton_helpers.x_grid_barrier"),
    ],
)  # fmt: skip
def test_a_kernel_that_cannot_be_lifted_says_why(old: str, new: str, reason: str) -> None:
    assert old in KERNEL
    found = lifted(kernel=KERNEL.replace(old, new))
    assert isinstance(found, NotLifted)
    assert reason in found.reason


SORTS = """        buf3 = torch.ops.aten.sort.stable(buf2, stable=False, dim=-1, descending=True)
        buf4 = buf3[0]
        assert_size_stride(buf4, (4, 6), (6, 1), 'torch.ops.aten.sort.stable')
        del buf3
    return (buf4, )
"""


def test_an_operator_that_stays_with_pytorch_is_called_by_its_full_name() -> None:
    found = lifted(WRAPPER.replace("    return (buf2, )\n", SORTS))
    assert isinstance(found, DropInSource)
    words = " ".join(found.text.split())
    assert "sort = torch.ops.aten.sort.stable(relu_1, stable=False, dim=-1, descending" in words
    assert "output = sort[0] output = output.contiguous() return output" in words
