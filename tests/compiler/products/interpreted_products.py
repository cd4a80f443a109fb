"""Emitted matrix products against torch in Triton's interpreter; run as a script."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

os.environ["TRITON_INTERPRET"] = "1"

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentkernel.compiler.kernel_helpers import helper_sources
from agentkernel.compiler.products.gemm import emit_gemm
from agentkernel.compiler.products.spec import GATES, GemmSpec
from agentkernel.compiler.products.triangles import Triangle
from agentkernel.tools.judge.interpreter.hooks import install_hooks
from tests.compiler.cross_compile import imported

TOLERANCE = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
GELU = (
    "bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)",
    "residual = tl.load(residual_ptr + tile, mask=tile_mask, other=0.0).to(tl.float32)",
    "acc = tl.maximum(acc + bias[None, :], 0.0) + scale * residual",
)


def run_gemm(spec: GemmSpec, schedule: dict[str, int], tensors: dict[str, torch.Tensor]) -> None:
    """Launch what the emitter says, with `m`, `n`, `k` and the tensors as the wrapper's names."""
    text = emit_gemm(spec, schedule)
    names = ", ".join([*tensors, "m", "n", "k"])
    body = "\n".join(f"    {line}" for line in text.launch)
    sources = "\n\n\n".join([*helper_sources(text.helpers), text.source])
    module = imported(f"{sources}\n\n\ndef run({names}):\n{body}\n")
    a, b = tensors["a"], tensors["b"]
    m = a.shape[-2] if spec.a_layout == "k" else a.shape[-1]
    k = a.shape[-1] if spec.a_layout == "k" else a.shape[-2]
    n = b.shape[-2] if spec.b_layout == "k" else b.shape[-1]
    module.run(*tensors.values(), m, n, k)


def check(
    found: torch.Tensor, wanted: torch.Tensor, dtype: str, terms: torch.Tensor | None = None
) -> None:
    """`terms`: the sum of the magnitudes of what is added last, where it may cancel. No arithmetic
    is relative to a difference of almost equal numbers, which one element alone may be."""
    scale = wanted if terms is None else terms
    error = (found.double() - wanted).norm() / scale.norm().clamp_min(1e-30)
    assert error <= TOLERANCE[dtype], float(error)


SIZES = st.integers(1, 70)


@settings(max_examples=20, deadline=None, database=None, phases=[Phase.generate])
@given(
    sizes=st.tuples(SIZES, SIZES, st.integers(1, 150)),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    a_layout=st.sampled_from(["k", "m"]),
    b_layout=st.sampled_from(["k", "n"]),
    split=st.sampled_from([1, 4]),
    batch_shape=st.sampled_from([(), (3,), (2, 3)]),
    form=st.sampled_from(["plain", "transpose", "planes", "planes in the loop", "persist"]),
)
def linear_is_right(
    sizes: tuple[int, int, int],
    dtype: str,
    a_layout: str,
    b_layout: str,
    split: int,
    batch_shape: tuple[int, ...],
    form: str,
) -> None:
    m, n, k = sizes
    kind = getattr(torch, dtype)
    a = torch.randn(*batch_shape, m, k, dtype=kind)
    b = torch.randn(*batch_shape[1:], n, k, dtype=kind)  # the outer batch is broadcast
    bias = torch.randn(n, dtype=kind)
    residual = torch.randn(*batch_shape, m, n, dtype=kind)
    product = a.double() @ b.double().mT
    wanted = (product + bias.double()).relu() + 0.5 * residual.double()
    a = a if a_layout == "k" else a.mT.contiguous()
    b = b if b_layout == "k" else b.mT.contiguous()
    b = b.expand(*batch_shape, *b.shape[-2:]) if batch_shape else b
    out = torch.full((*batch_shape, m, n), float("nan"), dtype=kind)
    spec = GemmSpec(
        name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype=dtype,
        a_layout=a_layout, b_layout=b_layout, batch_dims=len(batch_shape), epilogue=GELU,
        extras=(("bias_ptr", "bias"), ("residual_ptr", "residual"), ("scale", "0.5")),
    )  # fmt: skip
    schedule = {
        "BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2, "SPLIT_K": split,
        "TRANSPOSE_A": int(form == "transpose"), "TRANSPOSE_B": int(form == "transpose"),
        "num_warps": 4, "num_stages": 2,
    }  # fmt: skip
    if form == "persist":
        schedule |= {"PERSIST": 3, "SPLIT_K": 1}
    if dtype == "float32" and form.startswith("planes"):
        schedule["PLANES"] = 1 if form == "planes" else 2
    tensors = {"a": a, "b": b, "out": out, "bias": bias, "residual": residual}
    run_gemm(spec, schedule, tensors)
    terms = product.abs() + bias.double().abs() + 0.5 * residual.double().abs()
    check(out, wanted, dtype, terms)


