"""Random changes of training images, a whole batch at a time.

Every random number comes from the generator that is passed, in one draw per batch and change, so the same generator
state gives the same batch whatever the device or the number of threads; a change that is off draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """A random crop of an image with ``padding`` black pixels on each side, then, half the time, its mirror image."""

    padding: int
    flip: bool

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The changed images of a batch, (batch, channel, height, width), in the same shape, channels last in memory.

        Every shift of the crop is equally likely.  Rows are copied whole, from the batch with its border, since they
        are what lies together; only the mirrored half is turned.
        """
        batch, channels, height, width = images.shape
        shifts = 2 * self.padding + 1
        choices = shifts * shifts * (2 if self.flip else 1)
        drawn = torch.randint(choices, (batch,), generator=generator, dtype=torch.int64, device=generator.device)
        top, left = drawn // shifts % shifts, drawn % shifts
        border = (0, 0) + (self.padding,) * 4
        bordered = torch.nn.functional.pad(images.permute(0, 2, 3, 1).contiguous(), border).view(-1)
        # one begins at every byte
        rows = bordered.as_strided((bordered.numel() - width * channels + 1, width * channels), (1, 1))
        number = torch.arange(batch, dtype=torch.int64, device=drawn.device)
        below = torch.arange(height, dtype=torch.int64, device=drawn.device)
        row = (number * (height + 2 * self.padding) + top)[:, None] + below
        begin = (row * (width + 2 * self.padding) + left[:, None]) * channels
        cropped = rows.index_select(0, begin.view(-1).to(images.device)).view(batch, height, width, channels)
        if self.flip:
            mirrored = (drawn >= shifts * shifts).nonzero()[:, 0].to(images.device)
            cropped.index_copy_(0, mirrored, cropped.index_select(0, mirrored).flip(2))
        # One channel is left in the usual order: its strides decide which convolution runs, and so the last bits of a
        # run.
        return cropped.view(images.shape) if channels == 1 else cropped.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Cutout:
    """A square of ``side`` pixels, its centre uniform over the image, clipped at the border.

    DeVries, Taylor, 2017, "Cutout".  It is set to 0 in normalised images, which is the data set's mean colour, after
    the crop and the mirror.  Near the border less than the square is left, as in the paper; ResNet-9's own recipe draws
    squares of 8x8 that lie inside.
    """

    side: int

    @staticmethod
    def of(settings: Mapping[str, Any], shape: Sequence[int]) -> Cutout | None:
        """The ``data.cutout`` of images (channel, height, width), None for 0; ValueError where it is larger."""
        side = settings.get("cutout", 0)
        if side > min(shape[1:], default=0):
            limit = f"{min(shape[1:])}, the short side of data={settings['name']}'s images (0: none)"
            raise ValueError(f"data.cutout={side}: must be at most {limit}")
        return Cutout(side) if side else None

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Images (batch, channel, height, width), normalised, changed in place: a square is 0; one draw per batch."""
        batch, _, height, width = images.shape
        drawn = torch.randint(
            height * width, (batch, 1), generator=generator, device=generator.device, dtype=torch.int64
        )
        drawn = drawn.to(images.device)
        rows = self._covered(drawn // width, height)
        columns = self._covered(drawn % width, width)
        return images.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0)

    def _covered(self, centre: Tensor, length: int) -> Tensor:
        """A mask, bool (batch, length), of the places within the square's side about each centre (batch, 1)."""
        place = torch.arange(length, dtype=torch.int64, device=centre.device) - (centre - self.side // 2)
        return (place >= 0) & (place < self.side)


NUM_TRIES = 10  # proposals for one random crop before the largest central one is taken


def draw_crops(batch: int, generator: torch.Generator) -> list[list[float]]:
    """Uniform numbers in [0, 1) for ``batch`` random crops.

    They are the area and ratio of each proposal, then place and mirror.  They are drawn before any image is opened, so
    the order in which threads decode changes nothing.
    """
    shape = batch, 2 * NUM_TRIES + 3
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device).tolist()


def random_resized_box(width: int, height: int, numbers: Sequence[float]) -> tuple[tuple[int, int, int, int], bool]:
    """A random box (left, upper, right, lower), and whether to mirror it.

    It has 8 % to 100 % of the area, with sides in a ratio of 3/4 to 4/3.  The area is uniform, the ratio log-uniform,
    the place uniform; a proposal that does not fit is redrawn up to ``NUM_TRIES`` times, then the largest central box
    of a legal ratio is taken: Szegedy et al. 2015, as torchvision does it.
    """
    down, across, mirror = numbers[2 * NUM_TRIES :]
    for area_share, ratio_place in zip(numbers[: 2 * NUM_TRIES : 2], numbers[1 : 2 * NUM_TRIES : 2], strict=True):
        area = width * height * (0.08 + 0.92 * area_share)
        ratio = math.exp(math.log(3 / 4) + ratio_place * math.log(16 / 9))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, upper = int(across * (width - wide + 1)), int(down * (height - high + 1))
            return (left, upper, left + wide, upper + high), mirror < 0.5
    wide = min(width, max(1, round(height * 4 / 3)))
    high = min(height, max(1, round(width * 4 / 3)))
    left, upper = (width - wide) // 2, (height - high) // 2
    return (left, upper, left + wide, upper + high), mirror < 0.5
