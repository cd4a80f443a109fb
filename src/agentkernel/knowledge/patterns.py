"""Which patterns do a problem's ops show, in the words that the documents use?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agentkernel.domain.plan import Analysis

OP_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "layer_norm": ("norm", "layernorm", "row_norm"),
    "rms_norm": ("norm", "rmsnorm", "row_norm"),
    "group_norm": ("norm", "group_norm"),
    "instance_norm": ("norm", "instance_norm"),
    "batch_norm": ("norm", "batch_norm"),
    "vector_norm": ("reduction", "l2"),
    "log_softmax": ("log_softmax", "row_softmax"),
    "softmax": ("softmax",),
    "cross_entropy_loss": ("loss", "cross_entropy"),
    "binary_cross_entropy_with_logits": ("loss", "bce"),
    "nll_loss_forward": ("loss", "nll"),
    "nll_loss": ("loss", "nll"),
    "mse_loss": ("loss", "mse"),
    "huber_loss": ("loss", "huber"),
    "smooth_l1_loss": ("loss", "huber"),
    "kl_div": ("loss", "kl"),
    "cosine_similarity": ("cosine", "similarity", "row_reduction"),
    "cosine_embedding_loss": ("loss", "cosine"),
    "logsumexp": ("reduction", "logsumexp"),
    "argmax": ("reduction", "argmax"),
    "argmin": ("reduction", "argmax"),
    "cumsum": ("scan", "cumsum"),
    "cumprod": ("scan", "cumsum"),
    "var": ("reduction", "variance"),
    "std": ("reduction", "variance"),
    "sum": ("reduction", "sum"),
    "mean": ("reduction", "sum"),
    "amax": ("reduction",),
    "amin": ("reduction",),
    "max": ("reduction",),
    "min": ("reduction",),
    "prod": ("reduction",),
    "linear": ("gemm", "linear"),
    "mm": ("gemm", "matmul"),
    "addmm": ("gemm", "linear"),
    "matmul": ("gemm", "matmul"),
    "bmm": ("gemm", "bmm", "batched"),
    "baddbmm": ("gemm", "bmm", "batched"),
    "mv": ("gemm", "gemv"),
    "scaled_dot_product_attention": ("attention",),
    "embedding": ("embedding", "gather"),
    "index_select": ("gather", "index_select"),
    "max_pool2d": ("pool", "max_pool2d"),
    "max_pool2d_with_indices": ("pool", "max_pool2d"),
    "avg_pool2d": ("pool", "avg_pool2d"),
    "upsample_nearest2d": ("upsample",),
    "gelu": ("activation", "pointwise"),
    "relu": ("activation", "pointwise"),
    "leaky_relu": ("activation", "pointwise"),
    "silu": ("activation", "pointwise"),
    "sigmoid": ("activation", "pointwise"),
    "tanh": ("activation", "pointwise"),
    "mish": ("activation", "pointwise"),
    "softplus": ("activation", "pointwise"),
    "hardswish": ("activation", "pointwise"),
    "hardtanh": ("activation", "pointwise"),
    "elu": ("activation", "pointwise"),
    "clamp": ("pointwise",),
    "add": ("pointwise",),
    "sub": ("pointwise",),
    "mul": ("pointwise",),
    "div": ("pointwise",),
    "pow": ("pointwise",),
    "exp": ("pointwise",),
    "round": ("pointwise",),
}
"""ATen op (without namespace and overload) -> the patterns it shows."""
GATES = ("silu", "gelu", "sigmoid")


def patterns_of(analysis: Analysis) -> tuple[str, ...]:
    """The templates' names that the analysis gives, then what its ops show; no name twice."""
    ops = {op_name(name) for name in analysis.op_counts}
    found = dict.fromkeys(analysis.patterns)
    for name in sorted(ops):
        found |= dict.fromkeys(OP_PATTERNS.get(name, ()))
    return tuple(found | dict.fromkeys(_composite(ops, found)))


def op_name(name: str) -> str:
    """`aten._native_layer_norm.default` -> `layer_norm`."""
    words = name.split(".")
    bare = (words[1] if len(words) > 1 else words[0]).strip("_")
    for prefix in ("native_", "fused_"):
        bare = bare.removeprefix(prefix)
    return "batch_norm" if bare.startswith("batch_norm") else bare


def _composite(ops: Collection[str], found: Collection[str]) -> list[str]:
    """Patterns that several ops show together."""
    result: list[str] = []
    if {"mean", "rsqrt"} <= set(ops):
        result += ["norm", "rmsnorm", "row_norm"]
    if "gemm" in found and "softmax" in found:
        result += ["attention"]
    elif "gemm" in found and "pointwise" in found:
        result += ["epilogue"]
    if "mul" in ops and any(gate in ops for gate in GATES) and "gemm" not in found:
        result += ["gated"]
    if "add" in ops and ("layernorm" in found or "rmsnorm" in [*found, *result]):
        result += ["residual"]
    return result
