"""Messages summed into the nodes that they are for."""

import torch
from torch import nn


class Model(nn.Module):
    """out[index[i]] += message[i], 50000 nodes."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.nodes = nodes

    def forward(self, messages: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(
            self.nodes, messages.shape[1], dtype=messages.dtype, device=messages.device
        )
        return out.index_add(0, index, messages)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(400000, 64), torch.randint(0, 50000, (400000,))]


def get_init_inputs() -> list[object]:
    return [50000]
