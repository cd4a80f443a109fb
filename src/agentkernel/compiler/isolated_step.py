"""One step of a partition as a small drop-in of its own, called on tensors of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import sympy
from torch import fx, nn

from agentkernel.compiler.attention import AttentionStep, attention_facts
from agentkernel.compiler.attention_match import AttentionMatch
from agentkernel.compiler.axes import contiguous_strides
from agentkernel.compiler.convolutions.statistics import StatisticsStep
from agentkernel.compiler.convolutions.step import ConvolutionStep, geometry_of, multiplied
from agentkernel.compiler.drop_in.envelope import import_block
from agentkernel.compiler.drop_in.forward import Forward
from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.compiler.emit import Names
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import LibraryStep, Output, Region
from agentkernel.compiler.ir import Expr, Node, numel
from agentkernel.compiler.kernel_helpers import helper_sources, library_imports
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.row_parts import RowPartsStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers import AnySchedule, provider_of
from agentkernel.compiler.providers.linear import LinearStep
from agentkernel.compiler.recurrence import RecurrenceStep
from agentkernel.domain.base import sha256_text
from agentkernel.domain.problem import DType, Problem, ShapeSet, TensorSpec
from agentkernel.domain.profile import OpCost
from agentkernel.domain.verdict import Precision
from agentkernel.tools.judge.policy.graph_form import with_graph
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.search.cost import MatrixWork
from agentkernel.tools.search.store import StepKey

AnyStep = (
    Region | ProductStep | PairStep | JoinedStep | RowPartsStep | ConvolutionStep
    | StatisticsStep | AttentionStep | RecurrenceStep | LibraryStep | LinearStep
)  # fmt: skip


class Empty(nn.Module):
    """A module without weights: a segment is given all that it reads."""


@dataclass(frozen=True, eq=False)
class IsolatedStep:
    """A step with the stored values that it reads and those that it stores."""

    compiled: Compiled
    step: AnyStep
    reads: tuple[Node, ...]
    outputs: tuple[Output, ...]
    key: str
    """Hash of its structure, sizes, types and precision: equal segments have equal kernels."""
    measured_as: StepKey
    """What its measured schedules are kept by: the same with the sizes apart."""

    @property
    def name(self) -> str:
        """Its pattern and the first digits of its hash."""
        return f"{provider_of(self.step).pattern(self.step)} {self.key[:12]}"

    @property
    def problem(self) -> LoadedProblem:
        """What the drop-ins are called on: normal values, 0 and 1 for integers."""
        hint = self.compiled.symbols.hint
        inputs = tuple(
            TensorSpec(
                name=f"input_{index}",
                dtype=cast("DType", _dtype_name(node)),
                shape=tuple(hint(size) for size in node.shape),
            )
            for index, node in enumerate(self.reads)
        )
        problem = Problem(
            name=self.name, origin="class", path="", source="", class_name="Empty",
            shape_sets=(ShapeSet(inputs=inputs),),
        )  # fmt: skip
        return LoadedProblem(problem, Empty)

    @property
    def matrix_work(self) -> MatrixWork | None:
        """What a kernel of ours multiplies for it: two operations for each element of a result and
        of the inner dimension; of causal attention half, of a triangular product its share."""
        step, symbols = self.step, self.compiled.symbols
        step = step.anchor if isinstance(step, StatisticsStep) else step
        if isinstance(step, ProductStep):
            inner = step.node.args[0].shape[-1]
            flops = 2 * symbols.hint(numel(step.node.shape) * inner)
            return self._multiplied(int(step.share(symbols) * flops), "matmul")
        if isinstance(step, PairStep):
            return self._multiplied(2 * symbols.hint(step.multiplied), "matmul")
        if isinstance(step, JoinedStep):
            sizes = (numel(item.node.shape) * item.sizes[2] for item in step.products)
            return self._multiplied(2 * sum(map(symbols.hint, sizes)), "matmul")
        if isinstance(step, RowPartsStep):
            return self._multiplied(symbols.hint(step.multiplied), "matmul")
        if isinstance(step, ConvolutionStep):
            return self._multiplied(multiplied(step.node, step.geometry, symbols), "matmul", "tf32")
        if isinstance(step, AttentionStep):
            facts = attention_facts(step, symbols)
            scores = facts.heads * facts.queries * facts.keys // (2 if step.match.causal else 1)
            return self._multiplied(2 * scores * (facts.head_dim + facts.value_dim), "attention")
        return None

    def _multiplied(
        self, flops: int, kind: Literal["matmul", "attention"], precision: Precision | None = None
    ) -> MatrixWork:
        assert not isinstance(self.step, Region | LinearStep)
        dtype = _dtype_name(self.step.node.args[0])
        cost = OpCost(op=kind, dtype=dtype, bytes_moved=0, flops=flops, kind=kind)
        return MatrixWork(cost, precision or self.compiled.precision)

    def write(self, schedule: AnySchedule) -> DropInSource:
        """A file whose `ModelNew` takes `reads`, contiguous, and returns what the step stores.
        Free sizes have their usual values. Raises UnsupportedOp."""
        compiled = self.compiled
        forward = Forward(
            compiled.loaded, compiled.captured, compiled.constructor, Names(),
            symbols=compiled.symbols, precision=compiled.precision,
        )  # fmt: skip
        values = compiled.symbols.values
        sizes = {compiled.symbols.name(sympy.Symbol(name)): values[name] for name in values}
        forward.names.taken |= {*sizes, "self"}
        for node in self.reads:
            forward.buffers[node] = forward.names.unique(node.name)
        forward.arguments += forward.buffers.values()
        forward.device = f"{forward.arguments[0]}.device"
        forward.lines += [f"{name} = {value}" for name, value in sizes.items()]
        provider_of(self.step).write(self.step, schedule, forward, self.outputs)
        results = [forward.buffers[output.node] for output in self.outputs]
        forward.lines.append(f"return ({', '.join(results)},)")
        text = _text(forward)
        if isinstance(self.step, RecurrenceStep):
            # Its many launches take longer than its kernels do, whatever their schedule.
            text = with_graph(text) or text
        return DropInSource(text, tuple(forward.kernels), forward.schedule)


def _text(forward: Forward) -> str:
    head = f"    def forward(self, {', '.join(forward.arguments)}):"
    body = textwrap.indent("\n".join(forward.lines), " " * 8)
    kernels = [*helper_sources(forward.helpers), *forward.pieces]
    sections = [
        import_block(("import math", *library_imports(kernels))),
        *kernels,
        f"class ModelNew(torch.nn.Module):\n{head}\n{body}",
    ]
    return "\n\n\n".join(sections) + "\n"


def isolated(compiled: Compiled, step: object) -> IsolatedStep | None:
    """The step alone; None where it cannot be timed so: it reads nothing stored, or at places that
    made-up values do not give, or it is a library call without a rival."""
    if isinstance(step, LibraryStep) and not _rivalled(step.node):
        return None
    assert isinstance(step, AnyStep)
    reads = step.reads
    stored = all(item.kind not in ("constant", "size", "iota") for item in reads)
    if not reads or not stored or any(_dtype_name(item) not in get_args(DType) for item in reads):
        return None
    if isinstance(step, Region) and not _reads_inside(step, compiled.symbols):
        return None
    outputs = _outputs(compiled, step)
    key = _hash(_Words(compiled.symbols), compiled, step, outputs)
    apart = _WordsWithoutSizes(compiled.symbols)
    structure = _hash(apart, compiled, step, outputs)
    return IsolatedStep(compiled, step, reads, outputs, key, StepKey(structure, tuple(apart.found)))


def _rivalled(node: Node) -> bool:
    """Whether kernels of ours do what a library call does."""
    return node.op in ("product", "attention") or geometry_of(node) is not None


def _dtype_name(node: Node) -> str:
    return str(node.dtype).removeprefix("torch.")


def _outputs(compiled: Compiled, step: AnyStep) -> tuple[Output, ...]:
    """What it stores, with eager's strides where forward returns it."""
    if isinstance(step, Region):
        return tuple(Output(item.node, item.node.name, item.strides) for item in step.stores)
    if isinstance(step, JoinedStep | PairStep):
        return tuple(Output(item.node, item.node.name, item.strides) for item in step.stores)
    if isinstance(step, RowPartsStep | StatisticsStep):
        return tuple(Output(x, x.name, contiguous_strides(x.shape)) for x in step.parts)
    if isinstance(step, RecurrenceStep):
        return tuple(Output(x, x.name, step.strides(x)) for x in step.parts)
    node = step.node if isinstance(step, LibraryStep) else step.result
    given = {output.node: output.strides for output in compiled.partition.outputs}
    own = step.strides if isinstance(step, AttentionStep) else contiguous_strides(node.shape)
    own = step.store.strides if isinstance(step, ProductStep) else own
    return (Output(node, node.name, given.get(node, own)),)


