"""Small charts as SVG text: lines with bands, histograms, one stacked bar. They use the page's colors, light or dark.

Drawn here and not by a plotting library, because every run updates its report, also without one installed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from td3.policy import Array

WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 14, 40
"""Margins for ticks and labels, in the chart's units; text is 13 units high."""
MOST_POINTS = 240
"""Maximum points of a line; more would not be visible."""


@dataclass(frozen=True)
class Line:
    """One curve, with a band if `low` and `high` are given; `color` is CSS."""

    x: Array
    y: Array
    color: str
    width: float = 2.0
    opacity: float = 1.0
    dashed: bool = False
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True)
class Level:
    """A horizontal line across the chart, with a band of `spread` on either side."""

    y: float
    color: str
    spread: float = 0.0


@dataclass
class Chart:
    """The content and the axes of a chart."""

    title: str
    x_label: str = "env steps"
    lines: list[Line] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    log: bool = False
    height: int = HEIGHT
    width: int = WIDTH
    y_span: tuple[float, float] | None = None

    def svg(self) -> str:
        """The chart as an `<svg>` element."""
        (x_low, x_high), (y_low, y_high) = self._spans()
        y_ticks = _powers(y_low, y_high) if self.log else ticks(y_low, y_high)
        down, right = self.height - BOTTOM, self.width - RIGHT

        def across(x: Array | float) -> Array:
            return np.asarray(LEFT + (np.asarray(x) - x_low) / (x_high - x_low) * (right - LEFT))

        def upward(y: Array | float) -> Array:
            share = (_scaled(y, self.log) - y_low) / (y_high - y_low)
            return np.asarray(down - np.clip(share, 0, 1) * (down - TOP))

        parts = [_open(self.title, self.height, self.width)]
        for tick in y_ticks:
            height = upward(10**tick if self.log else tick)
            parts.append(f'<path class="grid" d="M{LEFT} {height:.1f}H{right}"/>')
            label = short(10**tick if self.log else tick)
            parts.append(f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{label}</text>')
        for tick in ticks(x_low, x_high, self.width // 100):
            tick_x, label = float(across(tick)), short(tick, max(abs(x_low), abs(x_high)))
            parts.append(f'<text x="{tick_x:.1f}" y="{down + 16}" text-anchor="middle">{label}</text>')
            parts.append(f'<path class="axis" d="M{tick_x:.1f} {down}v4"/>')
        parts.append(f'<path class="axis" d="M{LEFT} {down}H{right}"/>')
        middle = (LEFT + right) / 2
        parts.append(_soft(middle, self.height - 6, self.x_label, "middle"))
        for level in self.levels:
            low, high = (float(upward(level.y + sign * level.spread)) for sign in (-1, 1))
            parts.append(
                f'<rect x="{LEFT}" y="{high:.1f}" width="{right - LEFT}" height="{low - high:.1f}" '
                f'style="fill:{level.color}" opacity=".15"/>'
            )
            parts.append(
                f'<path d="M{LEFT} {upward(level.y):.1f}H{right}" class="line" '
                f'style="stroke:{level.color}" stroke-width="1.5" stroke-dasharray="6 4"/>'
            )
        for line in self.lines:
            parts += _drawn(line, across, upward)
        return "".join([*parts, "</svg>"])

    def _spans(self) -> tuple[tuple[float, float], tuple[float, float]]:
        xs = [line.x for line in self.lines if len(line.x)]
        ys = [v for line in self.lines for v in (line.y, line.low, line.high) if v is not None and len(v)]
        ys += [np.array([level.y - level.spread, level.y + level.spread]) for level in self.levels]
        x_span = _span(xs)
        return x_span if x_span[0] < x_span[1] else (x_span[0] - 1, x_span[1] + 1), (
            self.y_span or _padded(_span([_scaled(y, self.log) for y in ys]))
        )


def _drawn(line: Line, across: Callable[[Array], Array], upward: Callable[[Array], Array]) -> list[str]:
    finite = np.isfinite(line.y) & np.isfinite(line.x)
    x, y = line.x[finite], line.y[finite]
    thin = _thinned(len(x))
    parts = []
    if line.low is not None and line.high is not None and len(x) > 1:
        edge = np.concatenate((x[thin], x[thin][::-1]))
        rim = np.concatenate((line.low[finite][thin], line.high[finite][thin][::-1]))
        path = _points(across(edge), upward(rim))
        parts.append(f'<path d="{path}Z" style="fill:{line.color}" opacity=".22"/>')
    style = f'style="stroke:{line.color}" stroke-width="{line.width:g}" opacity="{line.opacity:g}"'
    dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
    if len(x) == 1:
        parts.append(f'<circle cx="{across(x)[0]:.1f}" cy="{upward(y)[0]:.1f}" r="3" style="fill:{line.color}"/>')
    elif len(x):
        path = _points(across(x[thin]), upward(y[thin]))
        parts.append(f'<path class="line" d="{path}" {style}{dashes}/>')
    return parts


def bars(
    groups: Sequence[tuple[Array, str]], title: str, x_label: str, ends: tuple[str, str], height: int = 200
) -> str:
    """Overlaid histograms, each as shares of its own sum."""
    shares = [(counts / max(counts.sum(), 1), color) for counts, color in groups if len(counts)]
    top = max([float(share.max()) for share, _ in shares], default=1.0) or 1.0
    down = height - BOTTOM
    parts = [_open(title, height)]
    for tick in ticks(0.0, top, 3):
        y = down - tick / top * (down - TOP)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * tick:g} %</text>')
    for share, color in shares:
        edges = np.linspace(LEFT, WIDTH - RIGHT, len(share) + 1)
        heights = down - share / top * (down - TOP)
        steps = "".join(f"V{y:.1f}H{right:.1f}" for y, right in zip(heights, edges[1:], strict=True))
        path = f"M{edges[0]:.1f} {down}{steps}V{down}"
        parts.append(f'<path d="{path}Z" style="fill:{color}" opacity=".18"/>')
        parts.append(f'<path class="line" d="{path}" style="stroke:{color}" stroke-width="1.6"/>')
    parts.append(f'<path class="axis" d="M{LEFT} {down}H{WIDTH - RIGHT}"/>')
    parts.append(f'<text x="{LEFT}" y="{down + 16}">{escape(ends[0])}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{down + 16}" text-anchor="end">{escape(ends[1])}</text>')
    parts.append(_soft((LEFT + WIDTH - RIGHT) / 2, height - 6, x_label, "middle"))
    return "".join([*parts, "</svg>"])


def stacked(shares: Sequence[tuple[float, str]], title: str) -> str:
    """One horizontal bar of shares."""
    whole, left = sum(share for share, _ in shares) or 1.0, 0.0
    parts = [_open(title, 30)]
    for share, color in shares:
        width = share / whole * WIDTH
        parts.append(f'<rect x="{left:.2f}" y="3" width="{width:.2f}" height="24" style="fill:{color}"/>')
        left += width
    return "".join([*parts, "</svg>"])


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers within the span, about as many as asked for."""
    raw = (high - low) / about
    if not (math.isfinite(raw) and raw > 0):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * base for base in (1, 2, 2.5, 5, 10) if power * base >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * count, 12) for count in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float, largest: float = 0.0) -> str:
    """A short number for an axis, in the unit of the largest one on that axis."""
    size = max(abs(value), abs(largest))
    if value == 0:
        return "0"
    if size >= 1e6:
        text = f"{value / 1e6:.4g}M"
    elif size >= 1e4:
        text = f"{value / 1e3:.4g}k"
    elif size < 1e-3:
        text = f"{value:.0e}".replace("e-0", "e-")
    else:
        text = f"{value:,.4g}" if size < 1000 else f"{value:,.0f}"
    return text.replace("-", "\u2212")


def _open(title: str, height: int, width: int = WIDTH) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}">'


def _soft(x: float, y: int, text: str, anchor: str) -> str:
    return f'<text class="soft" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _points(x: Array, y: Array) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _thinned(count: int) -> Array:
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int)) if count else np.arange(0)


def _scaled(y: Array | float, log: bool) -> Array:
    values = np.asarray(y, np.float64)
    return np.asarray(np.log10(np.maximum(values, 1e-12))) if log else values


def _span(arrays: Sequence[Array]) -> tuple[float, float]:
    finite = [array[np.isfinite(array)] for array in arrays]
    values = np.concatenate([np.zeros(0), *finite])
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _padded(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    room = 0.05 * (high - low) or max(abs(low) * 0.1, 1e-6)
    return low - room, high + room


def _powers(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis, as exponents: powers of ten, or their halves and fifths if those are too few."""
    whole = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)]
    if len(whole) > 1:
        return whole[:: max(1, math.ceil(len(whole) / 5))]
    finer = [power + math.log10(base) for power in range(math.floor(low), math.ceil(high) + 1) for base in (1, 2, 5)]
    return [tick for tick in finer if low <= tick <= high]
