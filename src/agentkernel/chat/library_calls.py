"""Products that a candidate leaves to the library, and whether they run on tensor cores.

The library picks its kernel where it is called, so that this follows from dtype, precision and
GPU alone, and is not known for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from agentkernel.agents.evidence import PRODUCTS
from agentkernel.agents.planner import SHORT_DTYPES
from agentkernel.chat.tree import Node
from agentkernel.domain.profile import OpCost
from agentkernel.tools.targets import find_target

FEW_OPERATIONS = 8
"""FLOPs a byte up to which a product may be of one row or a few, which cuBLAS multiplies as matrix
and vector, without tensor cores."""
ALLOWS_TF32 = "unless the process allows TF32 (torch.set_float32_matmul_precision)"
CHOOSES = "the library chooses"


class LibraryProduct(NamedTuple):
    """`tensor_cores` None: the library chooses, and nothing here can tell."""

    op: str
    dtype: str
    tensor_cores: bool | None
    how: str

    @property
    def words(self) -> str:
        """`aten.mm, fp16: on tensor cores`."""
        return f"{self.op}, {SHORT_DTYPES.get(self.dtype, self.dtype)}: {self.how}"

    @property
    def is_half(self) -> bool:
        """True for operands of 16 bits, which Triton too multiplies on tensor cores alone."""
        return self.dtype in ("float16", "bfloat16")


def library_products(node: Node) -> tuple[LibraryProduct, ...]:
    """The products of a candidate that are the library's, each once."""
    profile = node.profile
    if profile is None or profile.report is None:
        return ()
    vendor = find_target(profile.target).target.vendor
    strict = node.verdict is None or node.verdict.precision == "strict"
    found = (
        LibraryProduct(cost.op, cost.dtype, *_runs_on(cost, vendor, strict=strict))
        for cost in profile.report.library_costs
        if cost.kind in PRODUCTS
    )
    return tuple(dict.fromkeys(found))


def _runs_on(cost: OpCost, vendor: str, *, strict: bool) -> tuple[bool | None, str]:
    """Whether a product runs on tensor cores, and the words for it.

    cuBLAS and cuDNN take tensor cores for 16 bits; fp32 products run in fp32 by PyTorch's default,
    and its fp32 convolutions in TF32 (PyTorch documentation, "Numerical accuracy").
    """
    if cost.dtype in ("float16", "bfloat16"):
        alone = cost.channels == 0 or cost.flops <= FEW_OPERATIONS * cost.bytes_moved
        return (None, f"{CHOOSES}, it is small") if alone else (True, "on tensor cores")
    plain = cost.kind == "matmul" and cost.steps is None
    if cost.dtype != "float32" or vendor != "nvidia" or not (plain or cost.kind == "convolution"):
        return None, CHOOSES
    if cost.kind == "convolution":
        return None, f"{CHOOSES}; PyTorch's default allows TF32 on tensor cores"
    if strict:
        return False, f"in fp32 units, {ALLOWS_TF32}"
    return None, "on tensor cores where the process allows TF32, else in fp32 units"
