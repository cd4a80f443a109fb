"""The search for exact rewrites that make a captured graph cheaper.

Costs are operations and bytes through memory. The edited graph becomes a captured one again, each
output in memory of its own; outputs that are the same for every finite input are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

import sympy
import torch
from torch.fx import Graph, GraphModule, Node

from agentkernel.compiler.rewrite.draft import (
    Cost,
    Draft,
    Rewritten,
    Rule,
    Step,
    argument,
    base_op,
    erase_dead,
    floating,
    is_random,
    shape,
    static,
    swap,
    tensor,
)
from agentkernel.compiler.rewrite.intervals import value_range
from agentkernel.compiler.rewrite.rules import RULES
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.model import sizes_of
from agentkernel.tools.roofline.op_cost import (
    ALLOCATIONS,
    SizeOf,
    is_fill,
    is_free,
    op_cost,
    op_name,
    stored_bytes,
)


def with_graph(captured: Captured, draft: Draft) -> Captured:
    """`captured` with the graph of `draft`, its outputs' names and its assumptions on sizes."""
    graph = draft.graph
    output = output_of(graph)
    new, old = returned(graph), returned(captured.graph.graph)
    fresh = [
        _owned(draft, output, index, new, old) if isinstance(item, Node) else item
        for index, item in enumerate(new)
    ]
    output.args = (tuple(fresh),)  # type: ignore[arg-type]
    first = len(fresh) - len(captured.outputs)
    names = tuple(
        item.name if isinstance(item, Node) and name is not None else None
        for item, name in zip(fresh[first:], captured.outputs, strict=True)
    )
    graph.lint()
    module = GraphModule(captured.graph, graph)
    return replace(captured, graph=module, outputs=names, guards=_guards(graph, captured.guards))


def output_of(graph: Graph) -> Node:
    """The node that returns."""
    return graph.output_node()


def returned(graph: Graph) -> list[object]:
    """What a graph returns: new values of buffers and inputs first, then forward's outputs."""
    values = output_of(graph).args[0]
    assert isinstance(values, tuple | list)
    return list(values)


def _owned(draft: Draft, output: Node, index: int, new: list[object], old: list[object]) -> Node:
    """A copy where an output would come to share memory with an input or an earlier output."""
    value = new[index]
    assert isinstance(value, Node)
    root, before = _root(value), _root(old[index])
    given = root is not None and root.op == "placeholder"
    aliases = given and (before is None or before.op != "placeholder")
    for other in range(index):
        shares = _root(new[other]) is root and _root(old[other]) is not before
        aliases |= shares and not given
    if not aliases:
        return value
    with draft.before(output):
        return draft.call(torch.ops.aten.clone.default, value)


def _root(node: object) -> Node | None:
    """The node below all views; None for what is no node."""
    if not isinstance(node, Node):
        return None
    while node.op == "call_function" and is_free(node.target) and node.all_input_nodes:
        if op_name(node.target) in ALLOCATIONS or tensor(node) is None:
            break
        node = node.all_input_nodes[0]
    return node


def _guards(graph: Graph, known: tuple[sympy.Basic, ...]) -> tuple[sympy.Basic, ...]:
    """What is taken for granted about sizes, that of the new nodes included."""
    for node in graph.nodes:
        value = tensor(node)
        for size in value.shape if value is not None else ():
            if isinstance(size, torch.SymInt):
                guards = (guard.expr for guard in size.node.shape_env.guards)
                return tuple(dict.fromkeys((*known, *guards)))
    return known


def degenerate(captured: Captured, draft: Draft) -> tuple[int, ...]:
    """Positions of outputs that do not depend on the inputs' finite values, only on their sizes."""
    values = returned(captured.graph.graph)
    first = len(values) - len(captured.outputs)
    known: dict[Node, bool] = {}
    return tuple(
        index
        for index, value in enumerate(values[first:])
        if isinstance(value, Node) and _constant(draft, value, known)
    )


def _constant(draft: Draft, node: Node, known: dict[Node, bool]) -> bool:
    """Whether a node's value follows from parameters and sizes. Walks without recursing deeply."""
    for item in draft.graph.nodes:
        if item.op == "placeholder":
            known[item] = item.name in draft.fixed
        elif item.op == "call_function" and item not in known:
            known[item] = _one(draft, item, known)
    return known.get(node, False)


def _one(draft: Draft, node: Node, known: dict[Node, bool]) -> bool:
    if is_random(node):
        return False
    if isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat):
        return base_op(node) == "sym_size" or all(known.get(x, False) for x in node.all_input_nodes)
    if is_fill(node.target) or all(known.get(item, False) for item in node.all_input_nodes):
        return True
    if tensor(node) is None:
        return False
    low, high = value_range(draft, node)
    return low == high or _no_room(node)


def _no_room(node: Node) -> bool:
    """A softmax over one element is 1; a norm over one element has nothing left but its bias."""
    name = base_op(node)
    if name in ("softmax", "_softmax", "log_softmax", "_log_softmax") and floating(node.args[0]):
        dim = argument(node, "dim")
        return isinstance(dim, int) and static(shape(node.args[0])[dim]) == 1
    if name == "layer_norm":
        sizes = argument(node, "normalized_shape")
        inputs = [argument(node, item) for item in ("weight", "bias")]
        free = any(isinstance(item, Node) and item.op != "placeholder" for item in inputs)
        return isinstance(sizes, list | tuple) and all(static(x) == 1 for x in sizes) and not free
    return False


@dataclass(frozen=True)
class NodeCost:
    """One call as a launch of its own; `written`: bytes of its result; `fuses`: pointwise."""

    flops: int
    bytes_moved: int
    written: int
    fuses: bool


