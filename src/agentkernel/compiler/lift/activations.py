"""Activation functions recognised in the operations that TorchInductor takes them apart to."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from agentkernel.compiler.kernel_math import MATH
from agentkernel.compiler.lift.tidy import NameUses, assigned, blocks, uses_of
from agentkernel.storage.source_text import parse_expression

COARSE = "coarse_"
FORMS = {
    "gelu": "X * 0.5 * (tl.erf(X * 0.7071067811865476) + 1.0)",
    "gelu_tanh": "X * 0.5 * (tanh((X + X * X * X * 0.044715) * 0.7978845608028654) + 1.0)",
    "mish": "X * tanh(tl.where(X > 20.0, X, log1p(exp(X))))",
    "softplus": "tl.where(X > 20.0, X, log1p(exp(X)))",
    "log_sigmoid": "minimum(0.0, X) - log1p(exp(-tl.abs(X)))",
    "silu": "X / (exp(-X) + 1.0)",
}
"""Helper -> the same of one value X, as TorchInductor's decompositions have it."""
PATTERNS = {name: parse_expression(text) for name, text in FORMS.items()}
SWAPPED = (ast.Add, ast.Mult)


def join_activations(function: ast.FunctionDef, *, coarse: bool) -> None:
    """Put the helper in the place of each form, in place; `coarse`: that for 16 bits."""
    uses = uses_of(function)
    values = {}
    for block in blocks(function.body):
        for pair in map(assigned, block):
            if pair is not None and uses.once(pair[0]):
                values[pair[0]] = copy.deepcopy(pair[1])
    _Join(_Forms(values, uses), coarse).visit(function)


@dataclass(frozen=True)
class _Forms:
    """What a function's names stand for, those that are bound once."""

    values: dict[str, ast.expr]
    uses: NameUses

    def found(self, node: ast.expr) -> tuple[str, str] | None:
        """(helper, name of its argument) where `node` is one of the forms."""
        for name, pattern in PATTERNS.items():
            bound = self._match(pattern, node, None)
            if bound is not None:
                return name, bound
        return None

    def _match(self, pattern: ast.expr, node: ast.expr, bound: str | None) -> str | None:
        """The name that X stands for, or None where `node` is not `pattern`."""
        if isinstance(pattern, ast.Name) and pattern.id == "X":
            if not isinstance(node, ast.Name) or bound not in (None, node.id):
                return None
            return node.id if self.uses.once(node.id) else None
        if isinstance(node, ast.Name) and node.id in self.values:
            return self._match(pattern, self.values[node.id], bound)
        wanted, given = _parts(pattern), _parts(node)
        if wanted is None or given is None or wanted[0] != given[0]:
            return None
        found = self._all(wanted[1], given[1], bound)
        if found is None and _commutes(pattern):
            found = self._all(wanted[1], given[1][::-1], bound)
        return found

    def _all(
        self, patterns: list[ast.expr], nodes: list[ast.expr], bound: str | None
    ) -> str | None:
        if len(patterns) != len(nodes):
            return None
        for pattern, node in zip(patterns, nodes, strict=True):
            if isinstance(pattern, ast.Constant):
                if not (isinstance(node, ast.Constant) and node.value == pattern.value):
                    return None
                continue
            bound = self._match(pattern, node, bound)
            if bound is None:
                return None
        return bound


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]] | None:
    """An operation's name and its operands."""
    if isinstance(node, ast.BinOp):
        return type(node.op).__name__, [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return type(node.op).__name__, [node.operand]
    if isinstance(node, ast.Compare):
        return type(node.ops[0]).__name__, [node.left, *node.comparators]
    if isinstance(node, ast.Call) and not node.keywords:
        return ast.unparse(node.func).removeprefix(COARSE), node.args
    return None


def _commutes(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "minimum"
    return isinstance(node, ast.BinOp) and isinstance(node.op, SWAPPED)


class _Join(ast.NodeTransformer):
    def __init__(self, forms: _Forms, coarse: bool) -> None:
        self.forms, self.coarse = forms, coarse

    def visit(self, node: ast.AST) -> ast.AST:
        """A form as a whole, before its parts."""
        found = self.forms.found(node) if isinstance(node, ast.BinOp | ast.Call) else None
        if found is None:
            return self.generic_visit(node)
        name, argument = found
        coarse = self.coarse and COARSE + name in MATH
        called = ast.Name(COARSE + name if coarse else name, ast.Load())
        return ast.copy_location(ast.Call(called, [ast.Name(argument, ast.Load())], []), node)
