"""Which exact rewrites make a captured graph cheaper, and what is left when none does?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch.fx import Graph, Node

from agentkernel.compiler.rewrite.constants import degenerate
from agentkernel.compiler.rewrite.cost import NodeCost, graph_cost
from agentkernel.compiler.rewrite.draft import Draft, erase_dead, swap
from agentkernel.compiler.rewrite.outputs import with_graph
from agentkernel.compiler.rewrite.record import Cost, Rewritten, Rule, Step
from agentkernel.compiler.rewrite.rules import RULES
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.roofline import sizes_of

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
    graph = _copied(captured)
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


def _copied(captured: Captured) -> Graph:
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
