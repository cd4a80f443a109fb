"""Convolutions served by kernels of our own: which of them, with which epilogue, and their text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from torch import fx

from agentkernel.compiler.axes import Atom, Hint, contiguous_strides, leaves
from agentkernel.compiler.convolutions.depthwise import emit_depthwise
from agentkernel.compiler.convolutions.implicit import Implicit
from agentkernel.compiler.convolutions.packing import PACKED, pack_picture, pack_weights
from agentkernel.compiler.convolutions.places import places_end, reduces_places
from agentkernel.compiler.convolutions.reducing import atoms_in, reduces_channels, reducing_end
from agentkernel.compiler.convolutions.schedules import ConvolutionFacts, by_sums
from agentkernel.compiler.convolutions.spec import COPIES, ConvolutionSpec, Geometry
from agentkernel.compiler.convolutions.transposed import Transposed
from agentkernel.compiler.convolutions.windows import Window, pooling_end, pooling_of, window_of
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import LibraryStep, Partition, Region
from agentkernel.compiler.ir import Node, numel, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.places import element_by_element, reads_once
from agentkernel.compiler.products.spec import KernelText
from agentkernel.compiler.products.step import (
    FLOATS,
    AnchorStep,
    EpilogueText,
    Scope,
    epilogue_text,
    operand_text,
    with_anchors,
)
from agentkernel.compiler.rewrite.patterns import convolution_of


@dataclass(frozen=True, eq=False)
class ConvolutionStep(AnchorStep):
    """A convolution of stored operands with its epilogue."""

    geometry: Geometry
    window: Window | None = None
    """What reduces windows of its result, in the tile."""

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        within = super().result
        more = (
            (item for item in self.window.region.reads if item is not within) if self.window else ()
        )
        return tuple(dict.fromkeys((*super().reads, *more)))

    @property
    def result(self) -> Node:
        """What it stores."""
        return self.window.region.stores[0].node if self.window else super().result

    @property
    def reduced(self) -> Literal["nothing", "channels", "places"]:
        """What the epilogue reduces."""
        if self.epilogue is None or not self.epilogue.reduces:
            return "nothing"
        of_channels = atoms_in(self.epilogue.cols) == [*_groups(self.node, self.epilogue)[1]]
        return "channels" if of_channels else "places"

    @property
    def followers(self) -> tuple[Region, ...]:
        """What follows the convolution itself."""
        regions = (self.epilogue, self.window.region if self.window else None)
        return tuple(item for item in regions if item is not None)

    @property
    def apart(self) -> tuple[ConvolutionStep | Region, ...]:
        """The same with every reduction as a kernel of its own; empty where there is none."""
        if self.window:
            return replace(self, window=None), self.window.region
        if self.reduced == "nothing":
            return ()
        return replace(self, epilogue=None), *self.followers


def geometry_of(node: Node) -> Geometry | None:
    """The constants of a library call that is a convolution; None where none of our kernels does
    what it does."""
    call = node.attrs[0] if node.kind == "library" and node.attrs else None
    if not isinstance(call, fx.Node) or len(node.attrs) > 1 or node.dtype not in FLOATS:
        return None
    found = convolution_of(call)
    if found is None or any(not size.is_number for size in node.args[1].shape):
        return None
    if len(node.args) != (2 if found.bias is None else 3):
        return None  # one tensor is two operands
    if any(arg.dtype != node.dtype for arg in node.args):
        return None
    first, second, *_ = (int(size) for size in node.args[1].shape)
    groups = found.groups
    outside, inside = (second, first // groups) if found.transposed else (first // groups, second)
    plain = Geometry(
        found.kernel, found.stride, found.before, found.after, found.dilation, groups, inside,
        outside, found.transposed,
    )  # fmt: skip
    if found.transposed and all(step == 1 for step in found.stride):
        return _turned(plain, found.extra)
    return plain


def _turned(shape: Geometry, extra: tuple[int, ...]) -> Geometry | None:
    """A transposed convolution of stride 1, its result longer by `extra` places, as a plain one."""
    triples = zip(shape.dilation, shape.kernel, shape.padding, strict=True)
    padding = tuple(dilation * (size - 1) - cut for dilation, size, cut in triples)
    if min(padding) < 0:
        return None
    after = tuple(before + more for before, more in zip(padding, extra, strict=True))
    return replace(shape, padding=padding, after=after, transposed=False, turned=True)


def multiplied(node: Node, shape: Geometry, symbols: Symbols) -> int:
    """Floating-point operations of a convolution: two for each tap of a channel that a place
    reads."""
    places = node.args[0].shape if shape.transposed else node.shape
    channels = shape.outside if shape.transposed else shape.inside
    return 2 * symbols.hint(numel(places)) * channels * shape.taps


def with_convolution_steps(partition: Partition, hint: Hint) -> Partition:
    """Every convolution that our kernels do as one of them, with the region behind it as its
    epilogue where it is pointwise or reduces channels, all places or windows."""
    returned = {output.node: output.strides for output in partition.outputs}

    def served(step: LibraryStep, region: Region | None) -> ConvolutionStep | None:
        node, geometry = step.node, None if step.parts else geometry_of(step.node)
        plain = contiguous_strides(node.shape)
        if geometry is None or not all(map(same, returned.get(node, plain), plain)):
            return None
        fits = region is not None and _fits(node, geometry, region, hint)
        return ConvolutionStep(node, region if fits else None, geometry)

    return _with_windows(with_anchors(partition, served))


def _with_windows(partition: Partition) -> Partition:
    """Windows of what a convolution makes are reduced in its tile."""
    fused: dict[object, ConvolutionStep] = {}
    before: tuple[object, ...] = partition.steps
    for step in before:
        if isinstance(step, ConvolutionStep) and step.reduced == "nothing":
            region = partition.only_region(step.result)
            window = region and window_of(step.result, step.geometry, region)
            if region and window:
                fused[region] = replace(step, window=window)
    taken = {step.node for step in fused.values()}
    steps = [
        fused.get(step, step)
        for step in before
        if not (isinstance(step, ConvolutionStep) and step.node in taken)
    ]
    return Partition(tuple(steps), partition.outputs)  # type: ignore[arg-type]


def _epilogue(node: Node, region: Region) -> bool:
    """True where the region maps each element of the result to one element of one result."""
    return reads_once(node, region) and element_by_element(node, _groups(node, region), region)


def _fits(node: Node, geometry: Geometry, region: Region, hint: Hint) -> bool:
    """True where a tile can do what the region does."""
    if _epilogue(node, region):
        return True
    if node not in region.layout.loads:
        return False
    groups, places = _groups(node, region), hint(numel(node.shape[2:]))
    return reduces_channels(node, geometry, groups, region) or reduces_places(
        node, geometry, groups, region, places
    )


def _groups(node: Node, region: Region) -> tuple[tuple[Atom, ...], ...]:
    """Atoms of the batch, of the channels and of the places."""
    batch, channels, *places = region.layout.dims[node]
    return leaves(batch), leaves(channels), tuple(atom for dim in places for atom in leaves(dim))


def convolution_facts(step: ConvolutionStep, symbols: Symbols) -> ConvolutionFacts:
    """What the choice of schedules rests on."""
    batch, _, *places = (symbols.hint(size) for size in step.node.shape)
    inside = tuple(symbols.hint(size) for size in step.node.args[0].shape[2:])
    taps = math.prod(step.window.taps) if step.window else 1
    return ConvolutionFacts(
        step.geometry, batch, inside, tuple(places), FLOATS[step.node.dtype],
        whole=step.reduced == "channels", apart=step.reduced == "places", taps=taps,
    )  # fmt: skip


def emit_convolution(spec: ConvolutionSpec, schedule: Mapping[str, int]) -> KernelText:
    """The kernels under `schedule`, with the wrapper's lines."""
    if by_sums(spec.geometry):
        return emit_depthwise(spec, schedule)
    text = (Transposed if spec.geometry.transposed else Implicit)(spec, schedule)
    weights = pack_weights(spec, text.packing)
    kernels, sources, lines = [*weights.kernels], [weights.source], [*weights.launch]
    if text.packing.read == PACKED:
        picture = pack_picture(spec, text.packing)
        kernels += picture.kernels
        sources += [picture.source]
        lines += picture.launch
    sources.append(text.source())
    helpers = frozenset(("to_tf32",)) if spec.dtype == "float32" else frozenset[str]()
    return KernelText(
        "\n\n\n".join(sources), (*kernels, spec.name), (*lines, *text.launch()), helpers
    )


