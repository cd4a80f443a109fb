"""What must a loaded model offer to be cut into regions?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import nn


class NamedSpec(Protocol):
    """The zoo's entry, as far as a cut needs it."""

    @property
    def name(self) -> str:
        """Unique in its zoo."""
        ...


class ModelCall(Protocol):
    """The arguments of one forward."""

    @property
    def args(self) -> tuple[object, ...]:
        """Positional arguments."""
        ...

    @property
    def kwargs(self) -> Mapping[str, object]:
        """Keyword arguments."""
        ...


class ModelSource(Protocol):
    """A model that can be built and called again and again with the same weights and shapes."""

    @property
    def spec(self) -> NamedSpec:
        """The zoo's entry."""
        ...

    def build(self, device: str = "cpu") -> nn.Module:
        """The module in eval mode, without gradients."""
        ...

    def make_call(self, device: str = "cpu", seed: int = 0) -> ModelCall:
        """Arguments with the values that `seed` draws."""
        ...