def gated(gates: Sequence[str]) -> tuple[str, ...]:
    return (
        "bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)",
        f"acc = tl.maximum(acc + bias[None, :], 0.0) * {' * '.join(gates)}",
    )


@settings(max_examples=40, deadline=None, database=None, phases=[Phase.generate])
@given(
    sizes=st.tuples(SIZES, SIZES, st.integers(1, 150)),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    layouts=st.tuples(st.sampled_from(["k", "m"]), st.sampled_from(["k", "n"])),
    batch_shape=st.sampled_from([(), (), (3,), (2, 3)]),
    form=st.sampled_from(["plain", "transpose", "planes", "persist", "descriptors"]),
    parted=st.booleans(),
    eight=st.booleans(),
    turned=st.booleans(),
    gates=st.integers(1, 3),
)
def pairs_are_right(
    sizes: tuple[int, int, int],
    dtype: str,
    layouts: tuple[str, str],
    batch_shape: tuple[int, ...],
    form: str,
    *,
    parted: bool,
    eight: bool,
    turned: bool,
    gates: int,
) -> None:
    """Several weights, or ranges of columns of one, with rows between them that nobody reads;
    `eight`: TMA serves all of it; `turned`: the first lies behind the others."""
    m, n, k = sizes
    gap = 8 if eight else 1
    m, n, k = (-(-size // gap) * gap for size in (m, n, k))
    kind = getattr(torch, dtype)
    a = torch.randn(*batch_shape, m, k, dtype=kind)
    whole = (torch.randn(*batch_shape, (gates + 1) * (n + gap), k) / k**0.5).to(kind)
    ranges = [slice(part * (n + gap), part * (n + gap) + n) for part in range(gates + 1)]
    if turned:
        ranges.reverse()
    weights = [whole[..., part, :] for part in ranges]
    bias = torch.randn(n, dtype=kind)
    left, *others = (a.double() @ weight.double().mT for weight in weights)
    right = math.prod(others)
    wanted = (left + bias.double()).relu() * right
    a = a if layouts[0] == "k" else a.mT.contiguous()
    if layouts[1] == "n":
        whole = whole.mT.contiguous()
        weights = [whole[..., part] for part in ranges]
    b, *further = weights if parted else [weight.contiguous() for weight in weights]
    names = GATES[:gates]
    out = torch.full((*batch_shape, m, n), float("nan"), dtype=kind)
    spec = GemmSpec(
        name="pair", a="a", b="b", gates=names, out="out", m="m", n="n", k="k", dtype=dtype,
        a_layout=layouts[0], b_layout=layouts[1], batch_dims=len(batch_shape),
        epilogue=gated(names), extras=(("bias_ptr", "bias"),),
    )  # fmt: skip
    schedule = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2, "num_warps": 4}
    schedule |= {"num_stages": 2, "SPLIT_K": 1}
    schedule |= {"TRANSPOSE_A": 1, "TRANSPOSE_B": 1} if form == "transpose" else {}
    schedule |= {"PERSIST": 3} if form in ("persist", "descriptors") else {}
    schedule |= {"DESCRIPTORS": 2} if form == "descriptors" and dtype != "float32" else {}
    schedule |= {"PLANES": 1} if form == "planes" and dtype == "float32" else {}
    tensors = {"a": a, "b": b, "out": out, "bias": bias, **dict(zip(names, further, strict=True))}
    run_gemm(spec, schedule, tensors)
    terms = (left.abs() + bias.double().abs()) * right.abs()
    check(out, wanted, dtype, terms)
    again = torch.full_like(out, float("nan"))
    run_gemm(spec, schedule, tensors | {"out": again})
    assert torch.equal(out, again)


def two_weights_in_one_box_are_right() -> None:
    """Either may lie behind the other; the last tile of columns is not whole."""
    for turned in (False, True):
        for parted in (False, True):
            pairs_are_right.hypothesis.inner_test(  # type: ignore[attr-defined]
                (37, 40, 40), "bfloat16", ("k", "k"), (), "descriptors",
                parted=parted, eight=True, turned=turned, gates=1,
            )  # fmt: skip


def marked_blocks_of_either_weight_are_multiplied_exactly() -> None:
    """A number far below the rest of its block, in one weight of a pair alone."""
    for marked in range(3):
        torch.manual_seed(marked)
        a, b, second = torch.randn(70, 300), torch.randn(45, 300), torch.randn(45, 300)
        (a, b, second)[marked][3, 5] = 1e-30
        (a, b, second)[marked][7] *= 1e12
        out = torch.full((70, 45), float("nan"))
        spec = GemmSpec(
            name="pair", a="a", b="b", gates=("second",), out="out", m="m", n="n", k="k",
            dtype="float32", epilogue=("acc = acc * second",),
        )  # fmt: skip
        schedule = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
        schedule |= {"num_stages": 2, "PLANES": 1, "SPLIT_K": 1}
        run_gemm(spec, schedule, {"a": a, "b": b, "out": out, "second": second})
        left, right = a.double() @ b.double().T, a.double() @ second.double().T
        sizes = [a.double().abs() @ item.double().abs().T for item in (b, second)]
        # Each element by itself: in planes, what lies beside a large row would be lost.
        assert bool(((out - left * right).abs() <= 1e-6 * sizes[0] * sizes[1]).all())


def strided_rows_are_read_in_place() -> None:
    a = torch.randn(40, 96)[::2, :64]
    b = torch.randn(24, 80)[:, :64]
    out = torch.empty(20, 24)
    spec = GemmSpec(name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float32")
    schedule = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
    run_gemm(spec, schedule | {"num_stages": 2}, {"a": a, "b": b, "out": out})
    check(out, a.double() @ b.double().T, "float32")


def largest(x: torch.Tensor) -> float:
    return float(x.double().abs().nan_to_num(0, 0, 0).max())


def planes_hold_what_they_say() -> None:
    """Rows of every width of range, scaled by rows far apart, with zeros, inf and NaN: each element
    within the bound of planes.py, and inf and NaN where the operands' own product has them."""
    for planes, split in ((1, 1), (1, 4), (2, 1), (2, 4)):
        for spread in (0.0, 2.0, 8.0, 12.0):
            torch.manual_seed(int(spread))
            a, b = torch.randn(70, 300), torch.randn(45, 300)
            a *= torch.exp(spread * torch.randn(70, 300))
            b *= torch.exp(0.2 * spread * torch.randn(45, 1))
            a[3], a[4, ::3], b[5, 7] = 0.0, 0.0, 0.0
            if spread == 12.0:
                a[5, 5], a[6, 6], b[7, 7] = float("inf"), float("nan"), float("-inf")
            out = torch.empty(70, 45)
            spec = GemmSpec(
                name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float32"
            )
            schedule = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
            schedule |= {"num_stages": 2, "PLANES": planes, "SPLIT_K": split}
            run_gemm(spec, schedule, {"a": a, "b": b, "out": out})
            exact, eager = a.double() @ b.double().T, a @ b.T
            terms = a.double().abs() @ b.double().abs().T
            finite = torch.isfinite(exact) & torch.isfinite(eager)
            bound = 3 * 2.0**-22 * terms + 2.0**-24 * 300**0.5 * terms
            bound += 2.0**-50 * 300 * largest(a) * largest(b)
            assert bool(((out.double() - exact).abs() <= bound)[finite].all())
            assert torch.equal(torch.isnan(out), torch.isnan(eager))
            assert torch.equal(torch.isinf(out), torch.isinf(eager))


def tiles_in_halves_are_whole() -> None:
    """A wide tile's epilogue takes one half after the other, at sizes that neither fills."""
    a, b = torch.randn(40, 96).half(), torch.randn(300, 96).half()
    out, bias = torch.full((40, 300), float("nan")).half(), torch.randn(300).half()
    residual = torch.randn(40, 300).half()
    spec = GemmSpec(
        name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float16",
        epilogue=GELU,
        extras=(("bias_ptr", "bias"), ("residual_ptr", "residual"), ("scale", "0.5")),
    )  # fmt: skip
    schedule = {"BLOCK_M": 16, "BLOCK_N": 256, "BLOCK_K": 32, "GROUP_M": 2, "num_warps": 4}
    tensors = {"a": a, "b": b, "out": out, "bias": bias, "residual": residual}
    run_gemm(spec, schedule | {"num_stages": 2, "PERSIST": 2}, tensors)
    product = a.double() @ b.double().T + bias.double()
    check(out, product.relu() + 0.5 * residual.double(), "float16")


def apart(rows: int, cols: int, gap: int, first: int, kind: torch.dtype) -> torch.Tensor:
    """Rows `gap` elements apart, that begin `first` elements after their memory does."""
    memory = torch.full((rows * (cols + gap) + first,), float("nan")).to(kind)
    matrix = memory[first:].view(rows, cols + gap)[:, :cols]
    return matrix.copy_(torch.randn(rows, cols))


@settings(max_examples=40, deadline=None, database=None, phases=[Phase.generate])
@given(
    sizes=st.tuples(SIZES, st.integers(1, 40), st.integers(1, 12)),
    eight=st.booleans(),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    layouts=st.tuples(st.sampled_from(["k", "m"]), st.sampled_from(["k", "n"])),
    gaps=st.tuples(st.sampled_from([0, 0, 8, 3]), st.sampled_from([0, 0, 8, 3])),
    first=st.sampled_from([0, 0, 8, 1]),
    wide=st.booleans(),
    stored=st.sampled_from([1, 2]),
)
def descriptors_are_right(
    sizes: tuple[int, int, int],
    eight: bool,
    dtype: str,
    layouts: tuple[str, str],
    gaps: tuple[int, int],
    first: int,
    wide: bool,
    stored: int,
) -> None:
    """By TMA or, where a row begins elsewhere, through pointers in the same kernel, and as a kernel
    without descriptors: right at all sizes, with the same bits in every run."""
    m, n, k = (8 * size for size in sizes) if eight else sizes
    kind = getattr(torch, dtype)
    a = apart(*((m, k) if layouts[0] == "k" else (k, m)), gaps[0], first, kind)
    b = apart(*((n, k) if layouts[1] == "k" else (k, n)), gaps[1], 0, kind)
    schedule = {
        "BLOCK_M": 32, "BLOCK_N": 256 if wide else 16, "BLOCK_K": 32, "GROUP_M": 2, "SPLIT_K": 1,
        "num_warps": 4, "num_stages": 2, "PERSIST": 3,
    }  # fmt: skip
    spec = GemmSpec(
        name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype=dtype,
        a_layout=layouts[0], b_layout=layouts[1], epilogue=GELU,
        extras=(("bias_ptr", "bias"), ("residual_ptr", "residual"), ("scale", "0.5")),
    )  # fmt: skip
    bias, residual = torch.randn(n).to(kind), torch.randn(m, n).to(kind)
    found = []
    for more in ({}, {"DESCRIPTORS": stored}, {"DESCRIPTORS": stored}):
        out = torch.full((m, n), float("nan"), dtype=kind)
        tensors = {"a": a, "b": b, "out": out, "bias": bias, "residual": residual}
        run_gemm(spec, schedule | more, tensors)
        found.append(out)
    assert torch.equal(found[1], found[2])
    rows = [a if layouts[0] == "k" else a.mT, b if layouts[1] == "k" else b.mT]
    product = rows[0].double() @ rows[1].double().mT
    wanted = (product + bias.double()).relu() + 0.5 * residual.double()
    terms = product.abs() + bias.double().abs() + 0.5 * residual.double().abs()
    for item in found:
        check(item, wanted, dtype, terms)


def rows_that_begin_elsewhere_are_read_through_pointers() -> None:
    """Of a pitch or a start that is no multiple of 16 bytes, of a pitch of 0 and of rows that run
    into each other; a descriptor of any of them would be refused, or read something else."""
    aligned = torch.zeros(64, 64).half()
    cases = {
        "rows of 128 bytes": (aligned, True),
        "every other row": (aligned[::2], True),
        "columns from the 8th on": (aligned[:, 8:], True),
        "columns from the 1st on": (aligned[:, 1:], False),
        "rows of 126 bytes": (torch.zeros(64, 63).half(), False),
        "one row for all": (aligned[:1].expand(64, 64), False),
        "windows": (aligned.as_strided((32, 64), (8, 1)), False),
    }
    spec = GemmSpec(name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float16")
    schedule = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2, "num_warps": 4}
    schedule |= {"num_stages": 2, "PERSIST": 3, "DESCRIPTORS": 2}
    text = emit_gemm(spec, schedule)
    module = imported("\n\n\n".join(helper_sources(text.helpers)))
    for name, (matrix, wanted) in cases.items():
        assert module.described(matrix) == wanted, name
        assert not module.described(aligned, matrix) or wanted, name


def extreme_values_stay_finite() -> None:
    """Large finite operands do not overflow where fp32 does not."""
    for magnitude in (1e-19, 1e-12, 1e4, 1e18):
        a, b = torch.randn(33, 65) * magnitude, torch.randn(17, 65) * magnitude
        out = torch.empty(33, 17)
        spec = GemmSpec(
            name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float32"
        )
        schedule = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
        run_gemm(spec, schedule | {"num_stages": 2}, {"a": a, "b": b, "out": out})
        check(out, a.double() @ b.double().T, "float32")


CUT = "acc = tl.where(cols[None, :] {sign} rows[:, None] + {diagonal}, acc, 0.0)"


def cut(x: torch.Tensor, triangle: Triangle | None) -> torch.Tensor:
    if triangle is None:
        return x
    return (torch.tril if triangle.lower else torch.triu)(x, triangle.diagonal)


@settings(max_examples=40, deadline=None, database=None, phases=[Phase.generate])
@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    of=st.sampled_from(["a", "b", "out", "ab", "about"]),
    lower=st.booleans(),
    diagonal=st.integers(-40, 40),
    layouts=st.tuples(st.sampled_from(["k", "m"]), st.sampled_from(["k", "n"])),
    batch_shape=st.sampled_from([(), (3,), (2, 3)]),
    form=st.sampled_from(
        [
            "plain",
            "half",
            "persist",
            "descriptors",
            "split",
            "transpose",
            "planes",
            "planes in the loop",
        ]
    ),
)
def triangles_are_right(
    sizes: tuple[int, int, int],
    of: str,
    lower: bool,
    diagonal: int,
    layouts: tuple[str, str],
    batch_shape: tuple[int, ...],
    form: str,
) -> None:
    """What is cut and what is not, in each other's way or not; of a triangle that has no element
    as well. What a step that is left out would read of the other operand may be NaN."""
    described = form == "descriptors"
    dtype = "float16" if described or form in ("half", "persist") else "float32"
    m, n, k = (8 * size for size in sizes) if described else sizes
    found = {
        name: Triangle(name, lower != (name == "b"), diagonal) if name in of else None  # type: ignore[arg-type]
        for name in ("a", "b", "out")
    }
    kind = getattr(torch, dtype)
    a = cut(torch.randn(*batch_shape, m, k, dtype=kind), found["a"])
    b = cut(torch.randn(*batch_shape, k, n, dtype=kind), found["b"])
    wanted = cut(a.double() @ b.double(), found["out"])
    terms = a.double().abs() @ b.double().abs()
    out = torch.full((*batch_shape, m, n), float("nan"), dtype=kind)
    epilogue = CUT.format(sign="<=" if lower else ">=", diagonal=diagonal)
    spec = GemmSpec(
        name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype=dtype,
        a_layout=layouts[0], b_layout=layouts[1], batch_dims=len(batch_shape),
        epilogue=(epilogue,) if found["out"] else (),
        triangles=tuple(item for item in found.values() if item),
    )  # fmt: skip
    schedule = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2, "num_warps": 4}
    schedule |= {"num_stages": 2, "SPLIT_K": 4 if form == "split" else 1}
    schedule |= {"PERSIST": 3} if described or form == "persist" else {}
    schedule |= {"DESCRIPTORS": 2} if described else {}
    schedule |= {"TRANSPOSE_A": 1, "TRANSPOSE_B": 1} if form == "transpose" else {}
    schedule |= {"PLANES": 1 + ("loop" in form)} if form.startswith("planes") else {}
    a = a if layouts[0] == "k" else a.mT.contiguous()
    b = b.mT.contiguous() if layouts[1] == "k" else b.contiguous()
    run_gemm(spec, schedule, {"a": a, "b": b, "out": out})
    check(out, wanted, dtype, terms)


