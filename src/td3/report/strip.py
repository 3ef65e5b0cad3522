"""What a film shows besides the picture: a strip of reward and Q under it, a line of text, several pictures as one."""

import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[Any]
WINDOW = 150
"""Env steps that the strip shows, the newest."""
STRIP, LABEL, GAP = 56, 22, 4
"""Height of the strip and of a line of text, and room between the pictures of a grid, in pixels."""
PAPER, INK, SOFT, REWARD, VALUE = (21, 23, 26), (230, 232, 235), (163, 170, 180), (255, 159, 67), (79, 176, 238)


class Strip:
    """Keeps the newest rewards and values of one episode, and draws them."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A new episode begins."""
        self._rewards: deque[float] = deque(maxlen=WINDOW)
        self._values: deque[float] = deque(maxlen=WINDOW)
        self.total = 0.0

    def add(self, reward: float, value: float | None) -> None:
        """One env step."""
        self._rewards.append(reward)
        self.total += reward
        if value is not None:
            self._values.append(value)

    def under(self, picture: Picture, label: str = "") -> Picture:
        """The picture with the strip below it, and with a line of text above it if one is given."""
        from PIL import Image, ImageDraw

        width = picture.shape[1]
        panel = Image.new("RGB", (width, STRIP), PAPER)
        draw = ImageDraw.Draw(panel)
        parts = [("reward", self._rewards, REWARD), *([("Q", self._values, VALUE)] if self._values else [])]
        share = width / len(parts)
        for place, (name, numbers, colour) in enumerate(parts):
            left, right = round(place * share) + 8, round((place + 1) * share) - 8
            newest = few_digits(numbers[-1]) if numbers else ""
            draw.text((left, 3), name, fill=SOFT, font=_font(12))
            draw.text((right, 3), newest, fill=INK, font=_font(12), anchor="ra")
            _sparkline(draw, numbers, (left, 22, right, STRIP - 6), colour)
        stacked = [picture, np.asarray(panel)]
        return np.concatenate([text_line(label, width), *stacked] if label else stacked)


def _sparkline(
    draw: Any, numbers: Sequence[float], box: tuple[int, int, int, int], colour: tuple[int, int, int]
) -> None:
    left, top, right, bottom = box
    if len(numbers) < 2:
        return
    low, high = min(numbers), max(numbers)
    span = (high - low) or 1.0
    xs = np.linspace(right - (right - left) * len(numbers) / WINDOW, right, len(numbers))
    draw.line(
        [(x, bottom - (number - low) / span * (bottom - top)) for x, number in zip(xs, numbers, strict=True)],
        fill=colour,
        width=2,
    )


def text_line(text: str, width: int) -> Picture:
    """A dark line with text, as wide as the picture below it."""
    from PIL import Image, ImageDraw

    line = Image.new("RGB", (width, LABEL), PAPER)
    ImageDraw.Draw(line).text((8, LABEL / 2), text, fill=INK, font=_font(13), anchor="lm")
    return np.asarray(line)


def tiled(pictures: Sequence[Picture]) -> Picture:
    """Pictures of one size in a grid, as square as it goes; what is left over stays dark."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    high, wide = pictures[0].shape[:2]
    height, width = high + GAP, wide + GAP
    grid = np.empty((rows * height - GAP, columns * width - GAP, 3), np.uint8)
    grid[:] = PAPER
    for place, picture in enumerate(pictures):
        row, column = divmod(place, columns)
        grid[row * height : row * height + high, column * width : column * width + wide] = picture
    return grid


def narrowed(picture: Picture, width: int) -> Picture:
    """The picture no wider than this, its sides even, as video wants them."""
    from PIL import Image

    scale = min(1.0, width / picture.shape[1])
    size = (2 * round(picture.shape[1] * scale / 2), 2 * round(picture.shape[0] * scale / 2))
    if size == (picture.shape[1], picture.shape[0]):
        return picture
    return np.asarray(Image.fromarray(np.ascontiguousarray(picture)).resize(size, Image.Resampling.LANCZOS))


def dimmed(picture: Picture) -> Picture:
    """Darker: its episode is over."""
    return (picture * 0.45).astype(np.uint8)


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def few_digits(value: float) -> str:
    """As many digits as can be read in passing; never minus nothing."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value + 0.0 if abs(value) >= 0.005 else 0.0:.2f}"
