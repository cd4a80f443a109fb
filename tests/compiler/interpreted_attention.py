"""Emitted attention against torch in Triton's interpreter; run as a script."""

from __future__ import annotations

import itertools
import math
import os
from functools import partial

os.environ["TRITON_INTERPRET"] = "1"

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentkernel.compiler.attention import AttentionSpec
from agentkernel.compiler.attention_splits import emit_any
from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.tools.judge.interpreter.hooks import install_hooks
from tests.compiler.cross_compile import imported

TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.5e-2}
SCHEDULE = {"BLOCK_T": 32, "BLOCK_S": 16, "num_warps": 4, "num_stages": 2}
SPLIT = SCHEDULE | {"BLOCK_T": 16, "PROGRAMS": 16}
SPLITS = (SPLIT, SPLIT | {"PROGRAMS": 1}, SPLIT | {"PROGRAMS": 7})
SCHEDULES = (SCHEDULE, *SPLITS)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    fill: float = -math.inf,
) -> torch.Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1).double(), v.repeat_interleave(group, 1).double()
    scores = q.double() @ k.mT * 0.3
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, fill)
    elif mask is not None:
        scores = scores + mask.double()
    if causal:
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~kept, float("-inf"))
    return torch.softmax(scores, -1) @ v


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    empty_rows: str = "nan",
    rising: bool = True,
    fill: float = -math.inf,
    schedule: dict[str, int] = SCHEDULE,
) -> torch.Tensor:
    dtype = str(q.dtype).removeprefix("torch.")
    out = torch.full((*q.shape[:3], v.shape[3]), float("nan"), dtype=q.dtype)
    spec = AttentionSpec(
        name="attention", q="q", k="k", v="v", out="out", scale="0.3", dtype=dtype,
        head_dim=q.shape[3], value_dim=v.shape[3], causal=causal,
        mask=None if mask is None else "mask", empty_rows=empty_rows,
        rising=rising, fill=fill,
        mask_kind="bool" if mask is not None and mask.dtype == torch.bool else "add",
    )  # fmt: skip
    text = emit_any(spec, schedule)
    body = "\n".join(f"    {line}" for line in text.launch)
    pieces = "\n\n\n".join([*helper_sources(text.helpers), text.source])
    source = f"{pieces}\n\n\ndef run(q, k, v, out, mask):\n{body}\n"
    if mask is not None:
        mask = mask.expand(*q.shape[:3], k.shape[2])
    imported(source).run(q, k, v, out, mask)
    return out


def a_bias_is_added_before_the_mask() -> None:
    """What is masked stays so, whatever the bias or the scores there are."""
    torch.manual_seed(0)
    for dtype, schedule in itertools.product(("float32", "float16"), (SCHEDULE, SPLIT)):
        q, k, v = (torch.randn(2, 3, 37, 16, dtype=getattr(torch, dtype)) for _ in range(3))
        bias = torch.randn(3, 37, 37)
        kept = torch.ones(37, 37, dtype=torch.bool).tril()
        k[1, 2, 36] = float("nan")  # seen by the last query alone
        out = torch.full_like(q, float("nan"))
        spec = AttentionSpec(
            name="attention", q="q", k="k", v="v", out="out", scale="0.3", dtype=dtype,
            head_dim=16, value_dim=16, mask="mask", mask_kind="bool", bias="bias",
        )  # fmt: skip
        text = emit_any(spec, schedule)
        body = "\n".join(f"    {line}" for line in text.launch)
        pieces = "\n\n\n".join([*helper_sources(text.helpers), text.source])
        source = f"{pieces}\n\n\ndef run(q, k, v, out, mask, bias):\n{body}\n"
        over = (item.expand(2, 3, 37, 37) for item in (kept, bias))
        imported(source).run(q, k, v, out, *over)
        scores = q.double() @ k.double().mT * 0.3 + bias.double()
        wanted = torch.softmax(scores.masked_fill(~kept, -math.inf), -1) @ v.double()
        assert torch.equal(out.isnan(), wanted.isnan())
        assert wanted.isnan().sum() == 16
        error = (out.double() - wanted).nan_to_num(0).norm() / wanted.nan_to_num(0).norm()
        assert error <= TOLERANCE[dtype], float(error)


