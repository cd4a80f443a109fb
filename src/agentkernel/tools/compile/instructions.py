"""Instruction counts of a kernel from its PTX: what it issues, and what it loads and stores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import cast

NOT_ISSUED = ("mov", "ret", "bra", "ld.param", "cvta", "bar.warp")
"""PTX that ptxas turns into nothing or nearly nothing."""
EXPANDED = {"div.full": 8, "div.rn": 10, "sqrt.rn": 8, "rcp.rn": 8, "sqrt.approx": 2}
"""SASS instructions of one PTX instruction (cross-compiled for sm_90), where it is not about 1."""
SPECIAL = ("ex2", "lg2", "sin", "cos", "rcp", "rsqrt", "sqrt", "div", "tanh")
"""What the special function units serve, a quarter of a warp a cycle."""
MATRIX = ("wgmma.mma_async", "mma.sync", "tcgen05.mma")
INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)[\s;]")
LABEL = re.compile(r"^(\$L\w+):")
TARGET = re.compile(r"\bbra(?:\.uni)?\s+(\$L\w+)")
VECTOR = re.compile(r"\.v(\d)\b")
BITS = re.compile(r"\.[bfsu](8|16|32|64|128)\b")


@dataclass(frozen=True)
class Count:
    """Instructions of one thread along a stretch of code, and bytes that it moves."""

    issued: int = 0
    special: int = 0
    matrix: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    loads: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.issued + other.issued, self.special + other.special, self.matrix + other.matrix,
            self.load_bytes + other.load_bytes, self.store_bytes + other.store_bytes,
            self.loads + other.loads,
        )  # fmt: skip

    def times(self, count: int) -> Count:
        """The stretch `count` times."""
        return Count(*(count * value for value in astuple(self)))


@dataclass(frozen=True)
class Instructions:
    """A kernel: what is outside of loops, and the innermost loops, one after the other."""

    straight: Count
    loops: tuple[Count, ...] = ()

    @property
    def matrix(self) -> int:
        """Matrix instructions."""
        return self.straight.matrix + sum(loop.matrix for loop in self.loops)


def instructions_from(described: Mapping[str, object]) -> Instructions:
    """The counts from what `dataclasses.asdict` made of them."""
    loops = cast("Sequence[Mapping[str, int]]", described["loops"])
    straight = Count(**cast("Mapping[str, int]", described["straight"]))
    return Instructions(straight, tuple(Count(**loop) for loop in loops))


def instructions_of(ptx: str) -> Instructions:
    """The counts of the one kernel that `ptx` holds."""
    lines = ptx.splitlines()
    loops = _innermost(list(_loops(lines)))
    inside = {place for loop in loops for place in range(*loop)}
    straight = [line for place, line in enumerate(lines) if place not in inside]
    return Instructions(_count(straight), tuple(_count(lines[slice(*loop)]) for loop in loops))


def _loops(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last line of what a backward branch repeats."""
    labels: dict[str, int] = {}
    for place, line in enumerate(lines):
        if (label := LABEL.match(line)) is not None:
            labels[label[1]] = place
        elif (jump := TARGET.search(line)) is not None and jump[1] in labels:
            yield labels[jump[1]], place + 1


def _innermost(loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [
        loop
        for loop in loops
        if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)
    ]


def _count(lines: Sequence[str]) -> Count:
    total = Count()
    for line in lines:
        found = INSTRUCTION.match(line)
        if found is not None and not found[1].startswith(NOT_ISSUED):
            total += _one(found[1])
    return total


def _one(name: str) -> Count:
    issued = next((many for start, many in EXPANDED.items() if name.startswith(start)), 1)
    count = Count(issued, int(name.startswith(SPECIAL)), int(name.startswith(MATRIX)))
    if name.startswith("ld.global"):
        return replace(count, load_bytes=_width(name), loads=1)
    if name.startswith("cp.async") and ".shared" in name and "group" not in name:
        return replace(count, load_bytes=16, loads=1)
    return replace(count, store_bytes=_width(name)) if name.startswith("st.global") else count


def _width(name: str) -> int:
    """Bytes of a thread's access: `ld.global.v4.b32` has 16."""
    vector, bits = VECTOR.search(name), BITS.search(name)
    return (int(vector[1]) if vector else 1) * (int(bits[1]) if bits else 32) // 8
