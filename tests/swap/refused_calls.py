"""Calls of swapped modules outside of what their kernels were verified for, by the reason."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from agentkernel.swap.swap import apply
from tests.swap.applied_kernels import WRONG, Block, block, norm_kernel


def swapped(model: Block | None = None) -> Block:
    """Its first norm is off by a quarter wherever the kernel runs."""
    model = model or block()
    apply(model, {"norm": norm_kernel(WRONG)})
    return model


def norm_of(model: Block, x: torch.Tensor) -> torch.Tensor:
    return model.norm(x)


def call_with_grad(model: Block, x: torch.Tensor) -> torch.Tensor:
    return norm_of(model, x.requires_grad_())


def call_with_trained_weight(model: Block, x: torch.Tensor) -> torch.Tensor:
    model.norm.weight.requires_grad_()
    return norm_of(model, x)


def call_in_autocast(model: Block, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return norm_of(model, x)


def call_in_training(model: Block, x: torch.Tensor) -> torch.Tensor:
    return norm_of(model.train(), x)


def call_with_vmap(model: Block, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = torch.func.vmap(model.norm)(x[None])
    return out[0]


def call_with_dual(model: Block, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)  # type: ignore[no-untyped-call]
        return forward_ad.unpack_dual(model.norm(dual)).primal  # type: ignore[no-untyped-call]


def call_in_a_mode(model: Block, x: torch.Tensor) -> torch.Tensor:
    with FlopCounterMode(display=False):
        return norm_of(model, x)


def call_on_meta(model: Block, x: torch.Tensor) -> torch.Tensor:
    model.norm.to("meta")
    return norm_of(model, x.to("meta"))


def call_in_double(model: Block, x: torch.Tensor) -> torch.Tensor:
    model.norm.double()
    return norm_of(model, x.double())


def call_with_another_eps(model: Block, x: torch.Tensor) -> torch.Tensor:
    model.norm.eps = 1e-3
    return norm_of(model, x)


def call_while_traced(model: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.jit.trace(model.norm, x, check_trace=False)(x)  # type: ignore[no-untyped-call]


CALLS: dict[str, Callable[[Block, torch.Tensor], torch.Tensor]] = {
    "shape": lambda model, x: model.norm(torch.cat([x, x])),
    "dtype": call_in_double,
    "stride": lambda model, x: model.norm(x.t().contiguous().t()),
    "device": call_on_meta,
    "grad": call_with_grad,
    "training": call_in_training,
    "autocast": call_in_autocast,
    "functorch": call_with_vmap,
    "forward_ad": call_with_dual,
    "mode": call_in_a_mode,
    "attributes": call_with_another_eps,
    "tracing": call_while_traced,
    "type": lambda model, x: model.norm(nn.Parameter(x).as_subclass(Odd)),
}


class Odd(torch.Tensor):
    pass


class Scaled(nn.Module):
    def forward(
        self, x: torch.Tensor, scale: float = 2.0, mask: object = None, *, exact: bool = True
    ) -> torch.Tensor:
        return x * scale if mask is None else x


SCALED = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, scale):
        return x * scale + 1
"""


def child_hook(model: Block) -> None:
    model.mlp.up.register_forward_hook(lambda *_: None)


def child_replaced(model: Block) -> None:
    model.mlp.up = nn.Linear(8, 16).requires_grad_(False).eval()


def child_added(model: Block) -> None:
    model.mlp.more = nn.Identity()


def child_trained(model: Block) -> None:
    model.mlp.down.train()


def child_changed(model: Block) -> None:
    model.mlp.down.forward = torch.sin  # type: ignore[method-assign]
