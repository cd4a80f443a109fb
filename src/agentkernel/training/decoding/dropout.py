"""How is a model kept from learning few modules by heart?

Of what the embedding gives and each decoder layer adds, a share is left out at a step, drawn anew
for each token and column (Srivastava et al., JMLR 15, 2014; at these places as Vaswani et al.,
arXiv 1706.03762, section 5.4). Llama-like models have no such setting of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.nn.functional import dropout

from agentkernel.domain.errors import TrainingError

if TYPE_CHECKING:
    import torch
    from torch import nn

ADDED = ("o_proj", "down_proj")
"""The last matrices of attention and MLP in Llama-like models: what they give is added."""


@dataclass(frozen=True)
class BranchDropout:
    """A forward hook that leaves out `share` of what a module gives; nothing when it answers."""

    share: float

    def __call__(self, module: nn.Module, given: object, found: torch.Tensor) -> torch.Tensor:
        return dropout(found, self.share, training=module.training)


def add_dropout(model: nn.Module, share: float) -> int:
    """Leave out `share` (0 to 1) of what the embedding and the layers of `model` give, while it is
    in training mode; saved weights know nothing of it. Gives at how many places; 0 for a share of
    0. Raises TrainingError where the model has none of them."""
    if not share:
        return 0
    layers = [item for name, item in model.named_modules() if name.rpartition(".")[2] in ADDED]
    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    if not layers or embedding is None:
        raise TrainingError(
            f"sft.dropout is {share}, and {type(model).__name__} has no layers that end in "
            f"{' and '.join(ADDED)}. Expected a Llama-like model. Next: -c sft.dropout=0."
        )

    for item in (embedding, *layers):
        item.register_forward_hook(BranchDropout(share))
    return 1 + len(layers)


__all__ = ["BranchDropout", "add_dropout"]
