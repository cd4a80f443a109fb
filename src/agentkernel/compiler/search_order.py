"""In which order do the kernels of one drop-in leave their first schedules for others?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentkernel.compiler.attention_step import AttentionStep, attention_facts
from agentkernel.compiler.ir import numel
from agentkernel.compiler.products.anchors import ProductStep
from agentkernel.compiler.region import Region
from agentkernel.compiler.sizes import Symbols

BYTES_PER_US = 4e6
"""About the copy bandwidth of an H100 or H200."""
FLOP_PER_US = 1e8
"""About what an fp32-accurate product reaches there (SCHEDULES.md)."""


def single_changes(
    counts: Mapping[object, int], symbols: Symbols, most: int
) -> Iterator[dict[object, int]]:
    """At most `most` assignments {step: position in its list}: steps left out keep their first.

    One kernel changes at a time, the heaviest first. Each gets variants by its share of the work,
    at least two; what a kernel with few schedules leaves goes to the next.
    """
    yield {}
    work = {step: work_us(step, symbols) for step in counts}
    total, left = sum(work.values()), most - 1
    waiting: list[dict[object, int]] = []
    for step in sorted(work, key=lambda item: -work[item]):
        share = max(2, round((most - 1) * work[step] / total))
        every = [{step: index} for index in range(1, counts[step])]
        yield from every[: min(share, left)]
        left -= min(share, left, len(every))
        waiting += every[share:]
    yield from waiting[:left]


def work_us(step: object, symbols: Symbols) -> float:
    """Time of a kernel, roughly: what it moves or multiplies, and a launch."""
    if isinstance(step, ProductStep):
        m, n, k = (symbols.hint(size) for size in step.sizes)
        batch = symbols.hint(numel(step.node.args[1].shape[:-2]))
        return 1.0 + 2 * batch * m * n * k / FLOP_PER_US
    if isinstance(step, AttentionStep):
        facts = attention_facts(step, symbols)
        return 1.0 + 4 * facts.heads * facts.queries * facts.keys * facts.head_dim / FLOP_PER_US
    assert isinstance(step, Region)
    buffers = {*step.reads, *(store.node for store in step.stores)}
    moved = sum(symbols.hint(numel(item.shape)) * item.dtype.itemsize for item in buffers)
    return 1.0 + moved / BYTES_PER_US
