"""What a convolution is asked to be: its geometry, its operands and its epilogue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.compiler.products.schedules import FloatType


def factor(size: str) -> str:
    """A size as it may stand in a product."""
    return size if size.replace("_", "").isalnum() else f"({size})"


INT32_LIMIT = 2**31 - 2**16
"""From here on elements are counted in 64 bits: a tile runs past the last one."""


def index_option(*counts: str) -> str:
    """A kernel's option of what elements are counted in, given what they may count to."""
    return f"INDEX=tl.int64 if max({', '.join(counts)}) > {INT32_LIMIT} else tl.int32"


def size_options(ins: Sequence[str], outs: Sequence[str]) -> list[str]:
    """The spatial sizes as a kernel's options."""
    pairs = (("IN", ins), ("OUT", outs))
    return [f"{side}_{dim}={size}" for side, every in pairs for dim, size in enumerate(every)]


COPIES = ("weight", "pack", "picture", "last")
"""Ends of the names of the copied weights, of their kernel, of the copied picture and of its."""


@dataclass(frozen=True)
class Geometry:
    """A convolution's constants, one entry a spatial dimension; PyTorch's definition of each.

    `padding` and `after` are the zeros at either end, of a `transposed` one what is cut off.
    `inside` and `outside` are the channels in and out of one group.

    `turned`: the weight lies as that of a transposed convolution, taps from last to first, which
    is what a transposed convolution of stride 1 comes to.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    inside: int
    outside: int
    transposed: bool = False
    turned: bool = False

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.kernel)

    @property
    def taps(self) -> int:
        """Places of the window."""
        return math.prod(self.kernel)

    def taps_after(self, dim: int) -> int:
        """Taps that the dimensions behind `dim` make."""
        return math.prod(self.kernel[dim + 1 :])

    @property
    def phases(self) -> int:
        """Residues of output places modulo the stride, which have taps of their own each: of a
        transposed convolution alone."""
        return math.prod(self.stride) if self.transposed else 1

    @property
    def is_patches(self) -> bool:
        """Whether windows lie side by side in the picture: every element is read once, and none is
        padding."""
        plain = not (self.transposed or self.turned) and self.groups == 1 and self.taps > 1
        whole = self.kernel == self.stride and not any((*self.padding, *self.after))
        return plain and whole and all(gap == 1 for gap in self.dilation)

    @property
    def is_depthwise(self) -> bool:
        """Whether every output channel reads one input channel."""
        return self.inside == 1 and not self.transposed and not self.turned


@dataclass(frozen=True)
class Pooling:
    """Windows of the result that a tile has whole: places of one along each dimension, and
    expressions in the wrapper of how many there are."""

    taps: tuple[int, ...]
    counts: tuple[str, ...]


@dataclass(frozen=True)
class ConvolutionSpec:
    """One convolution of contiguous [batch, channels, *in_sizes] to [batch, channels, *out_sizes].

    `x`, `weight`, `bias` and `out` are names in the wrapper (`bias` empty for none); `batch` and
    the sizes are expressions there. `epilogue` holds Triton lines that turn `acc`, fp32
    [BLOCK_M, BLOCK_N], into what is stored: rows are output channels, columns output places of one
    or more images. They may use `rows`, `cols` (the place within its image), `batch` (int64, one a
    column), `row_mask`, `col_mask`, `tile_mask`, `tile` (offsets into the result), `M` (channels),
    `N` (places of an image), and the `extras`: (parameter name, wrapper expression) pairs.
    """

    name: str
    geometry: Geometry
    dtype: FloatType
    x: str
    weight: str
    bias: str
    out: str
    batch: str
    in_sizes: tuple[str, ...]
    out_sizes: tuple[str, ...]
    epilogue: tuple[str, ...] = ()
    extras: tuple[tuple[str, str], ...] = ()
    store: bool = True
    """Whether `acc` is stored behind the epilogue; else the epilogue stores what it makes of it."""
    pooling: Pooling | None = None
    stem: str = ""
    """What the names of the copies and of their kernels begin with; `name` where it is empty."""

    def called(self, end: str) -> str:
        """The name of one of `COPIES`."""
        return f"{self.stem or self.name}_{end}"

    @property
    def rounding(self) -> str:
        """Whether fp32 operands round to TF32, as Python: on a GPU, where PyTorch's flag for
        convolutions says so."""
        return f'{self.x}.is_cuda and torch.backends.cudnn.conv.fp32_precision == "tf32"'

    @property
    def sizes(self) -> list[str]:
        """The spatial sizes as a kernel's options."""
        return size_options(self.in_sizes, self.out_sizes)
