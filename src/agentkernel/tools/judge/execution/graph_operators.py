"""What a captured graph calls and computes, as the policy `mixed` allows it to a candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast, get_args

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from agentkernel.tools.judge.execution.operators import is_free
from agentkernel.tools.judge.memory_count import NOT_COUNTED, graph_values
from agentkernel.tools.judge.policy.families import (
    COMPOSED,
    GraphOperators,
    Library,
    Work,
    family,
    parts,
)

if TYPE_CHECKING:
    from torch.fx import Graph

    from agentkernel.domain.problem import ShapeSet
    from agentkernel.tools.problem.capture import Captured

PRODUCTS = {
    *("addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "cdist", "chain_matmul"),
    *("cosine_similarity", "dot", "einsum", "ger", "gru", "gru_cell", "inner", "kron", "linear"),
    *("lstm", "lstm_cell", "matmul", "matrix_power", "mm", "mv", "outer", "rnn_relu", "rnn_tanh"),
    *("rnn_relu_cell", "rnn_tanh_cell", "tensordot", "vdot"),
}
PRODUCT_PREFIXES = ("linalg_", "fft_", "stft", "istft", "_trilinear", "_scaled_mm", "_grouped_mm")
BUILTIN_MODULES = {"_operator", "builtins", "math", "operator", "torch"}
"""Whose functions compute with sizes in a graph."""
QUESTIONS = ("sym_", "_assert")
MOVES = {"type_as"}
"""Casts beside those that are free by their schema."""
BIASED = 2
"""The place of a bias among the operands of a linear map and of a convolution; a mask comes next.
"""


def graph_operators(captured: Captured, inputs: ShapeSet | None = None) -> GraphOperators:
    """The operators of `captured` at the sizes of `inputs`; without sizes where None is given or
    the graph does not run at these."""
    values: Mapping[str, object] = {}
    if inputs is not None:
        try:
            values = graph_values(captured, inputs)
        except NOT_COUNTED:
            values = {}
    calls: dict[str, Work] = {}
    computed: list[tuple[bool, tuple[str, ...]]] = []
    outside = _from_outside(captured.graph.graph)
    for node in captured.graph.graph.nodes:
        if node.op != "call_function" or _is_question(node):
            continue
        name = _base_name(node)
        for called in {family(name), *COMPOSED.get(name, ())}:
            known = calls.get(called, Work(0, 0 if values else None))
            elements = None
            if known.elements is not None:
                elements = known.elements + _operand_elements(node, values)
            calls[called] = Work(known.calls + 1, elements)
        if node in outside and not (name in MOVES or is_free(name)):
            done = parts(name, set(_given(node))) if name else (str(node.target),)
            computed.append((_is_number(node), done))
    large = [item for one, item in computed if not one]
    counted = large or [item for _, item in computed]
    return GraphOperators(
        library=library_kinds(captured.graph.graph),
        calls=calls,
        computes=Counter(part for item in counted for part in item),
    )


def _from_outside(graph: Graph) -> set[Node]:
    """Nodes that depend on an input, a weight or a buffer: a mask of the sizes alone does not."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") or found.intersection(node.all_input_nodes):
            found.add(node)
    return found


def _is_question(node: Node) -> bool:
    """Whether it computes with sizes, takes a result apart, or asserts."""
    if callable(node.target) and getattr(node.target, "__module__", "") in BUILTIN_MODULES:
        return True
    return _base_name(node).startswith(QUESTIONS)


def _given(node: Node) -> Iterator[str]:
    """What a product, a convolution or attention takes beside its operands."""
    tensors = [isinstance(item, Node) for item in node.args]
    if any(tensors[BIASED : BIASED + 1]) or isinstance(node.kwargs.get("bias"), Node):
        yield "bias"
    masked = any(tensors[BIASED + 1 : BIASED + 2])
    if masked or isinstance(node.kwargs.get("attn_mask"), Node):
        yield "mask"
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        yield "scale"


def _operand_elements(node: Node, values: Mapping[str, object]) -> int:
    """Elements of all tensors that a call takes."""
    given = [values.get(item.name) for item in _operands(node)]
    return sum(item.numel() for item in given if isinstance(item, torch.Tensor))


def _is_number(node: Node) -> bool:
    """Whether it takes single numbers alone, at any sizes: what a loss is scaled by, say."""
    given = [item.meta.get("val") for item in _operands(node)]
    shapes = [item.shape for item in given if isinstance(item, torch.Tensor)]
    sizes = [size for shape in shapes for size in shape]
    return bool(shapes) and all(isinstance(size, int) and size == 1 for size in sizes)


def _operands(node: Node) -> list[Node]:
    leaves = tree_leaves((node.args, dict(node.kwargs)))
    return [item for item in leaves if isinstance(item, Node)]


def library_kinds(graph: Graph) -> frozenset[Library]:
    """The kinds of library operators that compute something which `graph`, of a captured module,
    computes too: a sum is no product with ones, a softmax no attention. A convolution may be done
    as a product and the other way round, and so may the attention that is written out."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    names = [_base_name(node) for node in calls]
    if not all(names):
        return frozenset(get_args(Library))
    products = sum(_multiplies(name) for name in names) + sum(map(_is_summed_product, calls))
    found: set[Library] = set()
    if products or any("conv" in name for name in names):
        found |= {"product", "convolution"}
    if any("attention" in name for name in names):
        found |= {"product", "attention"}
    if products > 1 and any("softmax" in name for name in names):
        found.add("attention")
    return frozenset(found)


def _base_name(node: Node) -> str:
    """`softmax` of aten.softmax.int; "" for what is no operator of torch's own."""
    space, dot, rest = str(node.target).partition(".")
    if callable(node.target) and getattr(node.target, "__module__", "") in BUILTIN_MODULES:
        return str(getattr(node.target, "__name__", ""))
    return rest.partition(".")[0] if dot and space == "aten" else ""


def _multiplies(name: str) -> bool:
    return name in PRODUCTS or name.startswith(PRODUCT_PREFIXES)


def _is_summed_product(node: Node) -> bool:
    """Whether it adds up what two tensors give when they are multiplied."""
    if _base_name(node) not in {"sum", "mean"} or not node.args:
        return False
    factors = cast("Node", node.args[0])
    if _base_name(factors) not in {"mul", "multiply"}:
        return False
    return len({item for item in factors.args if hasattr(item, "op")}) > 1