FREE = NodeCost(0, 0, 0, fuses=False)


def graph_cost(graph: Graph, size_of: SizeOf, known: MutableMapping[Node, NodeCost]) -> Cost:
    """Operations and bytes of what the outputs need; `known` remembers nodes between calls.

    Each call reads its operands and writes its result; a pointwise call's result that pointwise
    calls alone read is not stored, as in any compiler's kernels.
    """
    flops = moved = 0
    needed = live_nodes(graph)
    for node in needed:
        if node not in known:
            known[node] = node_cost(node, size_of)
    for node in needed:
        cost = known[node]
        flops += cost.flops
        moved += cost.bytes_moved
        readers = [user for user in node.users if user in needed] if cost.fuses else []
        if readers and all(known[user].fuses for user in readers):
            moved -= (1 + len(readers)) * cost.written
    return Cost(flops, moved)


def live_nodes(graph: Graph) -> set[Node]:
    """The nodes that the outputs depend on."""
    found: set[Node] = set()
    pending: list[Node] = [graph.output_node()]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def node_cost(node: Node, size_of: SizeOf) -> NodeCost:
    """One node's operations and bytes; views and sizes are free, an operand is read once."""
    if node.op != "call_function" or is_free(node.target):
        return FREE
    results = list(_tensors([node.meta.get("val")]))
    if not results:
        return FREE
    args = [_value(item) for item in node.args]
    found = op_cost(node.target, args, node.meta["val"], size_of)
    listed = [item for item in node.args if isinstance(item, Node)]
    again = [item for index, item in enumerate(listed) if item in listed[:index]]
    twice = sum(stored_bytes(x, size_of) for item in again for x in _tensors([item.meta["val"]]))
    written = sum(stored_bytes(item, size_of) for item in results)
    return NodeCost(
        found.flops, found.bytes_moved - twice, written, fuses=found.kind == "pointwise"
    )


def _value(item: object) -> object:
    if isinstance(item, list | tuple):
        return [_value(part) for part in item]
    return item.meta.get("val") if isinstance(item, Node) else item


def _tensors(values: Iterable[object]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


DEAD = "dead nodes"
MAX_STEPS = 300
"""Steps after which the search ends, whatever is left: every step lowers the cost, so only huge
graphs come here."""
CHECKS = ("aten._assert_tensor_metadata.default",)
"""What the exporter adds to check dtypes when the graph is run; it computes nothing."""


def rewrite(
    captured: Captured,
    rules: Sequence[Rule] = RULES,
    *,
    infinities: bool = True,
    most_steps: int = MAX_STEPS,
) -> Rewritten:
    """Apply `rules` in their order, node by node, until a whole pass changes nothing.

    A step is kept where operations and bytes, weighed together, go down. With `infinities` NaN and
    infinities stay where eager has them; without, rules come in that hold for finite values only.
    `captured` is left as it is. Parameters are taken to be finite.
    """
    graph = copied(captured)
    placeholders = frozenset(captured.parameters) | frozenset(captured.constants)
    draft = Draft(graph, placeholders, sizes_of(captured), infinities)
    search = _Search(draft, [rule for rule in rules if not (infinities and rule.finite_only)])
    before = search.cost()
    removed = erase_dead(graph)
    if removed:
        line = f"nothing reads {', '.join(removed)}"
        search.steps.append(Step(DEAD, line, removed, (), before, search.cost()))
    complete = search.run(most_steps)
    result = with_graph(captured, draft)
    search.known.clear()
    return Rewritten(
        result, tuple(search.steps), degenerate(result, draft), before, search.cost(), complete
    )


@dataclass
class _Search:
    """The passes over one graph."""

    draft: Draft
    rules: list[Rule]
    steps: list[Step] = field(default_factory=list)
    known: dict[Node, NodeCost] = field(default_factory=dict)

    def cost(self) -> Cost:
        return graph_cost(self.draft.graph, self.draft.size_of, self.known)

    def run(self, most_steps: int) -> bool:
        """Passes until one changes nothing (True), or until the steps are used up (False)."""
        changed = True
        while changed:
            changed = False
            for rule in self.rules:
                for node in list(self.draft.graph.nodes):
                    if len(self.steps) >= most_steps:
                        return False
                    if node.op == "call_function" and not node._erased:
                        changed |= self._try(rule, node)
        return True

    def _try(self, rule: Rule, node: Node) -> bool:
        draft = self.draft
        with draft.before(node):
            change = rule.apply(draft, node)
        if change is None:
            draft.discard()
            return False
        before = self.cost()
        swapped = swap(change.replaced, draft.added)
        after = self.cost()
        if after.units >= before.units:
            swapped.undo()
            for item in draft.added:
                self.known.pop(item, None)
            draft.discard()
            return False
        added = list(draft.added)
        removed = erase_dead(draft.graph)
        draft.ranges.clear()
        kept = tuple(item.name for item in added if not item._erased)
        self.steps.append(Step(rule.name, change.derivation, removed, kept, before, after))
        return True


def copied(captured: Captured) -> Graph:
    """The graph again, without run-time checks of dtypes."""
    graph = Graph()
    made: dict[Node, Node] = {}
    result = graph.graph_copy(captured.graph.graph, made)
    for given, copied in made.items():
        copied.name = given.name  # a new node is never named as a builtin is, such as `input`
    old = next(node for node in captured.graph.graph.nodes if node.op == "output")
    graph.output(result).meta.update(old.meta)
    for node in list(graph.nodes):
        if str(node.target) in CHECKS and not node.users:
            graph.erase_node(node)
    return graph
