"""Convolutions of one input channel an output channel: sums over the window, in registers.

A program has BLOCK_C planes of the result, BLOCK_X places along their rows and ROWS rows of it:
each element of x that it reads serves all rows whose window holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentkernel.compiler.convolutions.spec import (
    ConvolutionSpec,
    factor,
    index_option,
    size_options,
)
from agentkernel.compiler.products.spec import KernelText, call_lines, function


def emit_depthwise(spec: ConvolutionSpec, schedule: Mapping[str, int]) -> KernelText:
    """The kernel under `schedule`, with the wrapper's lines. Of one spatial dimension or two."""
    text = _Depthwise(spec, schedule)
    return KernelText(text.source(), (spec.name,), tuple(text.launch()))


class _Depthwise:
    def __init__(self, spec: ConvolutionSpec, schedule: Mapping[str, int]) -> None:
        self.spec, self.schedule, self.shape = spec, schedule, spec.geometry
        # A convolution along one dimension is one over pictures of one row.
        two = self.shape.rank == 2
        self.kernel = self.shape.kernel if two else (1, *self.shape.kernel)
        self.stride = self.shape.stride if two else (1, *self.shape.stride)
        self.padding = self.shape.padding if two else (0, *self.shape.padding)
        self.dilation = self.shape.dilation if two else (1, *self.shape.dilation)
        self.rows = schedule["ROWS"] if two else 1

    def source(self) -> str:
        spec = self.spec
        fixed = ["IN_0", "IN_1", "OUT_0", "OUT_1", "INDEX", "BLOCK_C", "BLOCK_X"]
        signature = [
            "x_ptr", "weight_ptr", *(["bias_ptr"] if spec.bias else []), "out_ptr",
            *(name for name, _ in spec.extras), "planes",
            *(f"{name}: tl.constexpr" for name in fixed),
        ]  # fmt: skip
        lines = [
            f'"""Depthwise convolution, {self.rows} rows a program, with its epilogue."""',
            f"M: tl.constexpr = {self.shape.groups * self.shape.outside}",
            "N: tl.constexpr = OUT_0 * OUT_1",
            f"row_tiles: tl.constexpr = (OUT_0 + {self.rows - 1}) // {self.rows}",
            "tiles: tl.constexpr = (OUT_1 + BLOCK_X - 1) // BLOCK_X",
            "tile_x = tl.program_id(0) % tiles",
            "program = tl.program_id(0) // tiles",
            f"first = program % row_tiles * {self.rows}",
            "plane = (program // row_tiles).to(INDEX) * BLOCK_C + tl.arange(0, BLOCK_C)",
            "plane_mask = plane < planes",
            "batch = (plane // M)[:, None].to(tl.int64)",
            "rows = (plane % M).to(tl.int32)",
            "out_1 = tile_x * BLOCK_X + tl.arange(0, BLOCK_X)",
            f"at_0 = first * {self.stride[0]} - {self.padding[0]}",
            f"at_1 = out_1 * {self.stride[1]} - {self.padding[1]}",
            f"read = {self._plane()} * (IN_0 * IN_1)",
            "start = read[:, None] + (at_0 * IN_1 + at_1)[None, :]",
            *(f"inside_{x} = {self._inside(x)}" for x in range(self.kernel[1])),
            *self._weights(),
            *(f"sum_{row} = tl.zeros((BLOCK_C, BLOCK_X), tl.float32)" for row in range(self.rows)),
            *self._sums(),
            *self._end(),
        ]
        return function(spec.name, signature, lines)

    def _plane(self) -> str:
        """The plane of x that a plane of the result reads."""
        if self.shape.outside == 1:
            return "plane"
        return f"plane // {self.shape.outside}"

    def _inside(self, x: int) -> str:
        at = f"at_1 + {x * self.dilation[1]}" if x else "at_1"
        return f"plane_mask[:, None] & (({at} >= 0) & ({at} < IN_1))[None, :]"

    def _weights(self) -> Iterator[str]:
        taps = self.shape.taps
        for tap in range(taps):
            yield (f"w_{tap} = tl.load(weight_ptr + rows * {taps} + {tap})[:, None].to(tl.float32)")

    def _reads(self) -> dict[int, list[tuple[int, int]]]:
        """How far below `at_0` a row of x lies -> the (row of the result, tap row) that read it."""
        found: dict[int, list[tuple[int, int]]] = {}
        for row in range(self.rows):
            for tap in range(self.kernel[0]):
                below = row * self.stride[0] + tap * self.dilation[0]
                found.setdefault(below, []).append((row, tap))
        return found

    def _sums(self) -> Iterator[str]:
        for below, users in sorted(self._reads().items()):
            yield f"y = at_0 + {below} + tl.zeros((1, 1), tl.int32)"
            yield "near = (y >= 0) & (y < IN_0)"
            for x in range(self.kernel[1]):
                far = f"{below} * IN_1 + {x * self.dilation[1]}"
                yield (
                    f"x = tl.load(x_ptr + (start + ({far})), mask=inside_{x} & near, other=0.0)"
                    ".to(tl.float32)"
                )
                for row, tap in users:
                    yield f"sum_{row} += x * w_{tap * self.kernel[1] + x}"

    def _end(self) -> Iterator[str]:
        if self.spec.bias:
            yield "bias = tl.load(bias_ptr + rows)[:, None].to(tl.float32)"
        for row in range(self.rows):
            yield f"acc = sum_{row} + bias" if self.spec.bias else f"acc = sum_{row}"
            yield f"out_0 = first + {row} + tl.zeros((BLOCK_X,), tl.int32)"
            yield "cols = out_0 * OUT_1 + out_1"
            yield "col_mask = (out_0 < OUT_0) & (out_1 < OUT_1)"
            yield "row_mask = plane_mask"
            yield "tile_mask = row_mask[:, None] & col_mask[None, :]"
            yield "tile = plane.to(tl.int64)[:, None] * N + cols[None, :]"
            yield from self.spec.epilogue
            yield "tl.store(out_ptr + tile, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)"

    def launch(self) -> list[str]:
        spec, schedule = self.spec, self.schedule
        channels = self.shape.groups * self.shape.outside
        outs = spec.out_sizes if self.shape.rank == 2 else ("1", *spec.out_sizes)
        ins = spec.in_sizes if self.shape.rank == 2 else ("1", *spec.in_sizes)
        planes = f"{factor(spec.batch)} * {channels}"
        grid = (
            f"triton.cdiv({planes}, {schedule['BLOCK_C']}) * triton.cdiv({outs[0]}, {self.rows})"
            f" * triton.cdiv({outs[1]}, {schedule['BLOCK_X']}),"
        )
        arguments = [
            spec.x, spec.weight, *([spec.bias] if spec.bias else []), spec.out,
            *(value for _, value in spec.extras), planes,
        ]  # fmt: skip
        options = size_options(ins, outs)
        options.append(index_option(f"{spec.x}.numel()", f"{spec.out}.numel()"))
        options += [f"{name}={schedule[name]}" for name in ("BLOCK_C", "BLOCK_X", "num_warps")]
        return call_lines(spec.name, grid, arguments, options)
