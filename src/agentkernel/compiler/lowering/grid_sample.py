"""Sampling of an image at the places of a grid, by simpler operators."""

from __future__ import annotations

from typing import cast

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import _upsample_cubic_interp1d

ZEROS, BORDER = range(2)
"""The numbers of the paddings by zeros and by the nearest pixel; 2 reflects."""
BILINEAR, NEAREST, BICUBIC = range(3)
"""The numbers of the interpolations."""


def grid_sampler_2d(
    image: torch.Tensor,
    grid: torch.Tensor,
    interpolation: int = BILINEAR,
    padding: int = ZEROS,
    align_corners: bool = False,
) -> torch.Tensor:
    """`aten.grid_sampler_2d`. A place outside of the image counts as zero, as on a GPU, whatever
    the pixels are: PyTorch's decomposition multiplies the first pixel by 0, which is NaN where it
    is infinite. NaN is such a place, and with another padding that of the first pixel."""
    if padding != ZEROS:
        return _padded(image, grid, interpolation, padding, align_corners)
    batch, channels, height, width = image.shape
    _, rows, columns, _ = grid.shape
    # Channels share a grid, and one kernel holds all if it has their size.
    places = grid.view(batch, 1, rows, columns, 2).expand(batch, channels, rows, columns, 2)
    sizes = (width, height)
    x, y = (_coordinate(places[..., axis], sizes[axis], align_corners) for axis in (0, 1))
    images = torch.arange(batch, device=image.device).view(batch, 1, 1, 1)
    layers = torch.arange(channels, device=image.device).view(1, channels, 1, 1)

    if interpolation == NEAREST:
        (row, in_rows), (column, in_columns) = (
            _clamped(y.round(), height),
            _clamped(x.round(), width),
        )
        return torch.where(in_rows & in_columns, image[images, layers, row, column], 0)
    left, top = x.floor(), y.floor()
    reach = (0, 1) if interpolation == BILINEAR else (-1, 0, 1, 2)
    across = [_clamped(left + step, width) for step in reach]
    down = [_clamped(top + step, height) for step in reach]
    x, y = x - left, y - top
    if interpolation == BICUBIC:
        lines = [
            [
                torch.where(in_rows & in_columns, image[images, layers, row, column], 0)
                for column, in_columns in across
            ]
            for row, in_rows in down
        ]
        points = [_upsample_cubic_interp1d(line, x) for line in lines]
        return _upsample_cubic_interp1d(points, y)
    terms = [
        torch.where(in_rows & in_columns, image[images, layers, row, column] * (part_x * part_y), 0)
        for (row, in_rows), part_y in zip(down, (1 - y, y), strict=True)
        for (column, in_columns), part_x in zip(across, (1 - x, x), strict=True)
    ]
    return terms[0] + terms[1] + terms[2] + terms[3]


def _padded(
    image: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """With pixels of the border outside of the image. A GPU clips after all else, by minimum and
    maximum, of which NaN is neither; as a number of a pixel it would be anything. Weights of cubics
    stay NaN."""
    known = decomposition_table[torch.ops.aten.grid_sampler_2d.default]
    height, width = image.shape[2:]
    x, y = (
        _coordinate(grid[..., axis], size, align_corners)
        for axis, size in ((0, width), (1, height))
    )
    pixels = torch.stack((x, y), -1)
    # A reflection takes the remainder of a place, which an infinity has not.
    lost = pixels.isnan() if padding == BORDER else ~pixels.isfinite()
    found = known(image, torch.where(lost, -1, grid), interpolation, padding, align_corners)
    if interpolation == BICUBIC:
        found = found + (grid - grid).sum(-1)[:, None]
    return cast("torch.Tensor", found)


def _clamped(place: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of pixels (int64), 0 for those outside, and which are inside; NaN is not."""
    inside = (place >= 0) & (place < size)
    return torch.where(inside, place, 0).to(torch.int64), inside


def _coordinate(place: torch.Tensor, size: int, align_corners: bool) -> torch.Tensor:
    """Places from -1 to 1 in pixels."""
    half = size * 0.5
    return place * (half - 0.5 if align_corners else half) + (half - 0.5)
