"""Which kind of module is it, as its text says?"""

from __future__ import annotations

FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention", ("attention",)),
    ("convolution", ("conv1d", "conv2d", "conv3d", "conv_transpose")),
    ("matmul", ("matmul", "linear", ".bmm", ".mm(", "einsum", " @ ", "addmm", "baddbmm")),
    ("norm", ("norm(", "norm1d", "norm2d", "layernorm", "rmsnorm", "batchnorm", "groupnorm")),
    ("softmax", ("softmax", "logsumexp")),
    ("loss", ("loss", "cross_entropy", "kl_div", "nll")),
    ("pool", ("pool",)),
    ("scan", ("cumsum", "cumprod", "cummax", "sort", "topk")),
    (
        "reduction",
        (
            ".sum(",
            ".mean(",
            ".amax(",
            ".max(",
            ".var(",
            ".std(",
            ".prod(",
            "argmax",
            "argmin",
            ".amin(",
            ".min(",
            ".any(",
            ".all(",
        ),
    ),
    (
        "layout",
        (
            "transpose",
            "permute",
            "torch.cat",
            "gather",
            "embedding",
            "where(",
            "flip",
            "roll(",
            "index_select",
            "stack(",
        ),
    ),
)
"""The first whose word stands in a module's text says its kind."""


def module_family(text: str) -> str:
    """The kind of a module, by the heaviest operator that its text names; else "elementwise"."""
    lower = text.lower()
    for name, words in FAMILIES:
        if any(word in lower for word in words):
            return name
    return "elementwise"


__all__ = ["FAMILIES", "module_family"]
