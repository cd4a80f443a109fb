"""The segments of a graph for people: a line a segment, and their picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from agentkernel.compiler.convolutions.statistics import StatisticsStep
from agentkernel.compiler.convolutions.step import ConvolutionStep
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.ir import Node
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.products.joined import JoinedStep
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.row_parts import RowPartsStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.providers import provider_of


class Segment(NamedTuple):
    """One kernel or library call: what serves it, its operators, what it reads and stores."""

    own: bool
    pattern: str
    operators: tuple[str, ...]
    reads: tuple[str, ...]
    stores: tuple[str, ...]
    time_us: float
    """Estimated, of an H100 or H200."""


def segments_of(compiled: Compiled) -> tuple[Segment, ...]:
    """The segments in the order in which they run."""
    names = _names(compiled)
    found = []
    for step in compiled.partition.steps:
        provider = provider_of(step)
        stored = stored_by(step)
        found.append(
            Segment(
                provider.own,
                provider.pattern(step),
                operators_of(step),
                tuple(names[node] for node in step.reads if node in names),
                tuple(_described(names[node], node, compiled) for node in stored),
                provider.work_us(step, compiled.symbols),
            )
        )
    return tuple(found)


def stored_by(step: object) -> tuple[Node, ...]:
    """The values that a step stores."""
    if isinstance(step, Region):
        return tuple(store.node for store in step.stores)
    if isinstance(step, JoinedStep):
        return step.results
    if isinstance(step, PairStep):
        return tuple(store.node for store in step.stores)
    result = getattr(step, "result", None)
    if isinstance(result, Node):
        return (result,)
    return tuple(getattr(step, "parts", ())) or (step.node,)  # type: ignore[attr-defined]


def _names(compiled: Compiled) -> dict[Node, str]:
    """A name of its own for everything that is stored or comes in."""
    nodes = [node for step in compiled.partition.steps for node in stored_by(step)]
    taken: dict[str, int] = {}
    found: dict[Node, str] = {}
    for name, node in compiled.graph.inputs.items():
        found[node] = compiled.captured.parameters.get(name) or name
    for node in nodes:
        count = taken.get(node.name, 0)
        taken[node.name] = count + 1
        found[node] = f"{node.name}_{count}" if count else node.name
    return found


def _described(name: str, node: Node, compiled: Compiled) -> str:
    sizes = "x".join(str(compiled.symbols.hint(size)) for size in node.shape)
    return f"{name} {str(node.dtype).removeprefix('torch.')}[{sizes}]"


def operators_of(step: object) -> tuple[str, ...]:
    """The operators of the graph that it computes, each once."""
    if isinstance(step, Region):
        nodes: tuple[Node, ...] = step.nodes
    elif isinstance(step, ConvolutionStep):
        nodes = (step.node, *(node for region in step.followers for node in region.nodes))
    elif isinstance(step, StatisticsStep):
        nodes = (step.anchor.node,)
    elif isinstance(step, ProductStep):
        nodes = (step.node, *(step.epilogue.nodes if step.epilogue else ()))
    elif isinstance(step, RowPartsStep):
        gathered = step.gathered
        nodes = (gathered.product, *gathered.region.nodes, *gathered.reductions)
    elif isinstance(step, JoinedStep):
        nodes = tuple(item.node for item in step.products)
        nodes += tuple(x for item in step.products if item.epilogue for x in item.epilogue.nodes)
    elif isinstance(step, PairStep):
        nodes = (*(item.node for item in step.products), *step.epilogue.nodes)
    else:
        nodes = stored_by(step)
    labels = (node.origin.rstrip("0123456789").rstrip("_") for node in nodes)
    return tuple(dict.fromkeys(label for label in labels if label))


def segment_lines(segments: Sequence[Segment]) -> list[str]:
    """A line a segment: its number, who serves it, its operators and what it stores."""
    wide = max((len(item.pattern) for item in segments), default=0)
    return [
        f"{number:>3}  {'kernel ' if item.own else 'library'}  {item.pattern:<{wide}}  "
        f"{', '.join(item.operators)} -> {', '.join(item.stores)}"
        for number, item in enumerate(segments, 1)
    ]


WIDTH, LEFT, BOX, ROW, TOP = 860, 150, 560, 58, 46
"""Pixels: of the picture, left of the boxes, of a box, from box to box, above the first."""
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2430 }
.head { font-size: 16px; font-weight: 600 }
.small { font-size: 11.5px; fill: #4a5464 }
.own { fill: #d7ebff; stroke: #2f7fd1 } .library { fill: #eeeeee; stroke: #8a8f98 }
.edge { fill: none; stroke: #9aa4b2; stroke-width: 1.4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ee } .small { fill: #aab3c0 }
  .own { fill: #143a5e; stroke: #5aa7f0 } .library { fill: #30343b; stroke: #8a8f98 }
}
"""


def segment_picture(title: str, segments: Sequence[Segment]) -> str:
    """A stand-alone SVG: segments from top to bottom, own kernels in colour, an edge from what
    stores a value to whatever reads it."""
    height = TOP + ROW * len(segments) + 34
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
    parts = [
        f'{head}width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="head" x="{LEFT}" y="26">{escape(title)}</text>',
        *_edges(segments),
    ]
    for number, item in enumerate(segments):
        y = TOP + ROW * number
        kind = "own" if item.own else "library"
        told = f"{number + 1}. {item.pattern}: {', '.join(item.operators)}"
        stored = f"{', '.join(item.stores)}   about {item.time_us:.3g} us"
        parts += [
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{BOX}" height="42" rx="6"/>',
            f'<text x="{LEFT + 12}" y="{y + 18}">{escape(_cut(told, 76))}</text>',
            f'<text class="small" x="{LEFT + 12}" y="{y + 34}">{escape(_cut(stored, 88))}</text>',
        ]
    y = TOP + ROW * len(segments) + 8
    for x, kind, word in ((LEFT, "own", "own kernel"), (LEFT + 130, "library", "library call")):
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="14" height="14" rx="3"/>')
        parts.append(f'<text class="small" x="{x + 20}" y="{y + 12}">{word}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _edges(segments: Sequence[Segment]) -> list[str]:
    """Straight to the next segment, past the boxes on the right to a later one."""
    lines = []
    maker = {
        store.split(" ")[0]: number for number, item in enumerate(segments) for store in item.stores
    }
    for number, item in enumerate(segments):
        for source in sorted({maker[name] for name in item.reads if name in maker}):
            start, end = TOP + ROW * source + 42, TOP + ROW * number
            if number == source + 1:
                middle = LEFT + BOX // 2
                lines.append(f'<path class="edge" d="M{middle} {start}V{end}"/>')
                continue
            side = LEFT + BOX
            out = side + 16 + 14 * (number - source) % 120
            lines.append(
                f'<path class="edge" d="M{side} {start - 21}C{out} {start - 21} '
                f'{out} {end + 21} {side} {end + 21}"/>'
            )
    return lines


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