RESERVED = frozenset((
    "x_ptr", "weight_ptr", "bias_ptr", "out_ptr", "batches", "planes", "channel", "group",
    "place", "start", "near", "every", "phase", "program", "plane", "read", "first", "bias", "x",
    "y", "w", "x_ptrs", "w_ptrs", "ks", "inside", "offset", "window", "tap", "turn", "INDEX",
    "TF32", "PLANE", "BLOCK_M", "BLOCK_N", "BLOCK_K", "BLOCK_C", "BLOCK_X", "row_tiles",
    "plane_mask", "spot", "in_window", "picture", "tiles_n", "parts_ptr",
))  # fmt: skip


def emit_convolution_step(
    step: ConvolutionStep, schedule: dict[str, int], name: str, out: str, scope: Scope,
    end: End | None = None,
) -> KernelCode:  # fmt: skip
    """The convolution's kernels and launch lines, with another `end` than the step's own."""
    lines: list[str] = []
    wanted = ("picture", "weight", "bias")
    operands = [
        operand_text(arg, word, scope, lines)
        for arg, word in zip(step.node.args, wanted, strict=False)
    ]
    text, function, second = end or _end_of(step, schedule, (name, out), scope)
    sizes = [
        tuple(scope.symbols.wrapper(size) for size in node.shape[2:])
        for node in (step.node.args[0], step.node)
    ]
    spec = ConvolutionSpec(
        name=name, geometry=step.geometry, dtype=FLOATS[step.node.dtype], x=operands[0],
        weight=operands[1], bias=operands[2] if len(operands) > 2 else "", out=out,
        batch=scope.symbols.wrapper(step.node.shape[0]), in_sizes=sizes[0], out_sizes=sizes[1],
        epilogue=text.lines, extras=text.extras,
        store=step.reduced == "nothing" and step.window is None,
        pooling=pooling_of(step.window, scope) if step.window else None, stem=_stem(name, scope),
    )  # fmt: skip
    made = emit_convolution(spec, schedule)
    kernels = [item for item in (second,) if item is not None]
    return KernelCode(
        "\n\n\n".join(filter(None, (function, made.source, *(item.source for item in kernels)))),
        (*made.kernels, *(name for item in kernels for name in item.kernels)),
        (*made.launch, *(line for item in kernels for line in item.launch)),
        text.helpers.union(made.helpers, *(item.helpers for item in kernels)),
        (*lines, *(line for item in kernels for line in item.allocations)),
    )


