"""What a video shows besides the frames: a strip with reward and Q-values, a line of text, a grid, a learning curve."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[Any]
Span = tuple[float, float]
WINDOW = 150
"""Newest env steps that the strip shows."""
STRIP, LABEL, GAP = 56, 22, 4
"""Height of the strip and of a line of text, and gap between the frames of a grid, in pixels."""
PAPER, INK, SOFT, REWARD, VALUE = (21, 23, 26), (230, 232, 235), (163, 170, 180), (255, 159, 67), (79, 176, 238)


class Strip:
    """Records the rewards and Q-values of one episode, and draws the newest."""

    def __init__(self) -> None:
        self.spans: dict[str, Span] = {}
        self._observed: list[float] = []
        self.clear()

    def clear(self) -> None:
        """A new episode begins."""
        self.rewards: list[float] = []
        self.q_values: list[float] = []

    def set_scales(self, gamma: float) -> None:
        """The scales, and the observed discounted return of each step, from the episode recorded so far."""
        self._observed = discounted(self.rewards, gamma)
        self.spans["reward"] = _span(self.rewards, self.spans.get("reward", ()))
        if self.q_values:
            self.spans["Q"] = _span(self.q_values, self._observed, self.spans.get("Q", ()))

    def add(self, reward: float, q_value: float | None) -> None:
        """One env step."""
        self.rewards.append(reward)
        self.q_values += [] if q_value is None else [q_value]

    def under(self, frame: Frame, label: str = "") -> Frame:
        """The frame with the strip below it, and with a line of text above it if one is given."""
        above, (height, width) = LABEL if label else 0, frame.shape[:2]
        canvas, draw = _canvas(width, above + height + STRIP)
        canvas.paste(_image(frame), (0, above))
        draw.text((8, LABEL / 2), label, fill=INK, font=_font(13), anchor="lm")
        plots = [("reward", self.rewards, REWARD), *([("Q", self.q_values, VALUE)] if self.q_values else [])]
        for column, (name, numbers, color) in enumerate(plots):
            left, right = (round((column + edge) * width / len(plots)) for edge in (0, 1))
            box = (left + 8, above + height + 22, right - 8, above + height + STRIP - 6)
            lines, title = [(numbers, color)], name
            if name == "Q" and len(self._observed) >= len(numbers):  # with the observed return, on one scale
                lines.insert(0, (self._observed[: len(numbers)], SOFT))
                title = "Q / return" if right - left > 150 else name
            for line, line_color in lines:
                newest = line[-WINDOW:]
                span = _span(newest, self.spans.get(name, ())) if newest else (0.0, 1.0)
                points = _points(range(WINDOW - len(newest), WINDOW), newest, box, (0.0, WINDOW - 1.0), span)
                draw.line(points, fill=line_color, width=2)
            draw.text((box[0], box[1] - 19), title, fill=SOFT, font=_font(12))
            text = " / ".join(short_number(line[-1]) for line, _ in reversed(lines) if line)
            draw.text((box[2], box[1] - 19), text, fill=INK, font=_font(12), anchor="ra")
        return np.asarray(canvas)


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return from each step to the end of the episode."""
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return returns[::-1]


def grid_of(frames: Sequence[Frame]) -> Frame:
    """Frames of one size side by side, from four on in a grid that is nearly square, its last row centered."""
    columns = len(frames) if len(frames) <= 3 else math.ceil(math.sqrt(len(frames)))
    rows = math.ceil(len(frames) / columns)
    tiles = [_image(narrowed(frame, min(320, 1280 // columns))) for frame in frames]
    width, height = tiles[0].width + GAP, tiles[0].height + GAP
    canvas, _ = _canvas(columns * width - GAP, rows * height - GAP)
    for index, tile in enumerate(tiles):
        row, column = divmod(index, columns)
        missing = rows * columns - len(tiles) if row == rows - 1 else 0
        canvas.paste(tile, (column * width + missing * width // 2, row * height))
    return np.asarray(canvas)


def with_curve(frame: Frame, env_steps: Sequence[float], returns: Sequence[float], shown: float) -> Frame:
    """The frame with the learning curve to its right, and a mark at the shown agent."""
    height, width = frame.shape[:2]
    canvas, draw = _canvas(width + max(160, width * 3 // 4), height)
    canvas.paste(_image(frame), (0, 0))
    left, top, right, bottom = box = (width + 44, 28, canvas.width - 12, height - 30)
    low, high = _span(returns)
    points = _points(env_steps, returns, box, (0.0, float(max(env_steps))), (low, high))
    draw.text((left, 6), "return of the evaluations", fill=SOFT, font=_font(12))
    for position, text in (
        ((left - 6, top), short_number(high)),
        ((left - 6, bottom), short_number(low)),
        ((right, height - 16), f"{max(env_steps):,.0f} env steps"),
    ):
        draw.text(position, text, fill=SOFT, font=_font(11), anchor="rm")
    draw.line([(left, bottom), (right, bottom)], fill=SOFT)
    draw.line(points, fill=VALUE, width=2)
    x, y = min(zip(points, env_steps, strict=True), key=lambda pair: abs(pair[1] - shown))[0]
    draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill=REWARD)
    return np.asarray(canvas)


def narrowed(frame: Frame, width: int) -> Frame:
    """The frame with at most this width and even sides, as video codecs require."""
    scale = min(1.0, width / frame.shape[1])
    size = (2 * round(frame.shape[1] * scale / 2), 2 * round(frame.shape[0] * scale / 2))
    return frame if size == frame.shape[1::-1] else np.asarray(_image(frame).resize(size, 1))  # by Lanczos


def short_number(value: float) -> str:
    """A number with few digits; never -0."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value + 0.0 if abs(value) >= 0.005 else 0.0:.2f}"


def _span(*sequences: Sequence[float]) -> Span:
    numbers = [number for sequence in sequences for number in sequence]
    return min(numbers), max(numbers)


def _points(
    xs: Sequence[int] | Sequence[float], ys: Sequence[float], box: tuple[int, int, int, int], x_span: Span, y_span: Span
) -> list[tuple[float, float]]:
    """Where a line's points are in a box of pixels; what does not vary is at the bottom, or on the left."""
    left, top, right, bottom = box
    x_scale = (right - left) / ((x_span[1] - x_span[0]) or 1.0)
    y_scale = (bottom - top) / ((y_span[1] - y_span[0]) or 1.0)
    return [(left + (x - x_span[0]) * x_scale, bottom - (y - y_span[0]) * y_scale) for x, y in zip(xs, ys, strict=True)]


def _canvas(width: int, height: int) -> tuple[Any, Any]:
    from PIL import Image, ImageDraw

    canvas = Image.new("RGB", (width, height), PAPER)
    return canvas, ImageDraw.Draw(canvas)


def _image(frame: Frame) -> Any:
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(frame))


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
