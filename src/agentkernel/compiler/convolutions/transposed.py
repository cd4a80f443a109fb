"""Transposed convolutions as one dense convolution for each phase of the output's places.

A phase is the residue of a place modulo the stride: it has taps of its own. A program has one phase
of each dimension but the last, and all of the last one where they fit, so that neighbours are
stored together; what it reads of the picture is then added to every phase that a tap reaches from
there.

With stride s, dilation d, padding p and g = gcd(s, d), tap k brings x[i] to place i s + k d - p.
Place n s + r is reached where g divides r + p: by taps k = first + j s/g from i = n - j d/g +
(r + p - first d)/s, where first = (r + p)/g inverse(d/g) mod s/g.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentkernel.compiler.convolutions.implicit import Implicit
from agentkernel.compiler.convolutions.packing import PACKED
from agentkernel.compiler.convolutions.spec import factor

WEAVES = (2, 4, 8)
"""Strides whose phases can be joined in registers."""
LEAST_ROWS = 16
"""Rows of the least tile that is multiplied."""


class Transposed(Implicit):
    """The text of a transposed convolution under one schedule."""

    kind = "Transposed convolution"
    read_mask = "step_mask"

    @property
    def woven(self) -> int:
        """Phases of the last dimension that a program takes, so that neighbours are stored
        together: all of them where a tile can hold them side by side."""
        step = self.shape.stride[-1]
        fits = step in WEAVES and self.schedule["BLOCK_N"] >= LEAST_ROWS * step
        return step if fits else 1

    @property
    def _apart(self) -> list[int]:
        """Dimensions whose phases programs have apart."""
        return [dim for dim in self.dims if self.woven == 1 or dim != self.shape.rank - 1]

    def _sizes(self) -> list[str]:
        pairs = enumerate(self.shape.stride)
        steps = (f"(OUT_{dim} + {step - 1}) // {step}" for dim, step in pairs)
        return [
            *super()._sizes(),
            *(f"STEPS_{dim}: tl.constexpr = {count}" for dim, count in enumerate(steps)),
        ]

    def _places(self) -> list[str]:
        """Lines of the tile's channels, its phase, what it stores, and what it reads."""
        lines, apart = ["program = tl.program_id(0)"], self._programs()
        if apart > 1:
            lines += [f"phase = program % {apart}", f"program //= {apart}"]
        return [
            *lines,
            *self._channels(),
            *self._shifts(),
            *self._woven_places(),
            *self._steps(),
        ]

    def _programs(self) -> int:
        """A program for each phase that it does not share."""
        return self.shape.phases // self.woven

    def _stored(self) -> str:
        pairs = zip(self.spec.out_sizes, self.shape.stride, strict=True)
        places = " * ".join(f"triton.cdiv({size}, {step})" for size, step in pairs)
        return places + (f" * {self.woven}" if self.woven > 1 else "")

    def _more_places(self) -> Sequence[str]:
        return (f"{factor(self.spec.batch)} * {self._stored()}",)

    def _safe_start(self) -> str:
        text = str(self.packing.low(0))
        for dim in self.dims[1:]:
            text = f"({text}) * WIDE_{dim} + {self.packing.low(dim)}"
        return text

    def _shifts(self) -> list[str]:
        """Lines of the phase of a program: it has the places `step * stride + shift`, which tap
        `first` reaches, and each `_every`-th from there on."""
        shape, rest = self.shape, "phase"
        lines: list[str] = []
        for dim in reversed(self._apart):
            if shape.stride[dim] == 1:
                lines.append(f"shift_{dim} = 0")
                continue
            lines.append(f"shift_{dim} = {rest} % {shape.stride[dim]}")
            rest = f"{rest} // {shape.stride[dim]}"
        for dim in self._apart:
            s, d, every = shape.stride[dim], shape.dilation[dim], self._every(dim)
            common, reached = s // every, f"shift_{dim} + {shape.padding[dim]}"
            turn = pow(d // common, -1, every)
            first = f"({reached})" + (f" // {common}" if common > 1 else "")
            first += f" * {turn}" if turn > 1 else ""
            taps = f"({shape.kernel[dim] + every - 1} - first_{dim}) // {every}"
            if common > 1:
                taps = f"tl.where(({reached}) % {common} == 0, {taps}, 0)"
            lines += [f"first_{dim} = {first} % {every}", f"taps_{dim} = {taps}"]
        return lines

    def _every(self, dim: int) -> int:
        """How far apart the taps are that reach the same place."""
        return self.shape.stride[dim] // math.gcd(self.shape.stride[dim], self.shape.dilation[dim])

    def _lead_of(self, dim: int) -> str:
        """How much later than a step its first tap reads."""
        shape = self.shape
        later = f"shift_{dim} + {shape.padding[dim]}"
        if shape.dilation[dim] > 1:
            later += f" - first_{dim} * {shape.dilation[dim]}"
        return f"({later}) // {shape.stride[dim]}"

    def _woven_places(self) -> list[str]:
        """Lines of the places that are stored, those of the last dimension's phases in turn."""
        shape = self.shape
        sizes = [f"STEPS_{dim}" for dim in self.dims]
        sizes[-1] += f" * {self.woven}" if self.woven > 1 else ""
        lines = [
            f"COUNT: tl.constexpr = {' * '.join(sizes)}",
            "place = tile_n.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)",
            "batch = place // COUNT",
            "cols = (place % COUNT).to(tl.int32)",
            *self._split("cols", "out", sizes),
            *(f"out_{dim} = out_{dim} * {shape.stride[dim]} + shift_{dim}" for dim in self._apart),
            "col_mask = place < tl.cast(batches, INDEX) * COUNT",
            *(f"col_mask &= out_{dim} < OUT_{dim}" for dim in self.dims),
        ]
        return [*lines, f"cols = {self._flat('out', 'OUT')}"]

    def _steps(self) -> list[str]:
        """Lines of what is read: a step of each phase."""
        count = " * ".join(f"STEPS_{dim}" for dim in self.dims)
        block = f"BLOCK_N // {self.woven}" if self.woven > 1 else "BLOCK_N"
        return [
            f"step = tile_n.to(INDEX) * ({block}) + tl.arange(0, {block})",
            f"step_mask = step < tl.cast(batches, INDEX) * ({count})",
            f"picture = step // ({count})",
            f"step = (step % ({count})).to(tl.int32)",
            *self._split("step", "step", [f"STEPS_{dim}" for dim in self.dims]),
            *(
                f"at_{dim} = step_{dim} + {self._lead_of(dim)}{self._low(dim)}"
                for dim in self._apart
            ),
        ]

    def _taps(self, dim: int) -> str:
        return f"taps_{dim}"

    def _move(self, dim: int) -> str:
        far = self.shape.dilation[dim] * self._every(dim) // self.shape.stride[dim]
        return f"-tap_{dim}" if far == 1 else f"-tap_{dim} * {far}"

    @property
    def _edges(self) -> list[int]:
        return list(self.dims)

    @property
    def _by_bits(self) -> bool:
        """Never: the taps of a place depend on its phase."""
        return False

    def _turns(self, steps: int) -> str:
        blocks = " * ".join(f"taps_{dim}" for dim in self.dims)
        return blocks if steps == 1 else f"{blocks} * {steps}"

    def _number(self) -> list[str]:
        """The line of a phase's tap's number in the whole window."""
        shape = self.shape
        number = f"first_0 + tap_0 * {self._every(0)}"
        for dim in self.dims[1:]:
            own = f"first_{dim} + tap_{dim} * {self._every(dim)}"
            number = f"({number}) * {shape.kernel[dim]} + {own}"
        return [f"tap = {number}"]

    def _total(self) -> list[str]:
        """Lines of the sum of each phase that the program has, and of all together."""
        if self.woven == 1:
            return [*self._start_lines("picture"), *super()._total()]
        last = self.shape.rank - 1
        s, rows = self.shape.stride[-1], f"BLOCK_N // {self.woven}"
        lines = [
            f"acc_{shift} = tl.zeros(({rows}, BLOCK_M), dtype=tl.float32)" for shift in range(s)
        ]
        for offset, taps in sorted(self._neighbours().items()):
            lines += [
                f"at_{last} = step_{last} + {offset + self._lead(last)}",
                *self._start_lines("picture"),
                *self._woven_loop(taps),
            ]
        joined = _joined([f"acc_{shift}" for shift in range(s)])
        pairs = s.bit_length() - 1
        order = ", ".join(map(str, (1, 0, *range(2, 2 + pairs))))
        return [
            *lines,
            f"acc = tl.reshape(tl.permute({joined}, ({order})), (BLOCK_M, BLOCK_N))",
        ]

    def _neighbours(self) -> dict[int, list[tuple[int, int]]]:
        """How far from a step along the last dimension X is read -> the (phase, tap) that do."""
        shape = self.shape
        s, p, d = shape.stride[-1], shape.padding[-1], shape.dilation[-1]
        found: dict[int, list[tuple[int, int]]] = {}
        for shift in range(s):
            for tap in range(shape.kernel[-1]):
                offset, rest = divmod(shift + p - tap * d, s)
                if rest == 0:
                    found.setdefault(offset, []).append((shift, tap))
        return found

    def _woven_loop(self, taps: list[tuple[int, int]]) -> list[str]:
        """Lines that add to the sums of all phases what is read at one place of the last dimension:
        `taps` are the phases and their taps there."""
        shape, steps, last = self.shape, self.packing.steps, self.shape.rank - 1
        turns = " * ".join([*(f"taps_{dim}" for dim in self._apart), str(steps)])
        body, rest, number = [*self._block(steps)], "window", "0"
        for dim in reversed(self._apart):
            body.append(f"tap_{dim} = {rest}" + (f" % taps_{dim}" if dim else ""))
            rest = f"{rest} // taps_{dim}"
            body.append(f"move_{dim} = {self._move(dim)}")
        for dim in self._apart:
            own = f"first_{dim} + tap_{dim} * {self._every(dim)}"
            number = f"({number}) * {shape.kernel[dim]} + {own}" if dim else own
        body += [f"move_{last} = 0", f"number = ({number}) * {shape.kernel[-1]}"]
        body += self._packed_read() if self.packing.read == PACKED else self._read_as_it_lies()
        body += ["if TF32:", "    x = to_tf32(x)"] if self.rounds else []
        for shift, tap in taps:
            body += [
                f"w_ptrs = weight_ptr + ((number + {tap}) * M + rows) * {self.packing.depth}",
                "w = tl.load(w_ptrs[None, :] + ks[:, None])",
                *self._dot(f"acc_{shift}"),
            ]
        return [f"for turn in range({turns}):", *(f"    {line}" for line in body)]


def _joined(sums: list[str]) -> str:
    """Sums as one tensor whose last dimensions count them."""
    if len(sums) == 1:
        return sums[0]
    return f"tl.join({_joined(sums[::2])}, {_joined(sums[1::2])})"
