"""Operators by family, and what calls of a library leave of what a module's graph computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Library = Literal["product", "convolution", "attention"]
PREFIX = "aten::"
LIBRARY = {
    "_addmm_activation",
    "_convolution",
    "_scaled_mm",
    "addbmm",
    "addmm",
    "addmv",
    "baddbmm",
    "bilinear",
    "bmm",
    "chain_matmul",
    "convolution",
    "linear",
    "matmul",
    "mm",
    "mv",
}
LIBRARY_PREFIXES = (
    "_scaled_dot_product",
    "scaled_dot_product_attention",
    "_flash_attention",
    "_efficient_attention",
    "_cudnn_attention",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_",
    "conv_transpose",
    "cudnn_convolution",
    "miopen_convolution",
    "mkldnn_convolution",
    "mkldnn_linear",
    "_conv_depthwise",
    "slow_conv",
    "_slow_conv",
    "thnn_conv",
)
CALLED_BY_NAME = {
    "_addmm_activation",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "addbmm",
    "addmm",
    "baddbmm",
    "bmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "cudnn_convolution",
    "cudnn_convolution_add_relu",
    "cudnn_convolution_relu",
    "linear",
    "matmul",
    "mm",
    "mv",
    "scaled_dot_product_attention",
}
"""Library operators that a source may call as `torch.ops.aten.NAME.OVERLOAD(...)`, any number of
times: the original has use for their kind or the call is refused when it runs."""
FAMILIES: Mapping[str, str] = {
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "_batch_norm_impl_index": "batch_norm",
    "_batch_norm_no_update": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "_cdist_forward": "cdist",
    "_cummax_helper": "cummax",
    "_cummin_helper": "cummin",
    "_embedding_bag": "embedding_bag",
    "_embedding_bag_forward_only": "embedding_bag",
    "_euclidean_dist": "cdist",
    "_log_softmax": "log_softmax",
    "_logcumsumexp": "logcumsumexp",
    "_low_memory_max_pool_with_offsets": "max_pool2d",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_safe_softmax": "softmax",
    "_softmax": "softmax",
    "_unsafe_index": "index",
    "_unsafe_index_put": "index_put",
    "argsort": "sort",
    "constant_pad_nd": "pad",
    "cudnn_batch_norm": "batch_norm",
    "cudnn_grid_sampler": "grid_sampler",
    "frobenius_norm": "norm",
    "grid_sampler_2d": "grid_sampler",
    "grid_sampler_3d": "grid_sampler",
    "instance_norm": "batch_norm",
    "linalg_norm": "norm",
    "linalg_vector_norm": "norm",
    "max_pool1d_with_indices": "max_pool1d",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "msort": "sort",
    "native_batch_norm": "batch_norm",
    "native_group_norm": "group_norm",
    "native_layer_norm": "layer_norm",
    "nll_loss2d_forward": "nll_loss",
    "nll_loss_forward": "nll_loss",
    "nll_loss_nd": "nll_loss",
    "reflection_pad1d": "pad",
    "reflection_pad2d": "pad",
    "reflection_pad3d": "pad",
    "replication_pad1d": "pad",
    "replication_pad2d": "pad",
    "replication_pad3d": "pad",
    "special_log_softmax": "log_softmax",
    "special_softmax": "softmax",
}
"""What an operator of a captured graph becomes below it, in PyTorch's own dispatch and in what
TorchInductor leaves to PyTorch, under the captured graph's name for it."""
COMPOSED: Mapping[str, tuple[str, ...]] = {"cross_entropy_loss": ("log_softmax", "nll_loss")}
"""Operators of a captured graph that are two of the others."""
MULTIPLY = {"dot", "einsum", "inner", "tensordot", "vdot"}
"""Products beside the library's own."""
ADDS = {"addbmm", "addmm", "addmv", "baddbmm"}
FUSED: Mapping[str, tuple[str, ...]] = {
    "_addmm_activation": ("product", "add", "activation"),
    "cudnn_convolution_add_relu": ("product", "add", "add", "relu"),
    "cudnn_convolution_relu": ("product", "add", "relu"),
}
ANY_OF: Mapping[str, tuple[str, ...]] = {
    "activation": ("relu", "gelu"),
    "mask": ("masked_fill", "where", "add"),
    "scale": ("mul", "div"),
}
"""A part of a fused call that stands for one of several operators."""
SUMS = ("sum", "mean", "cumsum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
        "adaptive_avg_pool2d", "adaptive_avg_pool3d")  # fmt: skip
