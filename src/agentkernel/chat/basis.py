"""For which GPU is a candidate's time, was it measured, and may it stand beside another?"""

from __future__ import annotations

from typing import NamedTuple

from agentkernel.chat.domain_session import Node


class TimeBasis(NamedTuple):
    """Times of one basis may be compared. `where`: the GPU that it was measured on, or the target
    that it was estimated for."""

    measured: bool
    where: str

    @property
    def words(self) -> str:
        """`measured on h200`, `estimated for h100-sxm`."""
        return f"measured on {self.where}" if self.measured else f"estimated for {self.where}"


def basis_of(node: Node) -> TimeBasis | None:
    """What its time rests on; None where it has none."""
    profile = node.profile
    if profile is None:
        return None
    if profile.measurements:
        return TimeBasis(True, profile.measured_on or profile.measurements[0].gpu.name)
    return TimeBasis(False, profile.target)


def for_target(node: Node, target: str | None) -> bool:
    """True where its time is for `target`; None: for any."""
    return node.profile is not None and target in (None, node.profile.target)