@settings(max_examples=20, deadline=None, database=None, phases=[Phase.generate])
@given(
    lengths=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    dims=st.tuples(st.sampled_from([16, 24, 40]), st.sampled_from([16, 20])),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    kind=st.sampled_from(["none", "add", "bool"]),
    causal=st.booleans(),
    group=st.sampled_from([1, 2]),
    schedule=st.sampled_from(SCHEDULES),
)
def attention_is_right(
    lengths: tuple[int, int],
    dims: tuple[int, int],
    dtype: str,
    kind: str,
    causal: bool,
    group: int,
    schedule: dict[str, int],
) -> None:
    schedule = SCHEDULE if causal else schedule
    queries, keys = lengths
    number = getattr(torch, dtype)
    q = torch.randn(2, queries, 2, dims[0], dtype=number).transpose(1, 2)
    k = torch.randn(2, 2 // group, keys, dims[0], dtype=number)
    v = torch.randn(2, 2 // group, keys, dims[1], dtype=number)
    mask = None
    if kind == "add":
        mask = torch.randn(1, 1, queries, keys, dtype=number)
    elif kind == "bool":
        mask = torch.rand(2, 1, 1, keys) < 0.7
        mask[..., 0] = True
    wanted = reference(q, k, v, mask, causal)
    found = attend(q, k, v, mask, causal, schedule=schedule)
    error = (found.double() - wanted).norm() / wanted.norm()
    assert error <= TOLERANCE[dtype], float(error)


@settings(max_examples=20, deadline=None, database=None, phases=[Phase.generate])
@given(
    lengths=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    fill=st.sampled_from([-2.0, 0.0, -1e4, "lowest"]),
    added=st.booleans(),
    rising=st.booleans(),
    schedule=st.sampled_from(SCHEDULES),
)
def numbers_of_a_mask_are_scores(
    lengths: tuple[int, int],
    dtype: str,
    fill: float | str,
    added: bool,
    rising: bool,
    schedule: dict[str, int],
) -> None:
    """Rows that are wholly masked among them: all their keys count alike."""
    queries, keys = lengths
    number = getattr(torch, dtype)
    q, k, v = (torch.randn(1, 2, rows, 16, dtype=number) for rows in (queries, keys, keys))
    low = torch.finfo(number).min if isinstance(fill, str) else fill
    mask = torch.rand(1, 1, queries, keys) < 0.6
    mask[..., 0, :] = False
    if added:
        wanted = torch.zeros(mask.shape, dtype=number).masked_fill(~mask, low)
        found = attend(q, k, v, wanted, causal=False, rising=rising, schedule=schedule)
        wanted = reference(q, k, v, wanted, causal=False)
    else:
        found = attend(q, k, v, mask, False, rising=rising, fill=low, schedule=schedule)
        wanted = reference(q, k, v, mask, causal=False, fill=low)
    error = (found.double() - wanted).norm() / wanted.norm()
    # A sum with a large number is rounded to the number's last place, in eager mode too.
    rounded = abs(low) * 2.0**-23 if added and abs(low) < 1e5 else 0.0
    assert error <= TOLERANCE[dtype] + rounded, float(error)


@settings(max_examples=30, deadline=None, database=None, phases=[Phase.generate])
@given(
    queries=st.sampled_from([1, 1, 2, 5, 16]),
    keys=st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 127, 257])),
    group=st.sampled_from([1, 4, 7, 20]),
    dims=st.sampled_from([(16, 16), (24, 20)]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    masked=st.booleans(),
    schedule=st.sampled_from(SPLITS),
)
def few_queries_are_right(
    queries: int,
    keys: int,
    group: int,
    dims: tuple[int, int],
    dtype: str,
    masked: bool,
    schedule: dict[str, int],
) -> None:
    """Also more heads to one of keys than a tile has rows, and masks that differ by head."""
    number = getattr(torch, dtype)
    q = torch.randn(2, queries, 2 * group, dims[0], dtype=number).transpose(1, 2)
    k = torch.randn(2, keys, 2, dims[0], dtype=number).transpose(1, 2)
    v = torch.randn(2, 2, keys, dims[1], dtype=number)
    mask = torch.randn(2, 2 * group, queries, keys, dtype=number) if masked else None
    wanted = reference(q, k, v, mask, causal=False)
    found = attend(q, k, v, mask, causal=False, schedule=schedule)
    error = (found.double() - wanted).norm() / wanted.norm()
    assert error <= TOLERANCE[dtype], float(error)


def rows_without_a_key() -> None:
    """Also parts of a row without one."""
    q, k, v = (torch.randn(1, 1, 20, 16) for _ in range(3))
    mask = torch.ones(1, 1, 20, 20, dtype=torch.bool)
    mask[..., 3, :] = False
    mask[..., 4, :16] = False
    for schedule in (SCHEDULE, SPLIT):
        given = partial(attend, q, k, v, mask, causal=False, schedule=schedule)
        wanted = reference(q, k, v, mask, causal=False)[0, 0, 4]
        assert given()[0, 0, 3].isnan().all()
        zeros = given(empty_rows="zero")
        assert (zeros[0, 0, 3] == 0).all()
        assert not zeros.isnan().any()
        assert (zeros[0, 0, 4] - wanted).norm() <= 2e-6 * wanted.norm()


def what_is_not_finite_shows() -> None:
    """In the one part that it is in."""
    for value in (math.nan, math.inf):
        q, k, v = (torch.randn(1, 2, rows, 16) for rows in (1, 40, 40))
        q[..., 0], k[0, 1, 37, 0] = 1.0, value
        found = attend(q, k, v, None, causal=False, schedule=SPLIT)
        assert found[0, 1].isnan().all()
        assert found[0, 0].isfinite().all()


if __name__ == "__main__":
    install_hooks()
    attention_is_right()
    numbers_of_a_mask_are_scores()
    few_queries_are_right()
    rows_without_a_key()
    what_is_not_finite_shows()
    a_bias_is_added_before_the_mask()
