"""How do the matrices of a model's layers learn in fewer steps? By Muon, and the rest by AdamW.

Muon (Jordan, 2024) takes a step of equal length in all directions of a matrix: it brings the
singular values of the momentum near one by five Newton-Schulz iterations. What is no matrix of a
layer (embedding and head, norms) has no such directions, and stays with AdamW. The steps of both
are of one size, so that one learning rate and one weight decay serve (arXiv 2502.16982, section
2.2), and one schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from agentkernel.domain.training import SftSettings
from agentkernel.workflows.training.sft_arguments import BETA2


class MuonAdamW(Optimizer):
    """One optimizer to a trainer: groups with "matrices" set learn by Muon, the others by AdamW.

    `params`: groups as for any optimizer, each with "matrices" beside its "params". Its state is
    that of both.
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        fused: bool = False,
    ) -> None:
        super().__init__([{**group} for group in params], {"lr": lr})
        matrices = [group for group in self.param_groups if group["matrices"]]
        others = [group for group in self.param_groups if not group["matrices"]]
        self._parts: tuple[Optimizer, ...] = (
            Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"),
            AdamW(others, lr=lr, betas=betas, fused=fused),
        )
        self._join()

    def _join(self) -> None:
        # One dictionary a group, here and there: the schedule of the learning rate changes it here.
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both."""
        loss = None if closure is None else closure()
        for part in self._parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Of both, in the order of the groups."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._join()


def muon_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters of `model` that learn, for MuonAdamW: matrices of its layers, other matrices
    (embedding and head), and what is no matrix, which does not decay.

    Layers are the modules that the model says not to split; all but embeddings and head where it
    does not say.
    """
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    layers = [item for item in model.modules() if type(item).__name__ in kinds] or [model]
    linear = [item for layer in layers for item in layer.modules() if isinstance(item, nn.Linear)]
    head = getattr(model, "lm_head", None)
    inner = {id(item.weight) for item in linear if item is not head}
    found: tuple[list[nn.Parameter], ...] = ([], [], [])
    for parameter in model.parameters():
        if parameter.requires_grad:
            place = 0 if id(parameter) in inner else 1 if parameter.ndim >= 2 else 2
            found[place].append(parameter)
    return [
        {
            "params": params,
            "matrices": place == 0,
            "weight_decay": 0.0 if place == 2 else weight_decay,
        }
        for place, params in enumerate(found)
        if params
    ]


def muon_of(sft: SftSettings, model: nn.Module) -> tuple[type[Optimizer], dict[str, Any]]:
    """The optimizer and what it is made with, as transformers' trainers ask for one."""
    groups = muon_groups(model, sft.weight_decay)
    fused = torch.cuda.is_available()
    made_with = {"params": groups, "lr": sft.learning_rate, "betas": (0.9, BETA2), "fused": fused}
    return MuonAdamW, made_with


__all__ = ["MuonAdamW", "muon_groups", "muon_of"]
