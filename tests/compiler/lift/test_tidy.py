"""Tidying changes no result of random kernels, which run as plain Python."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.compiler.lift.kernel_text import rename_values
from agentkernel.compiler.lift.tidy import tidy

KINDS = ("binary", "copy", "constant", "where", "broadcast", "sum", "kept")
BINARY = ("+", "-", "*")


@st.composite
def kernels(draw: st.DrawFn) -> str:
    """A straight line or a loop of assignments to tmp0, tmp1, ..., the last ones returned."""
    lines = ["tmp0 = x", "tmp1 = y", "acc = 0.0"]
    count = 2

    def statement() -> str:
        nonlocal count
        left, right = (f"tmp{draw(st.integers(0, count - 1))}" for _ in range(2))
        kind = draw(st.sampled_from(KINDS))
        target, count = f"tmp{count}", count + 1
        number = draw(st.integers(-3, 3))
        return {
            "binary": f"{target} = {left} {draw(st.sampled_from(BINARY))} {right}",
            "copy": f"{target} = {left}",
            "constant": f"{target} = tl.full([1, 1], {number}.0, tl.float32)",
            "where": f"{target} = tl.where({left} < {right}, {left}, {right})",
            "broadcast": f"{target} = tl.broadcast_to({left}, [XBLOCK, R0_BLOCK])",
            "sum": f"{target} = acc + {left}",
            "kept": f"{target} = acc",
        }[kind]

    lines += [statement() for _ in range(draw(st.integers(1, 8)))]
    lines.append("for step in tl.range(0, 3, 1):")
    before = count
    lines += [f"    {statement()}" for _ in range(draw(st.integers(1, 6)))]
    lines.append(f"    acc = acc + tmp{count - 1} * step")
    outside = draw(st.integers(0, before - 1))
    lines.append(f"return acc, tmp{outside}")
    body = "\n".join(f"    {line}" for line in lines)
    return f"def kernel(x, y):\n{body}\n"


def _value(function: ast.FunctionDef) -> list[float]:
    tl = SimpleNamespace(
        full=lambda shape, value, dtype: np.float64(value), float32=None, where=np.where,
        broadcast_to=lambda value, shape: value, range=range,
    )  # fmt: skip
    names: dict[str, object] = {"tl": tl, "XBLOCK": 1, "R0_BLOCK": 1, "maximum": max}
    module = ast.fix_missing_locations(ast.Module([function], []))
    exec(compile(module, "kernel", "exec"), names)
    return [float(item) for item in names["kernel"](np.float64(1.25), np.float64(-0.5))]


@settings(max_examples=300, deadline=None)
@given(kernels())
def test_a_tidied_kernel_computes_the_same(text: str) -> None:
    plain, tidied = (ast.parse(text).body[0] for _ in range(2))
    tidy(tidied)
    rename_values(tidied, set())
    assert np.allclose(_value(plain), _value(tidied), equal_nan=True), ast.unparse(tidied)
    assert len(tidied.body) <= len(plain.body)


def test_what_is_tidied_away() -> None:
    text = """
def kernel(a_ptr, out_ptr, XBLOCK: tl.constexpr):
    xnumel = 100
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < xnumel
    unused = xnumel + 1
    x0 = xindex
    tmp0 = tl.load(a_ptr + x0, xmask)
    tmp1 = tl.full([1], 0.5, tl.float32)
    tmp2 = tmp0 * tmp1
    tmp3 = tl.broadcast_to(tmp2, [XBLOCK])
    tmp4 = tl.full([1], 0, tl.int32)
    tmp5 = maximum(tmp4, tmp3)
    tl.store(out_ptr + x0, tmp5, xmask)
"""
    function = ast.parse(text).body[0]
    tidy(function)
    rename_values(function, set())
    assert (
        ast.unparse(function)
        == """\
def kernel(a_ptr, out_ptr, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < 100
    a = tl.load(a_ptr + xindex, xmask)
    tl.store(out_ptr + xindex, maximum(a * 0.5, 0), xmask)"""
    )


def test_a_wide_whole_number_keeps_its_width() -> None:
    """x * 2 with an int64 two is int64 on int32 x; the plain 2 would stay narrow."""
    text = """
def kernel(x):
    tmp0 = tl.full([1], 2, tl.int64)
    tmp1 = x * tmp0
    tmp2 = x < tmp0
    return tmp1, tmp2
"""
    function = ast.parse(text).body[0]
    tidy(function)
    assert "tl.full([1], 2, tl.int64)" in ast.unparse(function)
    assert "x < 2" in ast.unparse(function)
