"""The honest evaluations of one call: what its outputs might be as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from agentkernel.tools.judge.reference.honest import RoundingNoise, evaluate
from agentkernel.tools.judge.reference.pointed import points_at_equal_value

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.judge.comparison.worst import Perturb

KEPT_BYTES = 1 << 28
"""Evaluations whose outputs are smaller are kept for the other outputs of the same call."""


class Population:
    """Made as they are asked for. `rounds` names the kinds of products that PyTorch's own flags let
    round to TF32 ("conv", "mm")."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[object],
        training: bool,
        rounds: frozenset[str] = frozenset(),
    ) -> None:
        self._model = model
        self._inputs = list(inputs)
        self._training = training
        self._rounds = rounds
        self._kept: dict[tuple[int, bool], list[object] | None] = {}

    def honest(self, index: int) -> Perturb:
        """Output `index` by the number of the evaluation; None where the module does not run so."""
        return lambda draw: self._output(index, draw, rounded=False)

    def permitted(self, index: int) -> Perturb | None:
        """The same with products rounded as PyTorch's flags permit; None where they permit none."""
        return (lambda draw: self._output(index, draw, rounded=True)) if self._rounds else None

    def points_as_well(self, index: int, found: torch.Tensor, eager: torch.Tensor) -> bool | None:
        """Whether indices `found` point at values as good as those of eager's; None
        where they are not known to be indices."""
        return points_at_equal_value(self._model, self._inputs, self._training, index, found, eager)

    def _output(self, index: int, draw: int, *, rounded: bool) -> torch.Tensor | None:
        key = (draw, rounded)
        leaves = self._kept[key] if key in self._kept else self._draw(draw, rounded)
        value = leaves[index] if leaves is not None and index < len(leaves) else None
        return value if isinstance(value, torch.Tensor) else None

    def _draw(self, draw: int, rounded: bool) -> list[object] | None:
        mode = RoundingNoise(draw, self._rounds if rounded else frozenset())
        leaves = evaluate(self._model, self._inputs, self._training, mode)
        size = sum(item.nbytes for item in leaves or () if isinstance(item, torch.Tensor))
        if size <= KEPT_BYTES:
            self._kept[draw, rounded] = leaves
        return leaves


__all__ = ["Population"]