OF_AN_INDEX = ("where", "lt", "add", "cast", "copy")
"""What a lowering makes of an index before it is bound: those below zero count from the end."""


def _reads_inside(region: Region, symbols: Symbols) -> bool:
    """True where every gather finds its place with 0 or 1 in all integer buffers: each stored index
    is bound to two elements or more. A scatter would add everything to these two."""
    if region.scatters:
        return False
    gathers = [node for node in region.layout.dims if node.op == "gather"]
    return all(_bound(arg, region, symbols) for node in gathers for arg in node.args[:1])


def _bound(index: Node, region: Region, symbols: Symbols) -> bool:
    if index in region.layout.loads:
        return False
    if index.op == "within":
        size = index.args[1]
        at_least = size.attrs[0] if size.kind in ("constant", "size") else 0
        limit = symbols.hint(sympy.sympify(at_least))
        return limit > 1 and _plain_index(index.args[0], region)
    return all(_bound(arg, region, symbols) for arg in index.args)


def _plain_index(index: Node, region: Region) -> bool:
    """True for a stored integer, with nothing but a count from the end before it."""
    if index in region.layout.loads:
        return not index.dtype.is_floating_point
    if index.kind in ("constant", "size", "iota"):
        return True
    return (index.kind == "view" or index.op in OF_AN_INDEX) and all(
        _plain_index(arg, region) for arg in index.args
    )


