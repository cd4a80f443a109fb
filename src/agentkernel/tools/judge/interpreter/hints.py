"""What a kernel tells the compiler of its values, held against the values themselves.

`tl.multiple_of`, `tl.max_contiguous` and `tl.max_constancy` change nothing in the interpreter; the
compiler widens loads and stores by them, so that a false one is wrong on a GPU alone. The rules are
those of Triton's documentation of the three.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

KINDS = {
    "tt.divisibility": "multiple_of",
    "tt.contiguity": "max_contiguous",
    "tt.constancy": "max_constancy",
}
Values = npt.NDArray[np.generic]


def false_hint(kind: str, data: Values, values: Sequence[object], step: int) -> str | None:
    """The hint by name, where it is not so; None for one that holds and one that nobody knows.

    Args:
        kind: The attribute that the hint sets, `tt.divisibility` and the like.
        data: Integers, truth values or addresses, of any shape.
        values: The hint, one number for each dimension of `data`.
        step: What two neighbours differ by: 1, for addresses the bytes of an element.
    """
    if kind not in KINDS or data.dtype.kind not in "iub":
        return None
    lines = data.reshape(1) if data.ndim == 0 else data
    for axis, value in enumerate(values):
        if not isinstance(value, int) or value <= 1 or lines.size == 0:
            continue
        if not _holds(kind, np.moveaxis(lines, axis, -1).astype(np.int64), value, step):
            return f"{KINDS[kind]}({', '.join(map(str, values))})"
    return None


def _holds(kind: str, lines: npt.NDArray[np.int64], value: int, step: int) -> bool:
    """Along the last axis. A row's index that begins anew at 0, as after a modulo, breaks no run:
    Triton's own product of matrices says so of its last tile, whose lanes it masks."""
    differ = np.diff(lines, axis=-1)
    if kind == "tt.divisibility":
        starts = np.ones(lines.shape, dtype=bool)
        starts[..., 1:] = differ != step
        return not bool((lines[starts] % value).any())
    broken = differ != (step if kind == "tt.contiguity" else 0)
    if kind == "tt.contiguity":
        broken &= lines[..., 1:] != 0
    # Only breaks within a group of `value` count.
    return not bool(broken[..., np.arange(1, lines.shape[-1]) % value != 0].any())
