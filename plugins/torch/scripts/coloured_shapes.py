"""
Small pictures of one coloured shape on grey, drawn anew each time, and what they are called.

The tiny CLIP and the tiny BLIP of the tests were trained on them, by the two scripts beside.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

if TYPE_CHECKING:
    from random import Random

__all__ = ["COLOURS", "PAIRS", "SHAPES", "TRAINED", "draw"]

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 160, 50),
    "blue": (40, 70, 220),
    "yellow": (235, 215, 40),
    "purple": (140, 50, 170),
    "orange": (245, 140, 20),
    "black": (15, 15, 15),
    "white": (250, 250, 250),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring", "star")

PAIRS = tuple((colour, shape) for colour in COLOURS for shape in SHAPES)
_KEPT_BACK = {("red", "star"), ("blue", "ring"), ("green", "cross"), ("yellow", "triangle")}
TRAINED = tuple(pair for pair in PAIRS if pair not in _KEPT_BACK)
"""The pairs that the models have seen."""

_SIDE = 32
_OVERSAMPLED = 4 * _SIDE
_NOISE = 5.0


def draw(colour: str, shape: str, random: Random) -> Image.Image:
    """
    Draw a picture.

    Args:
        colour: One of `COLOURS`.
        shape: One of `SHAPES`.
        random: Says how large and where it is, and how the colours differ.

    Returns:
        32 x 32 pixels, mode RGB.
    """
    grey = random.randint(90, 165)
    image = Image.new("RGB", (_OVERSAMPLED, _OVERSAMPLED), _vary((grey, grey, grey), 10, random))
    radius = random.uniform(0.26, 0.40) * _OVERSAMPLED
    x = random.uniform(radius, _OVERSAMPLED - radius)
    y = random.uniform(radius, _OVERSAMPLED - radius)
    fill = _vary(COLOURS[colour], 12, random)
    _draw_shape(ImageDraw.Draw(image), shape, (x, y, radius), fill)
    small = image.resize((_SIDE, _SIDE), Image.Resampling.BOX)
    noise = np.random.default_rng(random.randint(0, 2**31)).normal(0, _NOISE, (_SIDE, _SIDE, 3))
    noisy = np.asarray(small).astype(np.float32) + noise
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _vary(colour: tuple[int, int, int], most: int, random: Random) -> tuple[int, int, int]:
    red, green, blue = (max(0, min(255, v + random.randint(-most, most))) for v in colour)
    return red, green, blue


def _draw_shape(
    pen: ImageDraw.ImageDraw,
    shape: str,
    place: tuple[float, float, float],
    fill: tuple[int, int, int],
) -> None:
    x, y, r = place
    match shape:
        case "circle":
            pen.ellipse([x - r, y - r, x + r, y + r], fill=fill)
        case "square":
            pen.rectangle([x - r * 0.85, y - r * 0.85, x + r * 0.85, y + r * 0.85], fill=fill)
        case "triangle":
            low = y + r * 0.75
            pen.polygon([(x, y - r), (x - r * 0.9, low), (x + r * 0.9, low)], fill=fill)
        case "cross":
            width = r * 0.34
            pen.rectangle([x - width, y - r, x + width, y + r], fill=fill)
            pen.rectangle([x - r, y - width, x + r, y + width], fill=fill)
        case "ring":
            pen.ellipse([x - r, y - r, x + r, y + r], outline=fill, width=int(r * 0.33))
        case "star":
            pen.polygon([_star_corner(place, corner) for corner in range(10)], fill=fill)


def _star_corner(place: tuple[float, float, float], corner: int) -> tuple[float, float]:
    x, y, r = place
    reach = r if corner % 2 == 0 else r * 0.42
    turn = math.pi * corner / 5
    return x + reach * math.sin(turn), y - reach * math.cos(turn)
