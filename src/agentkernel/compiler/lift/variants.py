"""Under which settings is TorchInductor asked for its code?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from agentkernel.domain.base import Frozen

Attention = Literal["library", "written_out"]
"""Attention as one library call, or as its two products with a softmax between them."""


class Variant(Frozen):
    """One named patch of `torch._inductor.config`. `why` says when it may win."""

    name: str
    why: str
    patch: tuple[tuple[str, bool | int | str], ...] = ()
    attention: Attention = "written_out"

    def patch_for(self, known: frozenset[str]) -> dict[str, bool | int | str]:
        """The patch without what this torch does not know: names move between versions."""
        return {key: value for key, value in self.patch if key in known}


def _variant(name: str, why: str, **patch: bool | int | str) -> Variant:
    settings = tuple((key.replace("__", "."), value) for key, value in patch.items())
    return Variant(name=name, why=why, patch=settings)


VARIANTS = (
    _variant("default", "what torch.compile gives"),
    _variant(
        "pointwise_configs",
        "several tile sizes for kernels without a reduction, to be measured",
        max_autotune_pointwise=True,
    ),
    _variant(
        "coordinate_descent",
        "one starting point a kernel, from which tiles and warps are walked one step at a time",
        coordinate_descent_tuning=True,
    ),
    _variant(
        "multi_kernel",
        "rows in registers or looped over, both written and one chosen",
        triton__multi_kernel=1,
    ),
    _variant("looped", "rows are looped over, however short", triton__persistent_reductions=False),
    _variant(
        "cooperative",
        "few long rows: the programs of a row meet at a barrier instead of in a second kernel",
        triton__cooperative_reductions=True,
    ),
    _variant(
        "channels_last",
        "convolutions and what stands between them with channels innermost",
        layout_optimization=True,
        force_layout_optimization=True,
    ),
    _variant("channels_first", "convolutions as they were written", layout_optimization=False),
    _variant(
        "fusion",
        "what feeds a matrix product, and what follows it, in one kernel with it",
        epilogue_fusion=True,
        prologue_fusion=True,
        aggressive_fusion=True,
    ),
    _variant(
        "padded",
        "odd leading dimensions padded to the alignment of loads",
        shape_padding=True,
        force_shape_pad=True,
    ),
    _variant("combo", "independent small kernels in one launch", combo_kernels=True),
    _variant(
        "gemm_triton",
        "matrix products as Triton templates, with the epilogue in registers",
        max_autotune_gemm=True,
        max_autotune_gemm_backends="TRITON",
        max_autotune_conv_backends="TRITON",
    ),
    Variant(
        name="attention_library",
        why="attention as PyTorch's own fused kernel",
        attention="library",
    ),
)
"""Each is tried on its own; "default" first."""


def find_variant(name: str) -> Variant:
    """The variant called `name`; KeyError for one that is not there."""
    return {variant.name: variant for variant in VARIANTS}[name]


ALWAYS = ("default", "pointwise_configs", "combo")
BY_KIND: dict[str, tuple[str, ...]] = {
    "reduction": ("multi_kernel", "looped", "cooperative"),
    "convolution": ("channels_last", "channels_first", "fusion", "gemm_triton"),
    "matmul": ("fusion", "padded", "gemm_triton"),
    "attention": ("multi_kernel", "attention_library"),
}
"""Kind of operator (`tools.op_cost`) -> the variants that may write something else for it."""


def variants_for(kinds: Iterable[str]) -> tuple[Variant, ...]:
    """The variants worth asking for a graph with operators of these kinds, in their usual order.

    What is only a starting point for the same launches ("coordinate_descent") is left out: the
    search walks the launch configurations of the winner anyway.
    """
    wanted = {*ALWAYS, *(name for kind in kinds for name in BY_KIND.get(kind, ()))}
    return tuple(variant for variant in VARIANTS if variant.name in wanted)
