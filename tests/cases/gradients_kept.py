"""Trains through the drop-in that argument 1 names: a gradient for every parameter, or an error."""

import importlib.util
import sys

import torch
from torch import nn

spec = importlib.util.spec_from_file_location("dropin", sys.argv[1])
dropin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dropin)
net = nn.Sequential(nn.Linear(16, 8192), dropin.ModelNew(8192), nn.Linear(8192, 1))
try:
    net(torch.randn(2, 16)).sum().backward()
except RuntimeError as error:
    print("raised:", error)
else:
    missing = [name for name, value in net.named_parameters() if value.grad is None]
    assert not missing, f"no gradient: {missing}"
