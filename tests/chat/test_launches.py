"""Does a block's width change in its own term of a grid, and in no other?"""

from __future__ import annotations

import ast

import pytest

from agentkernel.chat.knobs import changed
from agentkernel.chat.launches import NoChange, blocks_of, kernel_name, launches_of
from agentkernel.chat.requests import SetKnob
from tests.chat.test_knobs import node

KERNELS = """
@triton.jit
def mul_kernel(a_ptr, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M):
    tiles_n = tl.cdiv(N, BLOCK_N)
    program = tl.program_id(0)
    first_m = program // tiles_n * GROUP_M
    tile_m = first_m + program % tiles_n
    tile_n = program % tiles_n
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)


@triton.jit
def silu_kernel(x_ptr, n_rows, n_cols, BLOCK_M, BLOCK_N):
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    col = tl.arange(0, BLOCK_N)[None, :]


@triton.jit
def walk_kernel(x_ptr, n_cols, BLOCK_N):
    row = tl.program_id(0)
    for start in range(0, n_cols, BLOCK_N):
        col = start + tl.arange(0, BLOCK_N)
"""
PRODUCT = (
    "mul_kernel[({grid})](x, N=160, K=96, EVEN_K=True, BLOCK_M={m}, BLOCK_N={n}, BLOCK_K=16)\n"
)
ROWS = "silu_kernel[(-(-x_dim0 // 8),)](x, n_cols=160, BLOCK_M=8, BLOCK_N=256)\n"
WALK = "walk_kernel[(4096,)](x, BLOCK_N=256)\n"


def product(grid: str, m: int = 64, n: int = 64) -> str:
    return KERNELS + PRODUCT.format(grid=grid, m=m, n=n)


def grids(source: str) -> list[str]:
    return [ast.unparse(call.func.slice) for call in launches_of(ast.parse(source))]  # type: ignore[attr-defined]


def block(value: int, axis: str) -> SetKnob:
    return SetKnob.model_validate({"knob": "block", "value": value, "axis": axis})


@pytest.mark.parametrize(
    ("grid", "m", "n", "axis", "said"),
    [
        ("-(-m // 64) * -(-160 // 64),", 64, 64, "M", "-(-m // 32) * -(-160 // 64),"),
        ("-(-m // 64) * -(-160 // 64),", 64, 64, "N", "-(-m // 64) * -(-160 // 32),"),
        ("-(-m // 64) * -(-160 // 64),", 64, 64, "K", "-(-m // 64) * -(-160 // 64),"),
        ("-(-m // 64) * -(-64 // 64) * b, 4", 64, 64, "N", "-(-m // 64) * -(-64 // 32) * b, 4"),
        ("min(132, -(-m // 64) * -(-n // 64)),", 64, 64, "N",
         "min(132, -(-m // 64) * -(-n // 32)),"),
        ("-(-m // 64) * (-(-n // 64) + -(-k // 64)),", 64, 64, "N",
         "-(-m // 64) * (-(-n // 32) + -(-k // 32)),"),
        ("-(-m // 64) * (-(-n // 64) + -(-k // 64)),", 64, 64, "M",
         "-(-m // 32) * (-(-n // 64) + -(-k // 64)),"),
        ("triton.cdiv(b * m, 128) * 3,", 64, 128, "N", "triton.cdiv(b * m, 32) * 3,"),
        ("triton.cdiv(n, 128), triton.cdiv(m, 64)", 64, 128, "M",
         "triton.cdiv(n, 128), triton.cdiv(m, 32)"),
    ],
)  # fmt: skip
def test_the_term_of_a_block_alone_changes(grid: str, m: int, n: int, axis: str, said: str) -> None:
    found = changed(product(grid, m, n), node(), block(32, axis))
    assert grids(found) == [ast.unparse(ast.parse(f"({said})", mode="eval"))]
    width = {"M": (32, n, 16), "N": (m, 32, 16), "K": (m, n, 32)}[axis]
    assert tuple(blocks_of(launches_of(ast.parse(found))[0]).values()) == width


@pytest.mark.parametrize(
    ("grid", "m", "n", "axis"),
    [
        ("triton.cdiv(b * m, 64) * 3,", 64, 64, "N"),  # M's count is worked out
        ("triton.cdiv(b * m, 128) * 3,", 64, 128, "M"),
        ("triton.cdiv(n, 64), triton.cdiv(m, 64)", 64, 64, "M"),
        ("m // 64 * -(-n // 64),", 64, 64, "M"),
        ("tiles,", 64, 64, "M"),
        ("15,", 64, 64, "N"),
    ],
)
def test_a_term_that_cannot_be_told_is_refused_in_a_line(
    grid: str, m: int, n: int, axis: str
) -> None:
    with pytest.raises(NoChange, match=r"^Which part of the grid of mul_kernel .* nothing") as why:
        changed(product(grid, m, n), node(), block(32, axis))
    assert "\n" not in str(why.value)


