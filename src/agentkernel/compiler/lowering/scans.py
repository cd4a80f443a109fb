"""Lowerings of cumulative sums, products, extrema and log-sum-exps to the IR's scans."""

from __future__ import annotations

import torch

from agentkernel.compiler.ir import Node, UnsupportedOp
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers


@lowers("cumsum.default", "cumprod.default")
def _running(state: Lowering, x: Node, dim: int, *, dtype: object = None) -> Lowered:
    """In the result's type where that is wider than the operand's: eager sums integers as int64."""
    op = "sum" if "cumsum" in str(getattr(state.call, "target", "")) else "prod"
    if isinstance(dtype, torch.dtype) or not x.dtype.is_floating_point:
        x = state.cast(x, state.dtype)
    return _along(state, op, x, dim)


@lowers("logcumsumexp.default")
def _log_sum_exp(state: Lowering, x: Node, dim: int) -> Lowered:
    return _along(state, "logsumexp", state.compute(x), dim)


def _along(state: Lowering, op: str, x: Node, dim: int) -> Node:
    """The scan; of one element, the element."""
    if not x.shape or x.shape[dim] == 1:
        return x
    return state.b.scan(op, x, dim % len(x.shape))


@lowers("cummax.default", "cummin.default")
def _extremum(state: Lowering, x: Node, dim: int) -> Lowered:
    """Values, and where they stood; where nobody reads the places, the values alone."""
    b, call = state.b, state.call
    assert call is not None
    if not x.shape or x.shape[dim] == 1 or x.dtype == torch.bool:
        raise UnsupportedOp(str(call.target), "of one element, or of truth values")
    dim %= len(x.shape)
    op = "max" if "cummax" in str(call.target) else "min"
    wide = x if x.dtype.is_floating_point or x.dtype == torch.int64 else state.cast(x, torch.int32)
    if all(user.args[1] == 0 for user in call.users):
        return state.cast(b.scan(op, wide, dim), x.dtype), None
    both = b.scan(f"cum{op}", wide, dim)
    value = b.part(both, 0, both.dtype, x.shape)
    return state.cast(value, x.dtype), b.part(both, 1, torch.int64, x.shape)
