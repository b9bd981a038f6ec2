"""
Pictures as the numbers that a model takes: what its image processor says, in less time.

A processor of transformers goes by way of arrays, in eight bytes a number, and reads its arguments
anew for every call: with a small model that takes longer than the model does. What a CLIP's does
is plain, and done here; whatever does something else is asked itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import BaseImageProcessor

__all__ = ["Pixels", "pixels_of"]

_TRIED = ((61, 90), (150, 47), (8, 8))
"""Sizes of the pictures that show whether it is the same; width and height."""

_SAME = 1e-4
"""A level more or less, of 256, makes a difference of a hundredth."""


class Pixels(Protocol):
    """Makes numbers of pictures; may be used from several threads at once."""

    def levels(self, picture: Image.Image) -> torch.Tensor:
        """Do what concerns one picture, of mode RGB; the result is on the CPU."""

    def numbers(self, levels: torch.Tensor) -> torch.Tensor:
        """Do the rest for a batch of them, where it is: shape ``(pictures, 3, height, width)``."""


def pixels_of(processor: BaseImageProcessor, device: torch.device) -> Pixels:
    """
    Give what does as a processor does.

    Args:
        processor: The model's, of the kind that works with Pillow.
        device: Where the model is.
    """
    asked = _Asked(processor)
    plain = _Plain.read(processor.to_dict(), device)
    return plain if plain is not None and _are_same(plain, asked) else asked


def _are_same(one: Pixels, other: Pixels) -> bool:
    for size in _TRIED:
        samples = bytes(place * 37 % 251 for place in range(3 * size[0] * size[1]))
        picture = Image.frombytes("RGB", size, samples)
        a, b = (way.numbers(way.levels(picture)[None]).cpu() for way in (one, other))
        if a.shape != b.shape or (a - b).abs().max() > _SAME:
            return False
    return True


@attrs.frozen
class _Asked:
    """Asks the processor itself."""

    _processor: BaseImageProcessor

    def levels(self, picture: Image.Image) -> torch.Tensor:
        found = self._processor([picture], return_tensors="pt")
        return cast("torch.Tensor", found["pixel_values"])[0]

    def numbers(self, levels: torch.Tensor) -> torch.Tensor:
        return levels


@attrs.frozen(eq=False, kw_only=True)
class _Plain:
    """Makes the shorter side so long, cuts out the middle, and normalizes that."""

    _edge: int
    _width: int
    _height: int
    _resample: int
    _mean: torch.Tensor
    _std: torch.Tensor
    """Both of levels from 0 to 255, shape ``(colours, 1, 1)``, where the model is."""

    @classmethod
    def read(cls, config: Mapping[str, object], device: torch.device) -> _Plain | None:
        """Read a processor's configuration; None where it says anything else."""
        steps = ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
        size, crop = (
            cast("Mapping[str, int]", config.get(name) or {}) for name in ("size", "crop_size")
        )
        is_plain = (
            all(config.get(step) for step in steps)
            and size.keys() == {"shortest_edge"}
            and crop.keys() == {"height", "width"}
            and max(crop.values()) <= size["shortest_edge"]
        )
        if not is_plain:
            return None
        white = 1 / cast("float", config["rescale_factor"])
        mean, std = (
            (torch.tensor(config[name], dtype=torch.float64) * white).float().reshape(-1, 1, 1)
            for name in ("image_mean", "image_std")
        )
        return cls(
            edge=size["shortest_edge"],
            width=crop["width"],
            height=crop["height"],
            resample=int(cast("int", config["resample"])),
            mean=mean.to(device),
            std=std.to(device),
        )

    def levels(self, picture: Image.Image) -> torch.Tensor:
        """Give shape ``(height, width, 3)``, uint8."""
        short, long = sorted(picture.size)
        longer = int(self._edge * long / short)
        width, height = (self._edge, longer) if picture.width == short else (longer, self._edge)
        left, top = (width - self._width) // 2, (height - self._height) // 2
        cut = picture.resize((width, height), self._resample).crop(
            (left, top, left + self._width, top + self._height)
        )
        samples = torch.frombuffer(bytearray(cut.tobytes()), dtype=torch.uint8)
        return samples.view(self._height, self._width, 3)

    def numbers(self, levels: torch.Tensor) -> torch.Tensor:
        colours = levels.permute(0, 3, 1, 2)
        found = colours.to(torch.float32, memory_format=torch.contiguous_format)
        return found.sub_(self._mean).div_(self._std)
