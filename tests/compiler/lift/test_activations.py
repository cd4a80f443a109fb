"""Activation functions in TorchInductor's kernels become one call."""

from __future__ import annotations

import pytest

from agentkernel.compiler.lift.inductor_code import InductorKernel
from agentkernel.compiler.lift.kernel_text import LiftedKernel, kernel_text

SOURCE = """
@triton_heuristics.pointwise(triton_meta={{'signature': {{'in_ptr0': '*{kind}', \
'out_ptr0': '*{kind}', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}}}})
@triton.jit
def triton_poi_fused_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 4096
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), None).to(tl.float32)
{body}
    tl.store(out_ptr0 + (x0), result, None)
"""
SOFTPLUS = """\
    tmp1 = tl.full([1], 20.0, tl.float32)
    tmp2 = tmp0 > tmp1
    tmp3 = libdevice.exp(tmp0)
    tmp4 = libdevice.log1p(tmp3)
    tmp5 = tl.where(tmp2, tmp0, tmp4)
"""
BODIES = {
    "gelu": """\
    tmp1 = tl.full([1], 0.5, tl.float32)
    tmp2 = tmp0 * tmp1
    tmp3 = tl.full([1], 0.7071067811865476, tl.float32)
    tmp4 = tmp0 * tmp3
    tmp5 = libdevice.erf(tmp4)
    tmp6 = tl.full([1], 1.0, tl.float32)
    tmp7 = tmp5 + tmp6
    result = tmp2 * tmp7""",
    "gelu_tanh": """\
    tmp1 = tl.full([1], 0.5, tl.float32)
    tmp2 = tmp0 * tmp1
    tmp3 = tmp0 * tmp0
    tmp4 = tmp3 * tmp0
    tmp5 = tl.full([1], 0.044715, tl.float32)
    tmp6 = tmp4 * tmp5
    tmp7 = tmp0 + tmp6
    tmp8 = tl.full([1], 0.7978845608028654, tl.float32)
    tmp9 = tmp7 * tmp8
    tmp10 = libdevice.tanh(tmp9)
    tmp11 = tl.full([1], 1.0, tl.float32)
    tmp12 = tmp10 + tmp11
    result = tmp2 * tmp12""",
    "silu": """\
    tmp1 = -tmp0
    tmp2 = libdevice.exp(tmp1)
    tmp3 = tl.full([1], 1.0, tl.float32)
    tmp4 = tmp2 + tmp3
    result = (tmp0 / tmp4)""",
    "softplus": SOFTPLUS + "    result = tmp5",
    "mish": SOFTPLUS + "    tmp6 = libdevice.tanh(tmp5)\n    result = tmp0 * tmp6",
    "log_sigmoid": """\
    tmp1 = tl.full([1], 0.0, tl.float32)
    tmp2 = triton_helpers.minimum(tmp1, tmp0)
    tmp3 = tl_math.abs(tmp0)
    tmp4 = -tmp3
    tmp5 = libdevice.exp(tmp4)
    tmp6 = libdevice.log1p(tmp5)
    result = tmp2 - tmp6""",
}


def _lifted(body: str, kind: str = "fp32") -> LiftedKernel:
    source = SOURCE.format(kind=kind, body=body)
    kernel = InductorKernel(variable="k", source=source, heuristic="pointwise", configs=())
    return kernel_text(kernel, "own_kernel", {"in_ptr0": "x_ptr"}, set(), ["Fused."])


@pytest.mark.parametrize("name", BODIES)
def test_an_activation_is_one_call(name: str) -> None:
    lifted = _lifted(BODIES[name])
    assert lifted.helpers == {name}
    assert lifted.source.count(f"{name}(x)") == 1
    assert len(lifted.source.splitlines()) <= 9


@pytest.mark.parametrize("name", BODIES)
def test_one_that_is_stored_in_16_bits_is_coarse(name: str) -> None:
    wanted = {"gelu_tanh": "gelu_tanh"}.get(name, f"coarse_{name}")
    assert _lifted(BODIES[name], "bf16").helpers == {wanted}
    assert _lifted(BODIES[name], "fp64").helpers <= {"minimum"}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gelu", "0.7071067811865476", "0.7"),
        ("gelu_tanh", "tmp3 * tmp0", "tmp3 * tmp3"),
        ("silu", "-tmp0", "-tmp3"),
        ("softplus", "tmp0 > tmp1", "tmp0 < tmp1"),
        ("mish", "tmp0 * tmp6", "tmp3 * tmp6"),
        ("log_sigmoid", "tmp2 - tmp6", "tmp6 - tmp2"),
    ],
)
def test_what_differs_stays_as_it_is(name: str, old: str, new: str) -> None:
    assert old in BODIES[name]
    body = BODIES[name].replace(old, new)
    if name == "silu":
        body = "    tmp3 = tl.full([1], 1.0, tl.float32)\n" + body.replace(
            "    tmp3 = tl.full([1], 1.0, tl.float32)\n", ""
        )
    assert name not in _lifted(body).helpers


def test_a_value_that_changes_in_between_is_not_one_value() -> None:
    body = """\
    tmp1 = tmp0
    tmp2 = libdevice.exp(-tmp1)
    tmp1 = tmp1 * tmp1
    tmp3 = tl.full([1], 1.0, tl.float32)
    tmp4 = tmp2 + tmp3
    result = (tmp1 / tmp4)"""
    assert "silu" not in _lifted(body).helpers