def steps_outside_of_a_triangle_are_left_out() -> None:
    """NaN where only they read makes none, and is not missed where others do."""
    schedule = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 2, "num_warps": 4}
    for planes in (0, 1, 2):
        for of in ("a", "b", "out"):
            for lower in (True, False):
                a, b = torch.randn(64, 64), torch.randn(64, 64)
                triangle = Triangle(of, lower, 0)  # type: ignore[arg-type]
                if of == "a":
                    a = cut(a, triangle)
                    b[40 if lower else 20] = float("nan")
                    clean = (slice(0, 32), slice(None)) if lower else (slice(32, 64), slice(None))
                elif of == "b":
                    b = cut(b, triangle)
                    a[:, 20 if lower else 40] = float("nan")
                    clean = (slice(None), slice(32, 64)) if lower else (slice(None), slice(0, 32))
                else:
                    a[:], b[:] = float("nan"), float("nan")
                    clean = (
                        (slice(0, 16), slice(16, 64)) if lower else (slice(16, 64), slice(0, 16))
                    )
                out = torch.full((64, 64), float("inf"))
                spec = GemmSpec(
                    name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float32",
                    b_layout="n", triangles=(triangle,),
                )  # fmt: skip
                more = {"num_stages": 2, "PLANES": planes}
                run_gemm(spec, schedule | more, {"a": a, "b": b, "out": out})
                assert bool(out[clean].isfinite().all())
                assert bool(out.isnan().any())


