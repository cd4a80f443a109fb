"""Recurrent layers as one launch for each step through time, in which all layers of a stack work.

At launch d layer l does its step d - l: it needs its own state of the launch before and the state
that the layer below made then (Appleyard et al., "Optimizing Performance of Recurrent Neural
Networks on GPUs", 2016). T steps of L layers are T + L - 1 launches. Layers that run in both
directions have no such order; their two directions share the launches.

What a stack's first layer makes of its inputs is one product for all steps, outside of these
kernels. States are kept twice, by the parity of the launch: nobody reads what another program of
the same launch writes. Cells and sums are fp32.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentkernel.compiler.axes import contiguous_strides
from agentkernel.compiler.expressions import Symbols, tiles_text
from agentkernel.compiler.fusion import LibraryStep, Partition
from agentkernel.compiler.ir import Expr, Node, Shape, roots_of
from agentkernel.compiler.products.gemm import dot_precision
from agentkernel.compiler.products.schedules import ITEM_BYTES, FloatType
from agentkernel.compiler.products.spec import KernelText, call_lines, function
from agentkernel.compiler.sampling import Point, drawn
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Precision

RECURRENCE = "recurrence"
Cell = Literal["lstm", "gru", "tanh", "relu"]
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
"""Sets of rows of a cell's weights."""


@dataclass(frozen=True)
class Recurrence:
    """`layers` of one direction, or one layer of two `directions`; `biased`, with both biases."""

    cell: Cell
    layers: int
    directions: Literal[1, 2]
    biased: bool
    batch_first: bool

    @property
    def slots(self) -> int:
        """States beside each other: of the layers, or of the directions."""
        return self.layers * self.directions

    @property
    def lanes(self) -> int:
        """Columns of a tile for each unit: one a set of rows of the weights, a power of two."""
        return 1 if GATES[self.cell] == 1 else 4


@dataclass(frozen=True, eq=False)
class RecurrenceStep:
    """The steps of recurrent layers through time; `parts` are the results that are read."""

    node: Node
    parts: tuple[Node, ...]
    time_outside: bool
    """Whether the outputs lie in memory step after step."""

    @property
    def form(self) -> Recurrence:
        """What is stepped through."""
        (form,) = self.node.attrs
        assert isinstance(form, Recurrence)
        return form

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        return roots_of(self.node.args)

    @property
    def sizes(self) -> tuple[Expr, Expr, Expr]:
        """Steps, sequences and units of a state."""
        steps, batch, wide = self.node.shape
        if self.form.batch_first:
            steps, batch = batch, steps
        return steps, batch, wide / self.form.directions

    def launches(self, symbols: Symbols) -> int:
        """Launches of the kernel."""
        return symbols.hint(self.sizes[0]) + self.form.layers - 1

    def weight_bytes(self, symbols: Symbols) -> int:
        """Bytes of the weights that a launch reads."""
        form, units = self.form, symbols.hint(self.sizes[2])
        matrices = form.slots + form.layers - 1 if form.directions == 1 else form.slots
        return matrices * GATES[form.cell] * units * units * self.node.dtype.itemsize

    def strides(self, part: Node) -> Shape:
        """Elements from one position of a result to the next along each dimension."""
        if part.attrs[0] == 0 and self.form.batch_first and self.time_outside:
            rows, steps, wide = part.shape
            step, row, inner = contiguous_strides((steps, rows, wide))
            return (row, step, inner)
        return contiguous_strides(part.shape)


def with_recurrences(partition: Partition) -> Partition:
    """Recurrence nodes as steps of their own, outputs that forward returns as eager has them."""
    returned = {output.node for output in partition.outputs}
    return partition.with_calls(
        RECURRENCE,
        lambda step: RecurrenceStep(step.node, step.parts, _time_outside(step, returned)),
    )


