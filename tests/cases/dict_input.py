import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, batch):
        return torch.relu(batch["x"]) * 2 + batch["y"]


def get_inputs():
    return [{"x": torch.randn(64, 256), "y": torch.randn(64, 256)}]


def get_init_inputs():
    return []
