"""Calls as the simpler operators that PyTorch itself decomposes them to."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Literal, cast

import sympy
import torch
from torch import fx
from torch._decomp import decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from agentkernel.compiler.ir import Expr
from agentkernel.compiler.lowering.grid_sample import grid_sampler_2d
from agentkernel.tools.problem.composite_operators import RECURRENT

MOST_OPERATORS = 400
"""Of one call: a bicubic sample of a grid takes about 300; more would be no readable kernel."""

OURS: dict[object, Callable[..., object]] = {
    torch.ops.aten.grid_sampler_2d.default: grid_sampler_2d
}
"""Instead of PyTorch's."""


def decomposition(
    call: fx.Node, known: Collection[str], sizes: Mapping[str, int]
) -> fx.Graph | None:
    """The operators of `call` as a graph whose placeholders are `inputs_of(call)` in their order.

    Args:
        call: a call on fake or meta tensors.
        known: the operators that need no decomposition.
        sizes: symbol -> its value, to compare numbers of elements.

    Returns:
        None where PyTorch has no decomposition, where it holds for the sizes at hand alone, has
        more than MOST_OPERATORS operators or a value larger than the operands and results of the
        call.
    """
    target = call.target
    if not isinstance(target, torch._ops.OpOverload) or _kept_whole(target):
        return None
    made = _traced(call, _table(frozenset(known), target))
    if made is None:
        return None
    made.eliminate_dead_code()
    operators = [node for node in made.nodes if node.op not in ("placeholder", "output")]
    plain = all(node.op == "call_function" for node in operators)
    if not plain or len(operators) > MOST_OPERATORS or target in {n.target for n in operators}:
        return None
    count = functools.partial(_elements, sizes=sizes)
    most = sum(map(count, (call, *inputs_of(call))))
    return made if all(count(node) <= most for node in operators) else None


def inputs_of(call: fx.Node) -> list[fx.Node]:
    """The arguments of a call that are values of the graph, one for each time they are named."""
    leaves, _ = tree_flatten((call.args, call.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, fx.Node)]


def _kept_whole(target: torch._ops.OpOverload) -> bool:
    random = torch.Tag.nondeterministic_seeded in target.tags
    return random or _is_mutable(target) or target.overloadpacket.__name__ in RECURRENT


@functools.cache
def _table(
    known: frozenset[str], target: torch._ops.OpOverload
) -> dict[torch._ops.OpOverload, Callable[..., object]]:
    """PyTorch's decompositions, and ours, without those of known operators other than `target`."""
    return {
        op: function
        for op, function in (decomposition_table | OURS).items()
        if isinstance(op, torch._ops.OpOverload)
        and (op is target or not (str(op) in known or _is_mutable(op)))
    }


def _traced(
    call: fx.Node, table: dict[torch._ops.OpOverload, Callable[..., object]]
) -> fx.Graph | None:
    """What the call does below autograd; None where tracing fails or settles a free size."""
    leaves, spec = tree_flatten((call.args, call.kwargs))
    target = cast(Callable[..., object], call.target)

    def function(*given: object) -> object:
        rest = iter(given)
        whole = [next(rest) if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(whole, spec)
        return target(*args, **kwargs)

    values = [node.meta["val"] for node in inputs_of(call)]
    # Of known sizes symbolic tracing would make symbols that no input has.
    mode: Literal["symbolic", "fake"] = "symbolic" if any(map(_is_free, values)) else "fake"
    try:
        with torch.no_grad(), _no_size_settled(values):
            graph = make_fx(function, table, tracing_mode=mode)(*values).graph
    except (RuntimeError, TypeError, ValueError, AssertionError, KeyError, IndexError):
        return None
    return graph if _write_nothing(graph) else None


def _is_free(value: object) -> bool:
    """Whether a value has a size without a number, or is one."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _write_nothing(graph: fx.Graph) -> bool:
    """Replace operators that write to a value of the graph, as `logical_not_`, by those that give
    another one; False where what is written to may be seen otherwise."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(order):
        if not isinstance(node.target, torch._ops.OpOverload) or not _is_mutable(node.target):
            continue
        packet = getattr(
            torch.ops.aten, node.target.overloadpacket.__name__.removesuffix("_"), None
        )
        function = getattr(packet, node.target._overloadname, None)
        written = node.args[0]
        if function is None or not isinstance(written, fx.Node) or _is_seen(written, node):
            return False
        node.target = function
        for user in list(written.users):
            if order[user] > order[node]:
                user.replace_input_with(written, node)
    return True


def _is_mutable(target: torch._ops.OpOverload) -> bool:
    return bool(target._schema.is_mutable)


def _is_seen(written: fx.Node, by: fx.Node) -> bool:
    """Whether a value is an operand of the call, a view of another value, or has views itself."""
    others = [user for user in written.users if user is not by]
    return written.op == "placeholder" or any(map(_is_view, (written, *others)))


def _is_view(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or _is_mutable(node.target):
        return False
    return any(item.alias_info is not None for item in node.target._schema.returns)


@contextlib.contextmanager
def _no_size_settled(values: Collection[object]) -> Iterator[None]:
    """A RuntimeError where a choice would take a free size for its value: PyTorch asks this method
    before it notes any such fact, and remembers no answer that it raises at."""
    modes = (getattr(value, "fake_mode", None) for value in values)
    environment = next((mode.shape_env for mode in modes if mode is not None), None)
    if environment is None:
        yield
        return

    def refuse(*fact: object) -> None:
        raise RuntimeError(f"for some sizes alone: {fact}")

    environment._check_frozen = refuse
    try:
        yield
    finally:
        del environment._check_frozen


def _elements(node: fx.Node, sizes: Mapping[str, int]) -> int:
    """The elements of a call's results at `sizes`; 0 where it is a number."""
    value = node.meta.get("val")
    listed = value if isinstance(value, tuple | list) else (value,)
    tensors = [item for item in listed if isinstance(item, torch.Tensor)]
    return sum(
        functools.reduce(operator.mul, (_number(size, sizes) for size in item.shape), 1)
        for item in tensors
    )


def _number(size: int | torch.SymInt, sizes: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    expr: Expr = size.node.expr
    known = {symbol: sizes.get(str(symbol), 0) for symbol in expr.free_symbols}
    return int(sympy.sympify(expr.subs(known)))