def _time_outside(step: LibraryStep, returned: Container[Node]) -> bool:
    form = step.node.attrs[0]
    assert isinstance(form, Recurrence)
    outputs = (part for part in step.parts if part.attrs[0] == 0)
    return not form.batch_first or any(part in returned for part in outputs)


MOST_DRAWN = 24
MOST_SUMS = 64
"""fp32 sums of a thread, of 255 registers, beside the operands of their products."""
MOST_HELD: dict[FloatType, int] = {"float32": 48, "float16": 192, "bfloat16": 192}
"""Elements of both operands a thread, which warps have in registers, fp32 in two parts."""


def recurrence_schedules(
    step: RecurrenceStep, dtype: FloatType, symbols: Symbols, target: Target, sampled: int
) -> list[dict[str, int]]:
    """BLOCK_B sequences, BLOCK_H units, BLOCK_K, num_warps and num_stages; the first guess has as
    many programs as the card has SMs, or nearly: a launch is over when the slowest has read its
    part of the weights."""
    batch, units = (symbols.hint(size) for size in step.sizes[1:])
    form, shared = step.form, target.shared_kb_per_block.value * 1024
    axes = {
        "BLOCK_B": [size for size in (16, 32, 64, 128) if size == 16 or size < 2 * batch],
        "BLOCK_H": [size for size in (4, 8, 16, 32, 64) if size <= 16 or size < 2 * units],
        "BLOCK_K": [size for size in (32, 64, 128, 256) if size == 32 or size < 2 * units],
        "num_warps": [2, 4, 8],
        "num_stages": [2, 3, 4],
    }

    def fits(point: Point) -> bool:
        wide, threads = point["BLOCK_H"] * form.lanes, 32 * point["num_warps"]
        operands = (point["BLOCK_B"] + wide) * point["BLOCK_K"]
        few = point["BLOCK_B"] * wide <= MOST_SUMS * threads
        few = few and operands <= MOST_HELD[dtype] * threads and wide >= 16
        return few and point["num_stages"] * operands * ITEM_BYTES[dtype] <= shared

    def idle(point: Point) -> tuple[float, ...]:
        programs = form.slots * -(-units // point["BLOCK_H"]) * -(-batch // point["BLOCK_B"])
        waves = -(-programs // target.sm_count.value)
        read = waves * point["BLOCK_H"] * units + waves * point["BLOCK_B"] * units
        near = (128, 4, 3)  # of 32 and 64 the longer was the faster, 408 and 375 us (H200)
        apart = abs(point["BLOCK_K"] - near[0]) / 64 + abs(point["num_warps"] - near[1]) / 4
        return (read, apart + abs(point["num_stages"] - near[2]), programs)

    every = drawn(axes, fits, 1 << 16)
    every.sort(key=idle)
    exact = {"IEEE": 1} if target.vendor == "amd" else {}
    best, rest = every[:8], every[8:]
    more = drawn({"at": range(len(rest))}, lambda _: True, min(sampled, MOST_DRAWN)) if rest else []
    return [dict(point) | exact for point in (*best, *(rest[item["at"]] for item in more))]


class TensorNames(NamedTuple):
    """What the wrapper calls a recurrence's operands and results; empty where nobody reads one."""

    gates: tuple[str, ...]
    states: str
    cells: str
    output: str
    last: str
    last_cells: str
    weights: tuple[str, ...]
    """Of each slot: of its input and of its state, then their biases, without those of the input
    where `gates` have them."""


@dataclass(frozen=True)
class RecurrenceSpec:
    """One recurrence: `steps` and `batch` are the wrapper's expressions of its sizes."""

    name: str
    form: Recurrence
    units: int
    steps: str
    batch: str
    dtype: FloatType
    precision: Precision
    names: TensorNames
    time_outside: bool
    """Whether outputs lie step after step; gates do where the inputs do."""


def weight_names(form: Recurrence) -> tuple[str, ...]:
    """Names of the weights that the steps read, in the order of the node's operands: of each slot
    those for what comes from below, where it comes from another slot, and for its own state."""
    ends = ("", "_bias") if form.biased else ("",)
    return tuple(
        f"{source}{end}_{slot}"
        for slot in range(form.slots)
        for end in ends
        for source in ("below", "own")
        if source == "own" or slot >= form.directions
    )


def emit_recurrence(spec: RecurrenceSpec, schedule: dict[str, int]) -> KernelText:
    """The kernel of one step and the loop that launches it."""
    helpers = {"lstm": ("sigmoid", "tanh"), "gru": ("sigmoid", "tanh"), "tanh": ("tanh",)}
    text = _Text(spec, schedule)
    return KernelText(
        text.source(), (spec.name,), tuple(text.launch()),
        frozenset(helpers.get(spec.form.cell, ())),
    )  # fmt: skip


@dataclass(frozen=True)
class _Text:
    """The text of one recurrence under one schedule."""

    spec: RecurrenceSpec
    schedule: dict[str, int]

    def launch(self) -> Iterator[str]:
        spec, form, names = self.spec, self.spec.form, self.spec.names
        blocks = -(-spec.units // self.schedule["BLOCK_H"])
        grid = f"{form.slots * blocks}, {tiles_text(spec.batch, self.schedule['BLOCK_B'])}"
        given = [
            *names.gates,
            names.states,
            names.cells,
            names.output,
            names.last,
            names.last_cells,
        ]
        options = [f"{key}={value}" for key, value in self.schedule.items() if key != "IEEE"]
        count = spec.steps if form.layers == 1 else f"{spec.steps} + {form.layers - 1}"
        # Odd numbers above 1 are one kind of number to Triton's compiler, others are three.
        yield f"for turn in range(3, 2 * ({count}) + 3, 2):"
        arguments = [*filter(None, given), *names.weights, "turn", spec.steps, spec.batch]
        for line in call_lines(spec.name, grid, arguments, options):
            yield f"    {line}"

    def source(self) -> str:
        spec, form, names = self.spec, self.spec.form, self.spec.names
        results = (
            ("cells_ptr", names.cells), ("output_ptr", names.output), ("last_ptr", names.last),
            ("last_cells_ptr", names.last_cells),
        )  # fmt: skip
        signature = [
            *self._gates, "states_ptr", *(name for name, given in results if given),
            *(f"{name}_ptr" for name in weight_names(form)), "turn", "steps", "batch",
            *(f"{name}: tl.constexpr" for name in ("BLOCK_B", "BLOCK_H", "BLOCK_K")),
        ]  # fmt: skip
        work = [*self._pointers(), *self._sums(), "", *self._cell()]
        if form.layers > 1:
            inside = (f"    {line}" if line else "" for line in work)
            work = ["if (step >= 0) & (step < steps):", *inside]
        return function(spec.name, signature, [*self._places(), *work])

    @property
    def _gates(self) -> list[str]:
        both = self.spec.form.directions == 2
        return ["gates_0_ptr", "gates_1_ptr"] if both else ["gates_ptr"]

    def _places(self) -> Iterator[str]:
        """Lines of the program's slot, its sequences, units and step."""
        form = self.spec.form
        name = {"lstm": "an LSTM", "gru": "a GRU"}.get(form.cell, f"an RNN with {form.cell}")
        what = "Step `launch - slot` of each layer of" if form.layers > 1 else "One step of"
        yield f'"""{what} {name}{" in both directions" if form.directions == 2 else ""}."""'
        yield f"UNITS: tl.constexpr = {self.spec.units}"
        yield "BLOCKS: tl.constexpr = (UNITS + BLOCK_H - 1) // BLOCK_H"
        if form.slots > 1:
            yield "slot = tl.program_id(0) // BLOCKS"
        lanes, gates = form.lanes, GATES[form.cell]
        yield "first = tl.program_id(0) % BLOCKS * BLOCK_H"
        yield "units = first + tl.arange(0, BLOCK_H)[None, :]"
        if lanes == 1:
            yield "ids = first + tl.arange(0, BLOCK_H)"
            yield "id_mask = ids < UNITS"
        else:
            yield f"lanes = tl.arange(0, BLOCK_H * {lanes})"
            yield f"ids = lanes % {lanes} * UNITS + first + lanes // {lanes}"
            less = f" & (lanes % {lanes} < {gates})" if gates < lanes else ""
            yield f"id_mask = (first + lanes // {lanes} < UNITS){less}"
        yield "rows = (tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)).to(tl.int64)[:, None]"
        yield "row_mask = rows < batch"
        yield "mask = row_mask & (units < UNITS)"
        yield "launch = (turn - 3) // 2"
        yield f"step = launch{' - slot' if form.layers > 1 else ''}"
        if form.directions == 2:
            yield "time = tl.where(slot == 0, step, steps - 1 - step)"

    def _pointers(self) -> Iterator[str]:
        """Lines that pick what the slot reads, and where its states lie."""
        form = self.spec.form
        slot = " + slot" if form.slots > 1 else ""
        yield "plane = tl.cast(batch, tl.int64) * UNITS"
        yield f"before = states_ptr + ((launch + 1) % 2 * {form.slots}{slot}) * plane"
        yield f"after = states_ptr + (launch % 2 * {form.slots}{slot}) * plane"
        if form.directions == 2:
            yield from _picked(["gates"], 0, 2)
        yield from _picked(self._kinds("own"), 0, form.slots)

    def _kinds(self, source: str) -> list[str]:
        return [source, f"{source}_bias"] if self.spec.form.biased else [source]

    def _sums(self) -> Iterator[str]:
        """Lines that add up, for each set of the weights' rows, what comes from the input and from
        the layer's own state: in `total`, of a GRU the latter in `own_total`."""
        form = self.spec.form
        gates = "gates" if form.directions == 2 else "gates_ptr"
        row = self._row(time_outside=not form.batch_first)
        zeros = f"tl.zeros((BLOCK_B, BLOCK_H * {form.lanes}), tl.float32)"
        given = [
            f"given = {gates} + ({row}) * ({GATES[form.cell]} * UNITS) + ids[None, :]",
            "total = tl.load(given, mask=row_mask & id_mask[None, :], other=0.0).to(tl.float32)",
        ]
        if form.layers == 1:
            yield from given
        else:
            yield "if slot == 0:"
            yield from (f"    {line}" for line in given)
            yield "else:"
            yield from (f"    {line}" for line in _picked(self._kinds("below"), 1, form.slots))
            yield f"    total = {zeros}"
            yield from (
                f"    {line}" for line in self._products("below", "before - plane", "total")
            )
        total = "total"
        if form.cell == "gru":
            total = "own_total"
            yield f"own_total = {zeros}"
        yield from self._products("own", "before", total)

    def _row(self, *, time_outside: bool) -> str:
        """Which of all rows of gates, or of outputs, the program's are."""
        time = "time" if self.spec.form.directions == 2 else "step"
        if not time_outside:
            return f"rows * steps + {time}"
        return f"tl.cast({time}, tl.int64) * batch + rows"

    def _products(self, source: str, states: str, total: str) -> Iterator[str]:
        """Lines that add the products of a weight and `states`, and the bias, to `total`."""
        spec = self.spec
        exact = dot_precision(spec.precision, "amd" if self.schedule.get("IEEE") else "nvidia")
        how = f', input_precision="{exact}"' if spec.dtype == "float32" else ""
        masks = ["row_mask", "id_mask[None, :]"]
        if spec.units % self.schedule["BLOCK_K"]:
            masks = ["row_mask & (ks < UNITS)[None, :]", "id_mask[None, :] & (ks < UNITS)[:, None]"]
        if spec.form.biased:
            bias = f"tl.load({source}_bias + ids, mask=id_mask, other=0.0)"
            yield f"{total} += {bias}.to(tl.float32)[None, :]"
        yield "for k in range(0, UNITS, BLOCK_K):"
        yield "    ks = k + tl.arange(0, BLOCK_K)"
        yield f"    x = tl.load({states} + rows * UNITS + ks[None, :], mask={masks[0]}, other=0.0)"
        place = f"{source} + ids[None, :] * UNITS + ks[:, None]"
        yield f"    weight = tl.load({place}, mask={masks[1]}, other=0.0)"
        yield f"    {total} = tl.dot(x, weight, {total}{how})"

    def _cell(self) -> Iterator[str]:
        """Lines from the sums to the new state, and its stores."""
        form, names = self.spec.form, self.spec.names
        yield "place = rows * UNITS + units"
        if form.cell == "lstm":
            slot = "slot * plane + " if form.slots > 1 else ""
            yield from _by_lanes("total", third="candidate")
            yield from _by_lanes("sigmoid(total)", "enter", "forget", fourth="leave")
            yield f"cells = cells_ptr + {slot}place"
            yield "cell = forget * tl.load(cells, mask=mask, other=0.0) + enter * tanh(candidate)"
            yield "tl.store(cells, cell, mask=mask)"
            yield "state = leave * tanh(cell)"
        elif form.cell == "gru":
            yield from _by_lanes("total", third="candidate")
            yield from _by_lanes("own_total", third="own_candidate")
            yield from _by_lanes("sigmoid(total + own_total)", "reset", "update")
            yield "old = tl.load(before + place, mask=mask, other=0.0).to(tl.float32)"
            yield "candidate = tanh(candidate + reset * own_candidate)"
            yield "state = candidate + update * (old - candidate)"
        elif form.cell == "tanh":
            yield "state = tanh(total)"
        else:
            yield "state = tl.where(total < 0.0, 0.0, total)"
        yield "tl.store(after + place, state, mask=mask)"
        if names.output:
            yield from self._output()
        slot = "slot * plane + " if form.slots > 1 else ""
        if names.last or names.last_cells:
            yield "if step == steps - 1:"
        if names.last:
            yield f"    tl.store(last_ptr + {slot}place, state, mask=mask)"
        if names.last_cells:
            yield f"    tl.store(last_cells_ptr + {slot}place, cell, mask=mask)"

    def _output(self) -> Iterator[str]:
        """Lines that store the state of the last layer among the outputs."""
        form = self.spec.form
        both = form.directions == 2
        wide = "(2 * UNITS) + slot * UNITS" if both else "UNITS"
        inner = "    " if form.layers > 1 else ""
        if inner:
            yield f"if slot == {form.slots - 1}:"
        row = self._row(time_outside=self.spec.time_outside)
        yield f"{inner}outputs = output_ptr + ({row}) * {wide} + units"
        yield f"{inner}tl.store(outputs, state, mask=mask)"


def _by_lanes(
    total: str, first: str = "_", second: str = "_", third: str = "_", fourth: str = "_"
) -> Iterator[str]:
    """Lines that name the wanted ones of the four columns of each unit."""
    yield f"even, odd = tl.split(tl.reshape({total}, (BLOCK_B, BLOCK_H, 2, 2)))"
    if (first, third) != ("_", "_"):
        yield f"{first}, {third} = tl.split(even)"
    if (second, fourth) != ("_", "_"):
        yield f"{second}, {fourth} = tl.split(odd)"


def _picked(names: Sequence[str], first: int, count: int) -> Iterator[str]:
    """Lines that set each name to the pointer that the program's slot has, of those from `first`
    on."""
    yield from (f"{name} = {name}_{first}_ptr" for name in names)
    for slot in range(first + 1, count):
        yield f"if slot == {slot}:"
        yield from (f"    {name} = {name}_{slot}_ptr" for name in names)