class End(NamedTuple):
    """What follows the sums in their tile: lines, the function that they call, a second kernel."""

    text: EpilogueText = EpilogueText()
    function: str = ""
    second: KernelCode | None = None


def _end_of(
    step: ConvolutionStep, schedule: dict[str, int], names: tuple[str, str], scope: Scope
) -> End:
    """The end under `schedule`; `names`: of the kernel and of the result."""
    node, region, text = step.node, step.epilogue, EpilogueText()
    reserved = _reserved(step.geometry, schedule)
    if region and step.reduced == "channels":
        return End(*reducing_end(node, region, _groups(node, region), schedule, names, scope))
    if region and step.reduced == "places":
        groups = _groups(node, region)
        found = places_end(node, region, groups, schedule, names, scope, reserved)
        return End(found.text, second=found.finish)
    if region:
        text = epilogue_text(
            region, {node: "acc"}, _groups(node, region), scope, batch="batch[None, :]",
            reserved=reserved,
        )  # fmt: skip
    if step.window is None:
        return End(text)
    more, function = pooling_end(step.window, names, scope, dict(text.extras))
    lines, extras = (*text.lines, *more.lines), (*text.extras, *more.extras)
    return End(EpilogueText(lines, extras, text.helpers | more.helpers), function)


def _stem(name: str, scope: Scope) -> str:
    """What the names of the copies begin with: nothing else in the wrapper has one of them."""
    while any(f"{name}_{end}" in scope.names.taken for end in COPIES):
        name += "_"
    scope.names.taken |= {f"{name}_{end}" for end in COPIES}
    return name


def _reserved(shape: Geometry, schedule: dict[str, int]) -> frozenset[str]:
    """Names that the kernel's own lines have."""
    dims = range(max(shape.rank, 2))
    numbered = ("spot", "in_window", "POOL", "out", "at", "move", "tap", "taps", "first", "shift",
                "near", "IN", "OUT", "WIDE", "STEPS")  # fmt: skip
    names = {f"{stem}_{dim}" for stem in numbered for dim in dims}
    names |= {f"w_{tap}" for tap in range(shape.taps)} if "ROWS" in schedule else set()
    names |= {f"sum_{row}" for row in range(schedule.get("ROWS", 0))}
    names |= {f"inside_{place}" for place in range(shape.kernel[-1])}
    return RESERVED | names