def test_each_launch_has_widths_of_its_own() -> None:
    text = product("-(-m // 64) * -(-160 // 64),") + ROWS
    found = changed(text, node(), block(32, "M"))
    assert grids(found) == ["(-(-m // 32) * -(-160 // 64),)", "(-(-x_dim0 // 32),)"]
    assert grids(changed(text, node(), block(32, "N"))) == [
        "(-(-m // 64) * -(-160 // 32),)",
        "(-(-x_dim0 // 8),)",
    ]
    wider = changed(text, node(), SetKnob(knob="block", more=True, axis="M"))
    assert grids(wider) == ["(-(-m // 128) * -(-160 // 64),)", "(-(-x_dim0 // 16),)"]


def test_a_grid_of_rows_does_not_count_in_a_block_that_walks_over_them() -> None:
    found = changed(KERNELS + WALK, node(), block(512, "N"))
    assert found == KERNELS + WALK.replace("256", "512")


def test_a_tile_that_is_the_only_one_keeps_its_width() -> None:
    text = product("triton.cdiv(n, 64) * 1,").replace(
        "tile_m = first_m + program % tiles_n", "tile_m = 0"
    )
    with pytest.raises(NoChange, match="written for one BLOCK_M that holds all of it"):
        changed(text, node(), block(16, "M"))
    assert grids(changed(text, node(), block(32, "N"))) == ["(triton.cdiv(n, 32) * 1,)"]


def test_the_mask_of_k_comes_back_where_the_block_no_longer_divides_it() -> None:
    text = product("-(-m // 64) * -(-160 // 64),")
    assert "EVEN_K=False" in changed(text, node(), block(64, "K"))
    assert "EVEN_K=True" in changed(text, node(), block(32, "K"))
    free = text.replace("EVEN_K=True", "EVEN_K=k % 16 == 0")
    assert "EVEN_K=k % 64 == 0" in changed(free, node(), block(64, "K"))
    with pytest.raises(NoChange, match="divides K in mul_kernel cannot be told"):
        changed(text.replace("EVEN_K=True", "EVEN_K=even"), node(), block(64, "K"))


def test_operands_that_were_split_in_blocks_before_are_left_alone() -> None:
    text = product("-(-m // 64) * -(-160 // 64),").replace("(x, N", "(x, a_planes, N")
    with pytest.raises(NoChange, match="split in blocks of this width before"):
        changed(text, node(), block(32, "M"))


def test_a_launch_names_its_kernel() -> None:
    calls = launches_of(ast.parse("a[(1,)](x)\nself.b[(1,)](x)\nc(x)\na[(2,)](x)\n"))
    assert [kernel_name(call) for call in calls] == ["a", "b", "a"]
    assert len(launches_of(ast.parse("a[(1,)](x)\nb[(1,)](x)\n"), ("b",))) == 1


UNMASKED = """
@triton.jit
def norm_kernel(x_ptr, y_ptr, n_cols: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + row * n_cols + col)
    tl.store(y_ptr + row * n_cols + col, x * tl.rsqrt(tl.sum(x * x, axis=0)))


norm_kernel[(x_dim0,)](x, y, n_cols=4096, BLOCK_N=4096, num_warps=8)
"""
MASKED = UNMASKED.replace("col)\n", "col, mask=col < n_cols)\n").replace("4096", "3000").replace(
    "BLOCK_N=3000", "BLOCK_N=4096"
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "width", "said"),
    [
        (UNMASKED, 512, "a row of 4096 must fit into it, and 512 is less"),
        (UNMASKED, 8192, "it reads without a mask, and 8192 reads past the row of 4096"),
        (MASKED, 2048, "a row of 3000 must fit into it, and 2048 is less"),
    ],
)
def test_a_row_that_is_held_whole_must_fit_the_block(text: str, width: int, said: str) -> None:
    with pytest.raises(NoChange, match=said) as why:
        changed(text, node(), SetKnob(knob="block", value=width))
    assert str(why.value).startswith("norm_kernel holds a whole row in its BLOCK_N")
    assert "'use 4 warps'" in str(why.value)


def test_a_row_that_fits_or_is_walked_over_is_judged() -> None:
    assert "BLOCK_N=8192" in changed(MASKED, node(), SetKnob(knob="block", more=True))
    walked = UNMASKED.replace(
        "    x = tl.load(x_ptr + row * n_cols + col)",
        "    for start in range(0, n_cols, BLOCK_N):\n        x = tl.load(x_ptr + start + col)",
    )
    assert "BLOCK_N=512" in changed(walked, node(), SetKnob(knob="block", value=512))
