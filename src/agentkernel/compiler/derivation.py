"""By which exact steps did a strategy get its graph, and what did each of them save?"""

from __future__ import annotations

import inspect

from agentkernel.compiler.rewrite import DEAD, RULES, Cost, Rewritten, Rule
from agentkernel.domain.plan import Algebra, AlgebraStep, Work


def algebra_of(found: Rewritten) -> Algebra:
    """The steps of a rewrite, without what only drops nodes that nothing reads."""
    words = {rule.name: derivation_text(rule) for rule in RULES}
    steps = tuple(
        AlgebraStep(
            rule=step.rule,
            derivation=step.derivation,
            because=words.get(step.rule, ""),
            before=_work(step.before),
            after=_work(step.after),
        )
        for step in found.steps
        if step.rule != DEAD
    )
    return Algebra(steps=steps, before=_work(found.before), after=_work(found.after))


def derivation_text(rule: Rule) -> str:
    """The derivation that stands at the head of the rule's file; "" where docstrings are off."""
    text = inspect.getdoc(inspect.getmodule(rule.apply)) or ""
    _, _, rest = text.partition("Derivation:")
    return " ".join(rest.partition("Conditions:")[0].split())


def _work(cost: Cost) -> Work:
    return Work(flops=cost.flops, bytes_moved=cost.bytes_moved)