def blocks_of_rows_too_wide_for_32_bits_are_marked() -> None:
    """Places in a block have 32 bits: of wider planes nothing holds, and nothing is written
    outside of them."""
    kernels = imported("\n\n\n".join(helper_sources(["split_block"])))
    for depth, size in ((300, 128 * 384), ((1 << 24) + 1, 128)):
        planes = torch.full((2, size + 1), 7.0, dtype=torch.float16)
        scale = torch.zeros(1)
        kernels.split_block[(1,)](
            torch.randn(128), planes, scale, 0, 0, 1, 1, 1, 0, 0, depth, K_INSIDE=True
        )
        assert (float(scale) > 0) is (depth == 300)
        assert bool((planes[:, size] == 7).all())


def a_row_far_below_its_block_is_no_row_of_zeros() -> None:
    """Divided by the block's scale it is 0; alone it is a result."""
    a, b = 2.0**43 * torch.randn(64, 64), 2.0**20 * torch.randn(64, 64)
    a[5] = 2.0**-124 * torch.randn(64)
    out = torch.zeros(64, 64)
    schedule = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2, "num_warps": 4}
    spec = GemmSpec(
        name="product", a="a", b="b", out="out", m="m", n="n", k="k", dtype="float32", b_layout="n"
    )
    run_gemm(spec, schedule | {"num_stages": 2, "PLANES": 1}, {"a": a, "b": b, "out": out})
    check(out[5], (a[5].double() @ b.double()), "float32")


def main() -> None:
    install_hooks()
    a_row_far_below_its_block_is_no_row_of_zeros()
    blocks_of_rows_too_wide_for_32_bits_are_marked()
    linear_is_right()
    pairs_are_right()
    two_weights_in_one_box_are_right()
    marked_blocks_of_either_weight_are_multiplied_exactly()
    strided_rows_are_read_in_place()
    planes_hold_what_they_say()
    tiles_in_halves_are_whole()
    descriptors_are_right()
    rows_that_begin_elsewhere_are_read_through_pointers()
    extreme_values_stay_finite()
    triangles_are_right()
    steps_outside_of_a_triangle_are_left_out()


if __name__ == "__main__":
    main()
