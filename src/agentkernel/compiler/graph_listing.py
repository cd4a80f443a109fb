"""Captured graphs and their rewrites in words: a line an operator, a line a rewrite step.

The listing uses the names that the kernels' file uses. A kernel follows from such lines one by
one, while a module nests them, broadcasts, and calls layers by name: a small model that is given
the listing need not follow a module's text.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite import DEAD, RULES, Cost, Rewritten, Rule
from agentkernel.domain.plan import Algebra, AlgebraStep, Work
from agentkernel.tools.roofline.model import sizes_of

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured
    from agentkernel.tools.roofline.op_cost import SizeOf


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
    """The derivation in the rule's section of its module; "" where docstrings are off."""
    text = inspect.getdoc(inspect.getmodule(rule.apply)) or ""
    _, _, section = text.partition(f'Rule "{rule.name}":')
    _, _, rest = section.partition("Derivation:")
    return " ".join(rest.partition("Conditions:")[0].split())


def _work(cost: Cost) -> Work:
    return Work(flops=cost.flops, bytes_moved=cost.bytes_moved)


MAX_LINES = 40
"""Longer graphs have kernels that are longer than a row may be."""
MAX_CHARACTERS = 300
"""Of a line; a cut one would say something else."""
OMITTED_ARGUMENTS = ("device", "layout", "pin_memory", "memory_format")
"""Keywords that say how a graph was captured, not what it computes."""
OMITTED_OPS = ("_assert", "sym_", "alias", "detach", "clone")
"""How those begin that compute nothing."""
WEIGHT = re.compile(r"\bself\.[\w.]+")
"""A weight among operands: no input's name has a point in it."""


def graph_listing(captured: Captured) -> str:
    """The weights that are used, in the order of their use, then `name = operator(operands) shape`
    for each tensor that `captured` computes, in order:

        self.gain [4, 1]
        mul = mul(update, self.gain) [4, 1]
        gt = gt(mul, 0) bool[4, 1]

    Shapes are those of the call that was captured, types are said where they are not that of the
    first input, weights are named as the module names them. "" for a graph of more than MOST_LINES,
    or with a line of more than MOST_CHARACTERS.
    """
    weights = {
        name: f"self.{path}" for name, path in {**captured.parameters, **captured.constants}.items()
    }
    names = {name: name for name in captured.user_inputs} | weights
    nodes = list(captured.graph.graph.nodes)
    usual = next((_dtype(node) for node in nodes if node.name in captured.user_inputs), None)
    size_of = sizes_of(captured)
    counts = Counter(captured.user_inputs)
    lines: list[str] = []
    for node in nodes:
        operator = _operator(node)
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor | list | tuple):
            continue
        if operator.startswith(OMITTED_OPS):
            first = node.args[0] if node.args else None
            names[node.name] = names.get(first.name, "") if isinstance(first, Node) else ""
            continue
        count = counts[operator]
        counts[operator] += 1
        names[node.name] = f"{operator}_{count}" if count else operator
        told = [_operand(item, names, size_of) for item in node.args]
        told += [
            f"{key}={_operand(item, names, size_of)}"
            for key, item in node.kwargs.items()
            if key not in OMITTED_ARGUMENTS
        ]
        shape = _shape(value, usual, size_of) if isinstance(value, torch.Tensor) else ""
        lines.append(f"{names[node.name]} = {operator}({', '.join(told)}){shape}")
    fits = len(lines) <= MAX_LINES and all(len(line) <= MAX_CHARACTERS for line in lines)
    if not fits:
        return ""
    shapes = {
        weights[node.name]: _shape(node.meta["val"], usual, size_of)
        for node in nodes
        if node.name in weights and isinstance(node.meta.get("val"), torch.Tensor)
    }
    used = dict.fromkeys(WEIGHT.findall("\n".join(lines)))
    told = [f"{name}{shapes[name]}" for name in used if name in shapes]
    return "\n".join([*told, *lines])


def _shape(value: torch.Tensor, usual: torch.dtype | None, size_of: SizeOf) -> str:
    dtype = "" if value.dtype == usual else _type_name(value.dtype)
    return f" {dtype}[{', '.join(str(size_of(size)) for size in value.shape)}]"


def _operator(node: Node) -> str:
    """`mean` for aten.mean.dim; a Python function's own name."""
    name = str(getattr(node.target, "__name__", node.target))
    return re.sub(r"\W", "_", name.partition(".")[0])


def _operand(item: object, names: dict[str, str], size_of: SizeOf) -> str:
    if isinstance(item, Node):
        if item.name in names:
            return names[item.name]
        value = item.meta.get("val")
        return str(size_of(value) if isinstance(value, torch.SymInt) else value)
    if isinstance(item, list | tuple):
        return f"[{', '.join(_operand(one, names, size_of) for one in item)}]"
    if isinstance(item, torch.dtype):
        return _type_name(item)
    return "end" if item == sys.maxsize else str(item)


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
