"""Lowering of einsum to one product of matrices, or to a multiplication and a sum."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.compiler.ir import ONE, Expr, Node, UnsupportedOp, numel
from agentkernel.compiler.lowering.products import multiplied, product
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers


@lowers("einsum.default")
def _einsum(state: Lowering, equation: str, operands: Sequence[Node], **_: object) -> Lowered:
    """Of two operands whose own letters are all in the result, each letter once in each term."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    names = terms.split(",")
    if len(operands) != 2 or not arrow or "." in equation or not multiplied(*operands):
        raise UnsupportedOp("aten.einsum", "of other than two operands and a plain result")
    left, right = names
    own = (set(left) ^ set(right)) <= set(result) <= set(left) | set(right)
    if not own or any(len(set(term)) != len(term) for term in (left, right, result)):
        raise UnsupportedOp("aten.einsum", "a sum over one operand alone, or a diagonal")
    batch = [name for name in left if name in right and name in result]
    summed = [name for name in left if name in right and name not in result]
    mine = [name for name in left if name not in right]
    theirs = [name for name in right if name not in left]
    x, y = operands
    if summed and mine and theirs:
        return _by_product(state, (x, left), (y, right), (batch, summed, mine, theirs), result)
    order = [*result, *summed]
    one, other = (_spread(state, *term, order) for term in ((x, left), (y, right)))
    found = state.b.pointwise("mul", state.compute(one), state.compute(other))
    if not summed:
        return found
    dims = range(len(result), len(order))
    return state.b.reshape(state.b.reduce("sum", found, dims), state.shape)


def _spread(state: Lowering, value: Node, letters: str, order: Sequence[str]) -> Node:
    """`value` with a dimension for each letter of `order`, of size 1 where it has none."""
    turned = state.b.permute(value, [letters.index(name) for name in order if name in letters])
    sizes = dict(zip(letters, value.shape, strict=True))
    return state.b.reshape(turned, tuple(sizes.get(name, ONE) for name in order))


def _by_product(
    state: Lowering, left: tuple[Node, str], right: tuple[Node, str],
    groups: tuple[list[str], list[str], list[str], list[str]], result: str,
) -> Node:  # fmt: skip
    """[batch, mine, summed] by [batch, summed, theirs]."""
    b = state.b
    batch, summed, mine, theirs = groups
    (x, names), (y, others) = left, right
    sizes = dict(zip(names + others, (*x.shape, *y.shape), strict=True))

    def of(letters: Sequence[str]) -> list[Expr]:
        return [sizes[name] for name in letters]

    rows = of(mine) if not batch else [numel(of(mine))]
    a = b.permute(x, [names.index(name) for name in (*batch, *mine, *summed)])
    a = b.reshape(a, (*of(batch), *rows, numel(of(summed))))
    c = b.permute(y, [others.index(name) for name in (*batch, *summed, *theirs)])
    c = b.reshape(c, (*of(batch), numel(of(summed)), numel(of(theirs))))
    found = b.reshape(product(state, a, c), tuple(of([*batch, *mine, *theirs])))
    made = [*batch, *mine, *theirs]
    return b.permute(found, [made.index(name) for name in result])