def _hash(words: _Words, compiled: Compiled, step: AnyStep, outputs: Sequence[Output]) -> str:
    for node in step.reads:
        words.add_input(node)
    described = [f"{words.number(item.node)} {words.sizes(item.strides)}" for item in outputs]
    # The graph does not show that what is read is stored with zeros, how windows lie, nor what
    # parts of rows gather.
    unseen: list[str] = []
    if isinstance(step, ProductStep):
        unseen = [str(item) for item in step.triangles]
    elif isinstance(step, ConvolutionStep):
        unseen = [str(step.geometry)]
    elif isinstance(step, RowPartsStep):
        unseen = [str(words.number(item)) for item in step.gathered.reductions]
    text = "\n".join([type(step).__name__, compiled.precision, *words.lines, *described, *unseen])
    return sha256_text(text)


class _Words:
    """A graph as lines that name neither values nor symbols, each node once."""

    def __init__(self, symbols: Symbols) -> None:
        self.lines: list[str] = []
        self.hint = symbols.hint
        self._numbers: dict[Node, int] = {}
        self._free: dict[str, str] = {}

    def add_input(self, node: Node) -> None:
        """A stored value: nothing behind it counts."""
        self._put(node, "input")

    def number(self, node: Node) -> int:
        """The line of a node, after those that it is computed from."""
        if node not in self._numbers:
            args = [self.number(arg) for arg in node.args]
            attrs = [self._attribute(item) for item in node.attrs]
            self._put(node, f"{node.kind} {node.op} {args} {attrs}")
        return self._numbers[node]

    def _put(self, node: Node, what: str) -> None:
        self._numbers[node] = len(self.lines)
        self.lines.append(f"{what} {node.dtype} {self.sizes(node.shape)}")

    def sizes(self, shape: Sequence[Expr]) -> str:
        """Sizes with free symbols by the order of their appearance, and with their values."""
        return " ".join(self._attribute(size) for size in shape)

    def _attribute(self, item: object) -> str:
        if isinstance(item, sympy.Expr):
            return self._size(item)
        if isinstance(item, AttentionMatch):
            scale = self._attribute(item.scale)
            mask = f"{item.mask_kind} {item.fill} {item.causal} {item.empty_rows}"
            return f"{scale} {mask} {item.grouped} {item.bias is not None}"
        return "" if isinstance(item, fx.Node) else repr(item)

    def _size(self, item: Expr) -> str:
        names = {
            symbol: sympy.Symbol(self._free.setdefault(str(symbol), f"s{len(self._free)}"))
            for symbol in sorted(item.free_symbols, key=str)
        }
        return f"{item.subs(names)}={self.hint(item)}" if names else str(item)


class _WordsWithoutSizes(_Words):
    """The same with a mark for each size, and the sizes in the order of the text."""

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(symbols)
        self.found: list[int] = []

    def _size(self, item: Expr) -> str:
        if item.is_integer is False:
            return super()._size(item)
        self.found.append(self.hint(item))
        return "size"
