"""A kernel for eps=1e-5 put on a norm with eps=1.0: the answer stays the norm's own."""

import torch
from torch import nn

import agentkernel

x = torch.randn(8, 256)
found = agentkernel.optimize(nn.LayerNorm(256).eval(), [x], target="h100")
other = nn.LayerNorm(256, eps=1.0).eval()
with torch.no_grad():
    want = other(x).clone()
    try:
        agentkernel.apply(other, found)
    except agentkernel.errors.AgentKernelError as error:
        print("refused:", error)
    difference = (other(x) - want).abs().max().item()
print("max difference", difference)
assert difference < 1e-5, "a kernel answered for a module that it was not verified for"
