"""What comes back from TorchInductor?"""

from __future__ import annotations

from agentkernel.domain.base import Frozen


class LaunchConfig(Frozen):
    """One way to launch a kernel: its constants, and the grid as Python over the arguments.

    `prefix` are statements that the grid's expressions need first.
    """

    constants: tuple[tuple[str, bool | int | str | None], ...]
    num_warps: int
    num_stages: int
    prefix: tuple[str, ...]
    grid: tuple[str, str, str]


class InductorKernel(Frozen):
    """One kernel: the wrapper's variable for it, its module's source, how it may be launched.

    `origins` are the operators of the captured graph that it computes (a part of), `operators` the
    primitive ones that they were taken apart to, both in order.
    """

    variable: str
    source: str
    heuristic: str
    configs: tuple[LaunchConfig, ...]
    origins: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


class InductorCode(Frozen):
    """What TorchInductor wrote for a graph: the wrapper's source and its kernels.

    `inputs` names the graph's placeholders with a tensor, in the order of the wrapper's arguments.
    """

    variant: str
    source: str
    kernels: tuple[InductorKernel, ...]
    inputs: tuple[str, ...]
    torch_version: str
    pretended: bool
    """Written without a driver, for a device that was only described."""


class NotLifted(Frozen):
    """There is no lifted file, and why."""

    reason: str
    stage: str = "lift"
