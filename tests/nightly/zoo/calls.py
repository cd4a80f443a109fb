"""What a loaded model returns, without gradients."""

import torch
from torch import nn

from agentkernel.nightly.zoo.loader import ForwardCall


def run_call(module: nn.Module, call: ForwardCall) -> object:
    with torch.no_grad():
        return module(*call.args, **call.kwargs)
