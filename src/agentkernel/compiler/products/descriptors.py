"""Tensor descriptors of a product: what TMA loads and stores, and where it may.

The kernel makes them (`tl.make_tensor_descriptor`), so that a launch gives tensors and numbers like
any other: every launch form keeps it, and the interpreter and the tracer see what they see of all
kernels. Triton asks an allocator for the 128 bytes that a program's descriptor takes.

TMA wants a base and rows that begin at multiples of 16 bytes. Whether they do is a constant of each
launch; where they do not, the same kernel reads through pointers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentkernel.compiler.products.spec import GATES, GemmSpec

HELPERS = frozenset(("scratch", "described"))
"""Functions beside the kernels that a launch with descriptors calls."""
NAMES = frozenset((
    "a_box", "b_box", "out_box", *(f"{gate}_box" for gate in GATES),
    "apart", "swapped", "far", "lower_ptr", "sums",
))  # fmt: skip
"""What an epilogue may not bind."""
MOST_COLUMNS = 256
"""Of what a warp group multiplies at once, and of a box."""
NUMBER_BYTES = 2
"""Of what descriptors load: numbers of 16 bits."""
FARTHEST = 2**40 // NUMBER_BYTES
"""Numbers: TMA's strides are below 2**40 bytes (CUDA's driver API, cuTensorMapEncodeTiled)."""
ALIGNED_OUT = 16
"""Columns of a result, of any type of at least 8 bits, in the 16 bytes where its rows begin."""


class _Side(NamedTuple):
    """An operand, its side of the product, the tile's side and place there."""

    name: str
    size: str
    block: str
    tile: str
    k_inside: bool

    def pair(self, outer: str, k: str) -> str:
        """Two things in the order in which the operand lies."""
        return f"[{outer}, {k}]" if self.k_inside else f"[{k}, {outer}]"


def _sides(spec: GemmSpec, k_inside: tuple[bool, bool]) -> list[_Side]:
    weights = [_Side(name, "N", "BLOCK_N", "tile_n", k_inside[1]) for name in spec.weights]
    return [_Side("a", "M", "BLOCK_M", "tile_m", k_inside[0]), *weights]


def operand_boxes(
    spec: GemmSpec,
    k_inside: tuple[bool, bool],
    *,
    weights_only: bool = False,
    joined: bool = False,
) -> list[str]:
    """Lines of the descriptors of A and the weights, `joined` in one; `k_inside`: of which of them
    K is inside."""
    lines = ["if DESCRIBED:"]
    sides = _sides(spec, k_inside)
    for side in sides[int(weights_only) : 1 if joined else len(sides)]:
        shape, box = side.pair(side.size, "K"), side.pair(side.block, "BLOCK_K")
        stride = "stride_a" if side.name == "a" else "stride_b"
        lines += [
            f"    {side.name}_box = tl.make_tensor_descriptor(",
            f"        {side.name}_ptr, {shape}, [{stride}, 1], {box}",
            "    )",
        ]
    return [*lines, *(joined_box() if joined else ())]


def load_lines(
    spec: GemmSpec, k_inside: tuple[bool, bool], tiles: Mapping[str, str], *, joined: bool = False
) -> list[str]:
    """Lines that load a step's tiles; `tiles`: a weight -> the kernel's name of its tile."""
    lines: list[str] = []
    sides = _sides(spec, k_inside)
    for side in sides[:1] if joined else sides:
        places = side.pair(f"{side.tile} * {side.block}", "k")
        turned = ".T" if side.k_inside != (side.name == "a") else ""
        lines.append(f"{tiles.get(side.name, 'a')} = {side.name}_box.load({places}){turned}")
    return [*lines, *((JOINED_LOAD,) if joined else ())]


def side_by_side(spec: GemmSpec, columns: int, *, k_inside: bool) -> bool:
    """Whether `columns` of each weight are one tile, as those of two may be: where K is outside,
    the tiles of a box would have to move in shared memory, and do so through registers."""
    return len(spec.weights) == 2 and k_inside and 2 * columns <= MOST_COLUMNS


def joined_box() -> list[str]:
    """Lines of one descriptor of two weights, slices of a matrix of three axes that begins with the
    lower of them: their tiles are multiplied as one, which reads A's once. Weights further apart
    than a stride of TMA's reaches give NaN, which nobody takes for a result. An H200, bf16, 4096
    rows, 4096 -> 11008 with SiLU: 918 us, as two products from descriptors 1161, cuBLAS's two
    without the gate 973."""
    return [
        "    # Both weights in one box: how many numbers one lies behind the other is a stride.",
        f"    apart = (second_ptr.to(tl.int64) - b_ptr.to(tl.int64)) // {NUMBER_BYTES}",
        "    swapped = apart < 0",
        "    apart = tl.abs(apart)",
        f"    far = apart >= {FARTHEST}",
        "    apart = tl.where(far, 0, apart)",
        "    lower_ptr = b_ptr",
        "    if swapped:",
        "        lower_ptr = second_ptr",
        "    b_box = tl.make_tensor_descriptor(",
        "        lower_ptr, [2, N, K], [apart, stride_b, 1], [2, BLOCK_N, BLOCK_K]",
        "    )",
    ]


JOINED_LOAD = "b = tl.reshape(b_box.load([0, tile_n * BLOCK_N, k]), (2 * BLOCK_N, BLOCK_K)).T"
"""The line that loads the tiles of both weights, side by side."""


def joined_end() -> list[str]:
    """Lines that take the sums of two weights apart."""
    return [
        "if DESCRIBED:",
        "    sums = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N)), (0, 2, 1))",
        "    acc, second = tl.split(sums)",
        "    if swapped:",
        "        acc, second = second, acc",
        "    if far:",
        '        acc, second = acc + float("nan"), second + float("nan")',
    ]


def result_box(halves: bool) -> list[str]:
    """Lines of the result's descriptor, of a tile or half of one."""
    box = f"[BLOCK_M, {'BLOCK_N // 2' if halves else 'BLOCK_N'}]"
    return [
        "if DESCRIBED_OUT:",
        f"    out_box = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], {box})",
    ]


def store_lines(by_pointers: str, halves: bool) -> list[str]:
    """Lines that store a tile, or half of one; `by_pointers`: the line that does without."""
    cols = f"tile_n * BLOCK_N{' + half * (BLOCK_N // 2)' if halves else ''}"
    return [
        "if DESCRIBED_OUT:",
        "    out_box.store(",
        f"        [tile_m * BLOCK_M, {cols}],",
        "        acc.to(out_ptr.dtype.element_ty),",
        "    )",
        "else:",
        f"    {by_pointers}",
    ]


def described_option(operands: Sequence[str]) -> str:
    """The constant that says whether TMA reads these operands, given by the wrapper's names."""
    return f"DESCRIBED=described({', '.join(operands)})"


def described_out_option(columns: Sequence[str]) -> str:
    """The constant that says whether TMA stores results of so many columns."""
    free = [n for n in dict.fromkeys(columns) if not n.isdigit()]
    if not all(int(n) % ALIGNED_OUT == 0 for n in columns if n.isdigit()):
        return "DESCRIBED_OUT=False"
    told = " and ".join(f"{n} % {ALIGNED_OUT} == 0" for n in free)
    return f"DESCRIBED_OUT={told or True}"
