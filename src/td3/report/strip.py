"""Parts of a video: a strip with reward and Q-values below the frame, a line of text, frames in a grid."""

import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]
WINDOW = 150
"""Newest env steps that the strip shows."""
STRIP, LABEL, GAP = 56, 22, 4
"""Height of the strip and of a line of text, and gap between the frames of a grid, in pixels."""
PAPER, INK, SOFT, REWARD, VALUE = (21, 23, 26), (230, 232, 235), (163, 170, 180), (255, 159, 67), (79, 176, 238)


class Strip:
    """Records the newest rewards and Q-values of one episode, and draws them."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[float, float]] = {}
        self._after: Sequence[float] = ()
        self.clear()

    def expect(self, rewards: Sequence[float], values: Sequence[float], gamma: float) -> None:
        """Set the scales from an episode played before, and store the observed discounted return of each step."""
        self._after = discounted(rewards, gamma)
        self.spans["reward"] = _span(rewards, self.spans.get("reward"))
        if values:
            self.spans["Q"] = _span([*values, *self._after], self.spans.get("Q"))

    def clear(self) -> None:
        """A new episode begins."""
        self._observed: deque[float] = deque(maxlen=WINDOW)
        self._steps = 0
        self._rewards: deque[float] = deque(maxlen=WINDOW)
        self._values: deque[float] = deque(maxlen=WINDOW)
        self.total = 0.0

    def add(self, reward: float, value: float | None) -> None:
        """One env step."""
        self._rewards.append(reward)
        self.total += reward
        if value is not None:
            self._values.append(value)
            if self._steps < len(self._after):
                self._observed.append(self._after[self._steps])
        self._steps += 1

    def under(self, image: Image, label: str = "") -> Image:
        """The frame with the strip below it, and with a line of text above it if one is given."""
        from PIL import Image, ImageDraw

        width = image.shape[1]
        panel = Image.new("RGB", (width, STRIP), PAPER)
        draw = ImageDraw.Draw(panel)
        parts = [("reward", self._rewards, REWARD), *([("Q", self._values, VALUE)] if self._values else [])]
        share = width / len(parts)
        for place, (name, numbers, color) in enumerate(parts):
            left, right = round(place * share) + 8, round((place + 1) * share) - 8
            newest = short_number(numbers[-1]) if numbers else ""
            if name == "Q" and self._observed:  # critic 1's Q-value and the observed return, on one scale
                newest = f"{newest} / {short_number(self._observed[-1])}"
                name = "Q / return" if share > 150 else name
                _sparkline(draw, self._observed, (left, 22, right, STRIP - 6), SOFT, self.spans.get("Q"))
            draw.text((left, 3), name, fill=SOFT, font=_font(12))
            draw.text((right, 3), newest, fill=INK, font=_font(12), anchor="ra")
            span = self.spans.get("Q" if name.startswith("Q") else name)
            _sparkline(draw, numbers, (left, 22, right, STRIP - 6), color, span)
        stacked = [image, np.asarray(panel)]
        return np.concatenate([text_line(label, width), *stacked] if label else stacked)


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return from each step to the end of the episode."""
    after, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        after.append(total)
    return after[::-1]


def _span(numbers: Sequence[float], known: tuple[float, float] | None) -> tuple[float, float]:
    lows, highs = (*numbers, *(known[:1] if known else ())), (*numbers, *(known[1:] if known else ()))
    return (min(lows), max(highs)) if lows else (0.0, 1.0)


def _sparkline(
    draw: Any,
    numbers: Sequence[float],
    box: tuple[int, int, int, int],
    color: tuple[int, int, int],
    fixed: tuple[float, float] | None = None,
) -> None:
    left, top, right, bottom = box
    if len(numbers) < 2:
        return
    low, high = fixed or (min(numbers), max(numbers))
    low, high = min(low, *numbers), max(high, *numbers)
    span = (high - low) or 1.0
    xs = np.linspace(right - (right - left) * len(numbers) / WINDOW, right, len(numbers))
    draw.line(
        [(x, bottom - (number - low) / span * (bottom - top)) for x, number in zip(xs, numbers, strict=True)],
        fill=color,
        width=2,
    )


def text_line(text: str, width: int) -> Image:
    """A dark line with text, as wide as the frame below it."""
    from PIL import Image, ImageDraw

    line = Image.new("RGB", (width, LABEL), PAPER)
    ImageDraw.Draw(line).text((8, LABEL / 2), text, fill=INK, font=_font(13), anchor="lm")
    return np.asarray(line)


def grid_columns(count: int) -> int:
    """Columns of a grid: up to three in a row, more in a grid that is nearly square."""
    return count if count <= 3 else math.ceil(math.sqrt(count))


def tiled(images: Sequence[Image]) -> Image:
    """Frames of one size in a grid; an incomplete last row is centered."""
    columns = grid_columns(len(images))
    rows = math.ceil(len(images) / columns)
    high, wide = images[0].shape[:2]
    height, width = high + GAP, wide + GAP
    grid = np.empty((rows * height - GAP, columns * width - GAP, 3), np.uint8)
    grid[:] = PAPER
    for place, image in enumerate(images):
        row, column = divmod(place, columns)
        short = columns - (len(images) - row * columns) if row == rows - 1 else 0
        left = column * width + short * width // 2
        grid[row * height : row * height + high, left : left + wide] = image
    return grid


def with_curve(image: Image, steps: Sequence[float], returns: Sequence[float], now: float) -> Image:
    """The frame with the learning curve to its right, and a mark at the shown agent."""
    from PIL import Image, ImageDraw

    height, width = image.shape[0], max(160, image.shape[1] * 3 // 4)
    panel = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(panel)
    left, right, top, bottom = 44, width - 12, 28, height - 30
    low, high = min(returns), max(returns)
    span, last = (high - low) or 1.0, max(steps) or 1.0
    spots = [
        (left + (right - left) * step / last, bottom - (bottom - top) * (value - low) / span)
        for step, value in zip(steps, returns, strict=True)
    ]
    draw.text((left, 6), "return of the evaluations", fill=SOFT, font=_font(12))
    draw.text((left - 6, top), short_number(high), fill=SOFT, font=_font(11), anchor="rm")
    draw.text((left - 6, bottom), short_number(low), fill=SOFT, font=_font(11), anchor="rm")
    draw.text((right, height - 16), f"{last:,.0f} env steps", fill=SOFT, font=_font(11), anchor="rm")
    draw.line([(left, bottom), (right, bottom)], fill=SOFT)
    if len(spots) > 1:
        draw.line(spots, fill=VALUE, width=2)
    x, y = min(spots, key=lambda spot: abs(spot[0] - (left + (right - left) * now / last)))
    draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill=REWARD)
    return np.concatenate((image, np.asarray(panel)), 1)


def narrowed(image: Image, width: int) -> Image:
    """The frame with at most this width and even sides, as video codecs require."""
    from PIL import Image

    scale = min(1.0, width / image.shape[1])
    size = (2 * round(image.shape[1] * scale / 2), 2 * round(image.shape[0] * scale / 2))
    if size == (image.shape[1], image.shape[0]):
        return image
    return np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize(size, Image.Resampling.LANCZOS))


def dimmed(image: Image) -> Image:
    """Dimmed: its episode has ended."""
    return (image * 0.45).astype(np.uint8)


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def short_number(value: float) -> str:
    """A number with few digits; never -0."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value + 0.0 if abs(value) >= 0.005 else 0.0:.2f}"
