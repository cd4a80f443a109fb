"""Style statistics of a decoder's last stage, two poolings and a mean: 128 latents in fp32.

avg_2(avg_2(y)) = avg_4(y), and the mean over whole tiles is the mean of y; the transposed
convolution's mean needs the sum of what each tap sends into the image, not the image.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """style = mean over space of pool(pool(deconv(z))), [B, out_channels]."""

    def __init__(self, latents: int, out_channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.decode = nn.ConvTranspose2d(latents, out_channels, kernel, stride=stride)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        image = self.decode(z)
        coarse = F.avg_pool2d(F.avg_pool2d(image, 2), 2)
        return coarse.mean(dim=(2, 3))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 16, 64, 64)]


def get_init_inputs() -> list[object]:
    return [16, 128, 4, 4]
