"""Convolutions served by kernels of our own: which of them, with which epilogue, and their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import fx

from agentkernel.compiler.axes import Atom, contiguous_strides, leaves
from agentkernel.compiler.convolutions.depthwise import emit_depthwise
from agentkernel.compiler.convolutions.implicit import Implicit
from agentkernel.compiler.convolutions.packing import PACKED, pack_picture, pack_weights
from agentkernel.compiler.convolutions.schedules import ConvolutionFacts, by_sums
from agentkernel.compiler.convolutions.spec import COPIES, ConvolutionSpec, Geometry
from agentkernel.compiler.convolutions.transposed import Transposed
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

    def multiplied(self, symbols: Symbols) -> int:
        """Floating-point operations: two for each tap of a channel that a place reads."""
        shape = self.geometry
        places = self.node.args[0].shape if shape.transposed else self.node.shape
        channels = shape.outside if shape.transposed else shape.inside
        return 2 * symbols.hint(numel(places)) * channels * shape.taps


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
    if not found.transposed:
        return plain
    if all(step == 1 for step in found.stride):
        return _turned(plain, found.extra)
    return plain if all(item == 1 for item in found.dilation) else None


def _turned(shape: Geometry, extra: tuple[int, ...]) -> Geometry | None:
    """A transposed convolution of stride 1, its result longer by `extra` places, as a plain one."""
    triples = zip(shape.dilation, shape.kernel, shape.padding, strict=True)
    padding = tuple(dilation * (size - 1) - cut for dilation, size, cut in triples)
    if min(padding) < 0:
        return None
    after = tuple(before + more for before, more in zip(padding, extra, strict=True))
    return replace(shape, padding=padding, after=after, transposed=False, turned=True)


def with_convolution_steps(partition: Partition) -> Partition:
    """Every convolution that our kernels do as one of them, with the pointwise region behind it as
    its epilogue."""
    returned = {output.node: output.strides for output in partition.outputs}

    def served(step: LibraryStep, region: Region | None) -> ConvolutionStep | None:
        node, geometry = step.node, None if step.parts else geometry_of(step.node)
        plain = contiguous_strides(node.shape)
        if geometry is None or not all(map(same, returned.get(node, plain), plain)):
            return None
        fits = region is not None and _epilogue(node, region)
        return ConvolutionStep(node, region if fits else None, geometry)

    return with_anchors(partition, served)


def _epilogue(node: Node, region: Region) -> bool:
    """True where the region maps each element of the result to one element of one result."""
    return reads_once(node, region) and element_by_element(node, _groups(node, region), region)


def _groups(node: Node, region: Region) -> tuple[tuple[Atom, ...], ...]:
    """Atoms of the batch, of the channels and of the places."""
    batch, channels, *places = region.layout.dims[node]
    return leaves(batch), leaves(channels), tuple(atom for dim in places for atom in leaves(dim))


def convolution_facts(step: ConvolutionStep, symbols: Symbols) -> ConvolutionFacts:
    """What the choice of schedules rests on."""
    batch, _, *places = (symbols.hint(size) for size in step.node.shape)
    inside = tuple(symbols.hint(size) for size in step.node.args[0].shape[2:])
    return ConvolutionFacts(step.geometry, batch, inside, tuple(places), FLOATS[step.node.dtype])


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
    "plane_mask",
))  # fmt: skip


def emit_convolution_step(
    step: ConvolutionStep, schedule: dict[str, int], name: str, out: str, scope: Scope
) -> KernelCode:
    """The convolution's kernels and launch lines."""
    lines: list[str] = []
    wanted = ("picture", "weight", "bias")
    operands = [
        operand_text(arg, word, scope, lines)
        for arg, word in zip(step.node.args, wanted, strict=False)
    ]
    # A weight may become channels-last after the drop-in was made, with the rest of its model.
    operands[1] += ".contiguous()"
    text = EpilogueText()
    if step.epilogue:
        groups = _groups(step.node, step.epilogue)
        text = epilogue_text(
            step.epilogue, {step.node: "acc"}, groups, scope, batch="batch[None, :]",
            reserved=_reserved(step.geometry, schedule),
        )  # fmt: skip
    sizes = [
        tuple(scope.symbols.wrapper(size) for size in node.shape[2:])
        for node in (step.node.args[0], step.node)
    ]
    spec = ConvolutionSpec(
        name=name, geometry=step.geometry, dtype=FLOATS[step.node.dtype], x=operands[0],
        weight=operands[1], bias=operands[2] if len(operands) > 2 else "", out=out,
        batch=scope.symbols.wrapper(step.node.shape[0]), in_sizes=sizes[0], out_sizes=sizes[1],
        epilogue=text.lines, extras=text.extras, stem=_stem(name, scope),
    )  # fmt: skip
    made = emit_convolution(spec, schedule)
    used = text.helpers | made.helpers
    return KernelCode(made.source, made.kernels, made.launch, used, tuple(lines))


def _stem(name: str, scope: Scope) -> str:
    """What the names of the copies begin with: nothing else in the wrapper has one of them."""
    while any(f"{name}_{end}" in scope.names.taken for end in COPIES):
        name += "_"
    scope.names.taken |= {f"{name}_{end}" for end in COPIES}
    return name


def _reserved(shape: Geometry, schedule: dict[str, int]) -> frozenset[str]:
    """Names that the kernel's own lines have."""
    dims = range(max(shape.rank, 2))
    numbered = ("out", "at", "move", "tap", "taps", "first", "shift", "near", "IN", "OUT", "WIDE",
                "STEPS")  # fmt: skip
    names = {f"{stem}_{dim}" for stem in numbered for dim in dims}
    names |= {f"w_{tap}" for tap in range(shape.taps)} if "ROWS" in schedule else set()
    names |= {f"sum_{row}" for row in range(schedule.get("ROWS", 0))}
    names |= {f"inside_{place}" for place in range(shape.kernel[-1])}
    return RESERVED | names
