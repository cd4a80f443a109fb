"""The mean of a bag of embeddings, then a linear layer and ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, words, inner, outer):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, inner, mode="mean")
        self.fc = nn.Linear(inner, outer)

    def forward(self, places):
        return torch.relu(self.fc(self.bag(places)))


def get_inputs():
    return [torch.randint(0, 100, (24, 6))]


def get_init_inputs():
    return [100, 32, 48]
