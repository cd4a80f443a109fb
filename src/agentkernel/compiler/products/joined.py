"""Products of one matrix by several weights in one launch, each with a result of its own.

Queries, keys and values, or the gate and the rest of a gated layer, multiply the same rows. Their
column tiles follow each other in one grid, and a tile picks its weight, its epilogue and its result
by its place: nothing is concatenated, so weights may change in place. One grid fills a card that
each product alone leaves idle in part, and costs the processor one launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from agentkernel.compiler.axes import Store
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Partition, Region
from agentkernel.compiler.ir import Node, same
from agentkernel.compiler.kernel import KernelCode
from agentkernel.compiler.products.schedules import GemmFacts, GemmSchedule
from agentkernel.compiler.products.spec import Share
from agentkernel.compiler.products.step import (
    FLOATS,
    EpilogueText,
    ProductStep,
    Scope,
    gemm_facts,
    is_range,
    operand_text,
    product_code,
    product_epilogue,
    product_spec,
    stored_operands,
)
from agentkernel.domain.verdict import Precision

MOST = 4
"""Products of one launch: each tile carries every epilogue's text."""


@dataclass(frozen=True, eq=False)
class JoinedStep:
    """Products of one A, each with its epilogue."""

    products: tuple[ProductStep, ...]

    @property
    def node(self) -> Node:
        """The first of the products."""
        return self.products[0].node

    @property
    def reads(self) -> tuple[Node, ...]:
        """What it reads, below all views."""
        return tuple(dict.fromkeys(item for step in self.products for item in step.reads))

    @property
    def stores(self) -> tuple[Store, ...]:
        """How it stores them."""
        return tuple(step.store for step in self.products)

    @property
    def results(self) -> tuple[Node, ...]:
        """What it stores."""
        return tuple(step.result for step in self.products)


def with_joined_steps(partition: Partition) -> Partition:
    """Products of one matrix, which own kernels multiply, as one launch each."""
    steps: list[object] = list(partition.steps)
    for group in _groups(partition.steps):
        found = next(_placed(group, steps), None)
        if found is not None:
            place, joined = found
            steps[place:place] = [joined]
            steps = [step for step in steps if step not in joined.products]
    return Partition(tuple(steps), partition.outputs)  # type: ignore[arg-type]


def _placed(
    group: Sequence[ProductStep], steps: Sequence[object]
) -> Iterator[tuple[int, JoinedStep]]:
    """As many of a group as may be one step, and its place: the largest first."""
    for count in range(len(group), 1, -1):
        for some in combinations(group, count):
            if (place := _place(some, steps)) is not None:
                yield place, JoinedStep(some)


def _groups(steps: Sequence[object]) -> Iterator[list[ProductStep]]:
    """Products that differ in nothing but the weight, their columns and what follows them."""
    left = [step for step in steps if isinstance(step, ProductStep) and _plain(step)]
    while left:
        group = [step for step in left if _alike(left[0], step)][:MOST]
        left = [step for step in left if step not in group]
        if len(group) > 1:
            yield group


def _plain(step: ProductStep) -> bool:
    a, b = step.node.args
    weight = stored_operands(step)[1][0]
    whole = weight.root is weight or is_range(weight)
    return len(b.shape) == 2 and whole and not step.triangles and len(a.shape) > 1


def _alike(one: ProductStep, two: ProductStep) -> bool:
    (left, weight), (right, other) = one.node.args, two.node.args
    return (
        _same(left, right)
        and weight.dtype == other.dtype
        and one.node.dtype == two.node.dtype
        and one.transposed == two.transposed
        and same(weight.shape[0], other.shape[0])
        and one.result.dtype == two.result.dtype
    )


def _same(one: Node, two: Node) -> bool:
    """One value, or the same view of it."""
    if one is two or one.kind != "view" or two.kind != "view":
        return one is two
    alike = (one.op, one.attrs) == (two.op, two.attrs) and len(one.shape) == len(two.shape)
    return alike and all(map(same, one.shape, two.shape)) and _same(one.args[0], two.args[0])


def _place(group: Sequence[ProductStep], steps: Sequence[object]) -> int | None:
    """Where they may stand as one step: behind all that makes what they read, before all that reads
    what they make. None where there is no such place."""
    reads = {node for step in group for node in step.reads}
    results = {step.result for step in group}
    others = [at for at, step in enumerate(steps) if step not in group]
    behind = max((at + 1 for at in others if reads & _stored(steps[at])), default=0)
    before = min((at for at in others if results & set(steps[at].reads)), default=len(steps))  # type: ignore[attr-defined]
    return before if behind <= before and not results & reads else None


def _stored(step: object) -> set[object]:
    """The values that a step stores."""
    if isinstance(step, Region):
        return {store.node for store in step.stores}
    if isinstance(step, JoinedStep):
        return set(step.results)
    one = getattr(step, "result", None) or step.node  # type: ignore[attr-defined]
    return {one, *getattr(step, "parts", ())}


def joined_facts(joined: JoinedStep, symbols: Symbols, precision: Precision) -> GemmFacts:
    """Those of one product with all columns."""
    facts = gemm_facts(joined.products[0], symbols, precision)
    return replace(facts, n=sum(symbols.hint(step.sizes[1]) for step in joined.products))


def joined_schedules(schedules: Iterable[GemmSchedule]) -> list[GemmSchedule]:
    """The schedules of that product for several, without slices of K or a turned weight."""
    found: list[GemmSchedule] = []
    for schedule in schedules:
        item = schedule | {"SPLIT_K": 1}
        if not item.get("TRANSPOSE_B") and item not in found:
            found.append(item)
    return found


def emit_joined_step(
    joined: JoinedStep, schedule: dict[str, int], name: str, results: Sequence[str], scope: Scope
) -> KernelCode:
    """The kernels and launch lines; `results`: the wrapper's names of what is stored."""
    lines: list[str] = []
    first, *others = joined.products
    text = product_epilogue(first, scope)
    spec = product_spec(first, (name, results[0]), text, scope, lines)
    shares: list[Share] = []
    extras, helpers, in_pairs = dict(text.extras), text.helpers, text.in_pairs
    for step, result in zip(others, results[1:], strict=True):
        weight, wanted = stored_operands(step)[1]
        more = _apart(product_epilogue(step, scope), extras)
        extras |= dict(more.extras)
        helpers |= more.helpers
        n = scope.symbols.wrapper(step.sizes[1])
        b = operand_text(weight, wanted, scope, lines)
        shares.append(Share(b, result, n, more.lines, more.place))
        in_pairs |= more.in_pairs
    text = replace(text, extras=tuple(extras.items()), helpers=helpers)
    spec = replace(
        spec, extras=text.extras, shares=tuple(shares), in_pairs=in_pairs,
        out_is_float=first.result.dtype in FLOATS,
    )  # fmt: skip
    return product_code(spec, schedule, text, scope, lines)


def _apart(text: EpilogueText, taken: dict[str, str]) -> EpilogueText:
    """`text` with other names for what `taken` has under the same names."""
    lines, extras = [*text.lines, text.place], []
    for name, value in text.extras:
        count, new = 0, name
        while taken.get(new, value) != value:
            count += 1
            new = f"{name.removesuffix('_ptr')}_{count}{'_ptr' if name.endswith('_ptr') else ''}"
        lines = [re.sub(rf"\b{re.escape(name)}\b", new, line) for line in lines]
        extras.append((new, value))
    *lines, place = lines
    return replace(text, lines=tuple(lines), extras=tuple(extras), place=place)
