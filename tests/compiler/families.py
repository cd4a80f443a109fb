"""The modules that the compiler coder must cover, one a family, at sizes off every tile."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Wrapped(nn.Module):
    """A module that holds one other, as users' classes do."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class OfOne(nn.Module):
    """`function` of one tensor, whose sizes stay free."""

    def __init__(self, function: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)


def functional(call: Callable[..., object]) -> nn.Module:
    """A module whose forward is `call`."""

    def forward(_: nn.Module, *args: torch.Tensor) -> object:
        return call(*args)

    return type("Functional", (nn.Module,), {"forward": forward})()


def families() -> dict[str, Case]:
    """Name -> module and example inputs."""
    torch.manual_seed(0)
    x, y, bias = torch.randn(40, 67), torch.randn(40, 67), torch.randn(67)
    image, target = torch.randn(3, 8, 5, 7), torch.randint(0, 67, (40,))
    pixels = torch.randint(0, 8, (3, 5, 7))
    pairs: dict[str, Callable[..., object]] = {
        "mse": F.mse_loss,
        "l1": F.l1_loss,
        "smooth_l1": F.smooth_l1_loss,
        "huber": F.huber_loss,
        "cosine": F.cosine_similarity,
        "residual_norm": lambda a, b: (F.layer_norm(a + b, (67,)), a + b),
        "hinge": lambda a, b: torch.clamp(1 - a * b, min=0).mean(),
        "bce_logits": lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()),
        "bce": lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
        "kl": lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"),
    }
    cases: dict[str, Case] = {name: (functional(call), (x, y)) for name, call in pairs.items()}
    return cases | {
        "layer_norm": (Wrapped(nn.LayerNorm(67)), (x,)),
        "rms_norm": (Wrapped(nn.RMSNorm(67)), (x,)),
        "group_norm": (Wrapped(nn.GroupNorm(4, 8)), (image,)),
        "instance_norm": (Wrapped(nn.InstanceNorm2d(8, affine=True)), (image,)),
        "batch_norm": (Wrapped(nn.BatchNorm2d(8)), (image,)),
        "batch_statistics": (
            functional(lambda a: F.batch_norm(a, None, None, training=True)),
            (image,),
        ),
        "softmax": (Wrapped(nn.Softmax(-1)), (x,)),
        "strided_softmax": (Wrapped(nn.Softmax(0)), (x,)),
        "log_softmax": (Wrapped(nn.LogSoftmax(1)), (x,)),
        "cross_entropy": (functional(F.cross_entropy), (x, target)),
        "class_weights": (
            functional(lambda a, t, w: F.cross_entropy(a, t, w.abs())),
            (x, target, bias),
        ),
        "label_smoothing": (
            functional(lambda a, t, w: F.cross_entropy(a, t, w.abs(), label_smoothing=0.1)),
            (x, target, bias),
        ),
        "soft_targets": (functional(lambda a, b: F.cross_entropy(a, b.softmax(1))), (x, y)),
        "segmentation": (functional(F.cross_entropy), (image, pixels)),
        "power": (functional(lambda a: a.abs() ** 1.7 + a.abs() ** 1.5 + 3.0**a), (x,)),
        "nll": (functional(lambda a, t: F.nll_loss(a.log_softmax(1), t)), (x, target)),
        "row_sum": (functional(lambda a: a.sum(1)), (x,)),
        "column_sum": (functional(lambda a: a.sum(0)), (x,)),
        "maximum": (functional(lambda a: a.amax((2, 3))), (image,)),
        "positions": (functional(lambda a: (a.argmax(1), *a.min(1))), (x,)),
        "spread": (functional(lambda a: a.std(0)), (x,)),
        "gelu_bias": (functional(lambda a, b: F.gelu(a + b)), (x, bias)),
        "own_transpose": (functional(lambda a: a + a.t()), (torch.randn(33, 33),)),
        "linear_gelu": (Wrapped(nn.Linear(67, 33), nn.GELU()), (x,)),
        "conv_norm_relu": (
            Wrapped(nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            (image,),
        ),
    }
