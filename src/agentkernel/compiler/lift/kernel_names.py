"""What kernels and buffers of a lifted file are called, and what is said of a kernel: after the
operators that it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from agentkernel.compiler.lift.inductor_code import InductorKernel

SHORT = {
    "native_layer_norm": "layer_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_native_batch_norm_legit_functional": "batch_norm",
    "native_group_norm": "group_norm",
    "prepare_softmax_online": "softmax",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_safe_softmax": "softmax",
    "convolution": "conv_bias",
    "constant_pad_nd": "pad",
    "max_pool2d_with_indices": "max_pool",
    "_low_memory_max_pool_with_offsets": "max_pool",
    "avg_pool2d": "avg_pool",
    "nll_loss_forward": "nll_loss",
}
UNNAMED_OPERATORS = {
    "_to_copy", "_unsafe_view", "alias", "attention", "clone", "convert_element_type", "expand",
    "full", "lift_fresh_copy", "permute", "scalar_tensor", "slice", "squeeze", "t", "transpose",
    "unsqueeze", "view", "_unsafe_index", "iota", "arange", "select", "split", "t_copy",
}  # fmt: skip
"""Operators that move or make values, and what a kernel only gets operands ready for: they name
nothing that is computed."""
COMMON_OPERATORS = {
    "add", "addmm", "bitwise_not", "bmm", "div", "eq", "ge", "gt", "le", "logical_and",
    "logical_not", "lt", "masked_fill", "mean", "mm", "mul", "ne", "neg", "pow", "sub", "sum",
    "where",
}  # fmt: skip
"""Operators that most kernels have: named where there is nothing more telling."""
MAX_TITLE_WORDS = 3
TEMPLATE = "template"
"""TorchInductor's word for a matrix product or a convolution of its own."""


def distinctive_operators(origins: Iterable[str]) -> list[str]:
    """Names of operators, the ones that say something: up to three, in order."""
    words = [SHORT.get(item, item.strip("_")) for item in origins if item not in UNNAMED_OPERATORS]
    words = list(dict.fromkeys(words))
    special = [word for word in words if word not in COMMON_OPERATORS]
    return (special or words)[:MAX_TITLE_WORDS]


def kernel_title(code: InductorKernel) -> str:
    """`layer_norm_gelu`; `copy` for a kernel that only moves values."""
    if code.heuristic == TEMPLATE:
        return "_".join(
            [
                "matmul",
                *(
                    word
                    for word in distinctive_operators(code.origins)
                    if word not in COMMON_OPERATORS
                ),
            ]
        )
    return "copy" if is_copy(code) else "_".join(distinctive_operators(code.origins)) or "fused"


def buffer_title(code: InductorKernel) -> str:
    """What a result of the kernel is called: after its last operator."""
    moves = is_copy(code) and code.heuristic != TEMPLATE
    return "copied" if moves else (distinctive_operators(code.origins) or ["fused"])[-1]


def is_copy(code: InductorKernel) -> bool:
    """Whether every value that the kernel has is one that it loaded."""
    for node in ast.walk(ast.parse(code.source)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("tmp"):
            value = node.value
            if not isinstance(value, ast.Call) or ast.unparse(value.func) != "tl.load":
                return False
    return True


def kernel_comment(code: InductorKernel) -> str:
    """One sentence: what is fused in the kernel."""
    operators = [item for item in code.operators if item not in UNNAMED_OPERATORS]
    if code.heuristic != TEMPLATE and (is_copy(code) or not operators):
        return "Values moved to another layout."
    return f"Fused: {', '.join(dict.fromkeys(item.strip('_') for item in operators))}."