"""What a product or a convolution with numbers computes as well."""
WRITTEN_OUT = ("product", "scale", "softmax", "product")
DISGUISE = (
    "calls of the library compute all that the original computes: an own kernel has to do some of "
    "its work"
)


@dataclass(frozen=True)
class Work:
    """Calls of one family, and the elements of all their tensor operands; None where no sizes are
    known."""

    calls: int
    elements: int | None = None


@dataclass(frozen=True)
class GraphOperators:
    """What a captured graph calls at some sizes, by family; `computes` has the parts of it that
    compute from the inputs, `library` the kinds of a library's operators that it has use for."""

    library: frozenset[Library] = frozenset()
    calls: Mapping[str, Work] = field(default_factory=dict)
    computes: Mapping[str, int] = field(default_factory=dict)

    def refusal(self, called: Mapping[str, Work]) -> str:
        """Why a source may not call what it calls, for people; "" where it may."""
        for name, work in called.items():
            known = self.calls.get(name)
            if known is None:
                return f"{name}, which the original does not call"
            if work.calls > known.calls:
                return f"{name}, called {work.calls} times where the original has {known.calls}"
            sized = work.elements is not None and known.elements is not None
            if sized and work.elements > known.elements:  # type: ignore[operator]
                sizes = f"{work.elements} elements where the original has {known.elements}"
                return f"{name}, called on {sizes}"
        return ""

    def covered_by(self, calls: Iterable[tuple[str, ...]]) -> bool:
        """Whether calls of these parts compute all that the graph does: the original in disguise,
        whatever stands beside them."""
        return bool(self.computes) and not left_over(self.computes, calls)


def family(name: str) -> str:
    """`sort` of "aten::sort", "sort_" and what sorting becomes: the captured graph's own name."""
    plain = name.removeprefix(PREFIX)
    plain = plain.removesuffix("_") if not plain.endswith("__") else plain
    return FAMILIES.get(plain, plain)


def is_library(name: str) -> bool:
    """True for a library's matrix product, convolution or attention."""
    return name in LIBRARY or name.startswith(LIBRARY_PREFIXES)


def library_kind(name: str) -> Library:
    """Of a library's operator, as `is_library` knows them."""
    if "attention" in name or "dot_product" in name:
        return "attention"
    return "convolution" if "conv" in name else "product"


def parts(name: str, given: Collection[str] = ()) -> tuple[str, ...]:
    """What one call of `name` (without "aten::") computes. `given` says which of "bias", "mask"
    and "scale" it takes beside its operands."""
    if name in FUSED:
        return FUSED[name]
    if is_library(name) and library_kind(name) == "attention":
        return ("attention", *(("mask",) if "mask" in given else ()))
    if is_library(name) or name in MULTIPLY:
        added = name in ADDS or "bias" in given
        return ("product", *(("add",) if added else ()), *(("scale",) if "scale" in given else ()))
    return COMPOSED.get(name, (family(name),))


def left_over(wanted: Mapping[str, int], calls: Iterable[tuple[str, ...]]) -> Counter[str]:
    """Of the parts `wanted` those that calls of these parts do not compute."""
    left = Counter(wanted)
    for call in calls:
        if call[0] == "attention" and not left["attention"]:
            call = (*WRITTEN_OUT, *call[1:])
        for part in call:
            surplus = part == "product" and left["product"] <= 0
            names = SUMS if surplus else ANY_OF.get(part, (part,))
            found = next((name for name in names if left[name] > 0), None)
            if found is not None:
                left[found] -= 1
    return +left
