"""Products in a captured graph whose operands have several dtypes, which eager PyTorch refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

PRODUCTS = frozenset(
    [
        "addbmm",
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "dot",
        "linear",
        "matmul",
        "mm",
        "mv",
        "vdot",
    ]
)
ATTENTION = "scaled_dot_product_attention"
"""Query, key and value have one dtype; the mask may have another."""


def mixes_dtypes(graph: GraphModule) -> bool:
    """True where a product has operands of several dtypes: a trace, which computes nothing, lets
    that pass, and eager refuses it unless autocast, of which a graph says nothing, casts them."""
    return any(_mixed(node) for node in graph.graph.nodes)


def _mixed(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    operator = "" if schema is None else str(schema.name).removeprefix("aten::")
    if operator not in PRODUCTS and operator != ATTENTION:
        return False
    operands = node.args[:3] if operator == ATTENTION else (*node.args, *node.kwargs.values())
    values = [getattr(item, "meta", {}).get("val") for item in operands]
    dtypes = {getattr(value, "dtype", None) for value in values}
    return len(dtypes - {None}) > 1
