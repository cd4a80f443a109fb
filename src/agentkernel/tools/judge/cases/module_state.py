"""Other values for the parameters and buffers of a module, its masks and indices kept as such."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.tools.judge.cases.noise import normals, uniform

if TYPE_CHECKING:
    import torch
    from torch import nn


SCALED_WEIGHT = 1.5
ZERO_WEIGHTS = 0.125
"""Of parameters with signs and sizes of their own, so many are zero."""
VANISHED = 16
"""Of so many variances one is zero, and one is next to zero."""
NEXT_TO_ZERO = 1e-8
AHEAD = (1_000, 100_000)
"""So far ahead are counts of calls: past a warm-up, and past most schedules."""
SMALL = 3
"""The largest of small integers, as zero points and kinds of tokens are."""


def randomise_state(model: nn.Module, seed: int, sign: int = 0, least: int | None = None) -> None:
    """Move parameters and buffers off their initial values, in place, reproducibly.

    Zeros, signs and infinities of plain buffers stay: they may be masks. With a `sign`, parameters
    may have any sign and size and be zero, one of a single element is past 1 on that side, and
    masks and indices have their slices along the last dimension in another order, and
    below zero some variances vanish. With a `least` too, buffers of one value everywhere get
    others: a count is far ahead, other integers are from `least` on, small ones or 0 and 1, floats
    of both signs; and some rows of matrices are zero."""
    import torch

    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    with torch.no_grad():
        for position, (name, value) in enumerate(sorted(model.state_dict().items())):
            if value.numel() == 0:
                continue
            generator = torch.Generator(device=value.device)
            generator.manual_seed(seed * 1009 + position)
            is_parameter = name in parameters
            known = name.rpartition(".")[2] in ("running_mean", "running_var")
            plain = not (is_parameter or known)
            if least is not None and plain and bool((value == value.flatten()[0]).all()):
                _replace(value, generator, sign, least)
            elif not value.dtype.is_floating_point:
                if sign and value.ndim:
                    _reorder(value, generator)
            else:
                _perturb(name, value, generator, is_parameter=is_parameter)
                if sign < 0 and name.rpartition(".")[2] == "running_var":
                    _vanish(value, generator)
                if sign and is_parameter:
                    _scatter(value, generator, sign)
                    if least is not None:
                        _without_rows(value, generator)
                elif sign and plain and value.ndim and _is_mask(value):
                    _reorder(value, generator)


def _is_mask(value: torch.Tensor) -> bool:
    """Whether some places of a floating buffer are left out: zero, or infinite."""
    return bool((value.isinf() | (value == 0)).any())


def _replace(value: torch.Tensor, generator: torch.Generator, sign: int, least: int) -> None:
    """Other values for a buffer of one value everywhere, in place."""
    import torch

    shape, device = value.shape, value.device
    if value.dtype.is_floating_point:
        noise = torch.randn(shape, generator=generator, device=device)
        one = value.numel() == 1
        noise = sign * (1 + noise.abs()) if one else noise
        value.copy_(noise * torch.where(value == 0, AHEAD[0] if one else 1.0, value.float()))
    elif value.dtype == torch.bool:
        value.copy_(torch.rand(shape, generator=generator, device=device) < 0.5)
    elif value.numel() == 1:
        value.copy_(value + AHEAD[sign < 0])
    else:
        value.copy_(
            torch.randint(
                least, (SMALL if least else 1) + 1, shape, generator=generator, device=device
            )
        )


def _vanish(value: torch.Tensor, generator: torch.Generator) -> None:
    """Some variances are zero, as those of dead channels are, and as many next to zero."""
    import torch

    count = -(-value.numel() // VANISHED)
    order = torch.randperm(value.numel(), generator=generator, device=value.device)
    for place, small in enumerate((0.0, NEXT_TO_ZERO)):
        value.view(-1)[order[place * count : (place + 1) * count]] = small


def _without_rows(value: torch.Tensor, generator: torch.Generator) -> None:
    """Some rows of a matrix are zero, as those of padding and of pruned weights are."""
    import torch

    if value.ndim < 2 or len(value) < 2:
        return
    order = torch.randperm(len(value), generator=generator, device=value.device)
    value[order[: max(1, int(ZERO_WEIGHTS * len(value)))]] = 0.0


def _reorder(value: torch.Tensor, generator: torch.Generator) -> None:
    """Of a mask each row keeps as many elements as it had, of indices each row its own."""
    import torch

    order = torch.randperm(value.shape[-1], generator=generator, device=value.device)
    value.copy_(value[..., order])


def _scatter(value: torch.Tensor, generator: torch.Generator, sign: int) -> None:
    """A parameter of both signs and other sizes, in place. One of several dimensions that has both
    signs already, as those of products do, keeps its size."""
    shape = value.shape
    noise = normals(value.numel(), generator).over(shape)
    if value.numel() == 1:
        value.copy_(sign * (1 + noise.abs()))
        return
    flat = sum(size > 1 for size in shape) < 2
    if flat:
        value.copy_(SCALED_WEIGHT * noise)
    elif not bool((value < 0).any()) or not bool((value > 0).any()):
        value.copy_(value.abs() * noise.sign())
    share = ZERO_WEIGHTS if flat else ZERO_WEIGHTS / 2
    value.masked_fill_(uniform(shape, generator) < share, 0.0)


def _perturb(
    name: str, value: torch.Tensor, generator: torch.Generator, *, is_parameter: bool
) -> None:
    import torch

    device = value.device
    if name.rpartition(".")[2] == "running_var":
        value.copy_(
            (
                value.float().abs()
                * (0.5 + torch.rand(value.shape, generator=generator, device=device))
            )
            + 1e-2
        )
    elif name.rpartition(".")[2] == "running_mean":
        value.add_(
            torch.randn(value.shape, generator=generator, device=device).mul_(0.5).to(value.dtype)
        )
    elif is_parameter:
        drawn, wide = normals(value.numel(), generator), value.float()
        shift = 0.1 * wide.std(correction=0).clamp(min=0.1 if value.ndim < 2 else 1e-3)
        moved = torch.addcmul(wide, wide, drawn.over(value.shape), value=0.1)
        value.copy_(moved.add_(drawn.moved(shift).over(value.shape)))
    else:
        noise = torch.randn(value.shape, generator=generator, device=device).clamp_(-3, 3)
        value.copy_(value.float() * (1 + 0.1 * noise))
