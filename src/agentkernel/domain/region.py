"""Regions of models that are worth a kernel, and the verified kernels known for them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.problem import DataStructure

Basis = Literal["measured", "estimated"]


class RegionUse(Frozen):
    """One submodule that a region stands for.

    `path` is its name in the model (`encoder.layers.0.mlp`; "" is the model itself), `calls` how
    often one forward calls it on the region's shapes, `parameters` its own state_dict names in the
    order of the graph: the i-th of each use of a region is the same operand. `share` is this use's
    part of the region's.
    """

    model: str
    path: str
    calls: int = Field(default=1, ge=1)
    parameters: tuple[str, ...] = ()
    share: float = 0.0


class Region(Frozen):
    """Submodules, of one model or several, that compute the same graph on the same shapes.

    `signature` is hex SHA-256, 16 digits, over the graph with its constants and the shapes, dtypes
    and strides of all operands; names and parameter values are no part of it. Times are those of
    one call in microseconds: `eager_us` as PyTorch runs it, `bound_us` the roofline's; `share` is
    the weighted share of all models' time that all uses take together, 0 to 1. `headroom` =
    1 - bound_us / eager_us; `score` = share x headroom is what a perfect kernel would save.
    `parts`: signatures of the regions that lie inside of this one, which are tried where this one
    finds nothing. `device_ops` of one call are those that launch work, 0 where nobody counted.
    `flops` and `bytes_min` of one call are the roofline's own counts; None where
    nobody counted.
    """

    signature: str = Field(pattern=r"^[0-9a-f]{16}$")
    name: str
    ops: tuple[str, ...]
    shapes: str
    uses: tuple[RegionUse, ...] = Field(min_length=1)
    basis: Basis
    eager_us: float
    bound_us: float
    share: float
    headroom: float
    score: float
    parts: tuple[str, ...] = ()
    device_ops: int = 0
    flops: int | None = None
    bytes_min: int | None = None


class Refused(Frozen):
    """A submodule that no kernel can stand for, and why, in one line."""

    model: str
    path: str
    reason: str


class ModelCut(Frozen):
    """What one model's forward was cut into. `time_us`: one eager forward; the regions of it may
    lie in one another (`Region.parts`). `shapes` are those of the model's inputs."""

    model: str
    basis: Basis
    time_us: float
    regions: tuple[Region, ...]
    refused: tuple[Refused, ...] = ()
    shapes: str = ""


class KernelKey(Frozen):
    """What a verified kernel holds for. `gpu`: the model of the GPU that measured it, or
    `estimated:TARGET` where none did."""

    signature: str = Field(pattern=r"^[0-9a-f]{16}$")
    gpu: str
    torch: str
    triton: str
    precision: str = "strict"
    dtype: str = ""


class Kernel(Frozen):
    """A verified drop-in for a region. `parameters` are its state_dict names in the region's order.

    `input_strides` and `parameter_strides` are in elements, one entry an operand, as they were when
    it was verified (None for a scalar); empty: every operand was contiguous.
    `arguments` says how the inputs, tensors alone then, lie in the pair of a call's positional
    arguments and keywords (None: they are its positional arguments), `returns` how the outputs lie
    in what it returns (None: as the kernel returns them).
    `speedup` over the faster baseline of the region alone, with the lower end of its 95% interval;
    None where nothing was measured. `withdrawn` says why it may not be used any more.
    """

    key: KernelKey
    sha256: str
    source: str
    parameters: tuple[str, ...]
    input_strides: tuple[tuple[int, ...] | None, ...] = ()
    parameter_strides: tuple[tuple[int, ...], ...] = ()
    arguments: DataStructure | None = None
    returns: DataStructure | None = None
    certificate: Certificate
    run: str
    created: str
    basis: Basis
    speedup: float | None = None
    speedup_low: float | None = None
    time_us: float | None = None
    baseline_us: float | None = None
    verified: str = ""
    """When it was last judged again, as ISO 8601 in UTC."""
    withdrawn: str | None = None
