"""Line charts and shaded tables of a page, as SVG and HTML without scripts.

As in `pages`, all functions take plain text and escape it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_vit.images.pages import escape

_WIDTH, _HEIGHT = 480, 260  # The drawing, in SVG's units.
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 38  # Margins with the numbers.
_COLORS = ("#3b76c4", "#d9772b", "#3f9a55", "#b04a9a")
MAX_POINTS = 1000  # Longer lines are thinned evenly.


def line_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str
) -> str:
    """Returns a chart of lines on common axes; "" if no line has a finite point.

    Args:
        lines: By name, the points (x, y) in the order of x; points that are not finite are left
            out.
        x_label: What x is.
        y_label: What y is.
    """
    known = {name: _finite(points) for name, points in lines.items()}
    known = {name: points for name, points in known.items() if len(points)}
    if not known:
        return ""
    every = np.concatenate(list(known.values()))
    low, high = every.min(axis=0), every.max(axis=0)
    low[1] = min(low[1], 0.0)
    spans = np.where(high > low, high - low, 1.0)
    inner = np.array([_WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM])
    drawn, legend = [], []
    for number, (name, points) in enumerate(known.items()):
        color = _COLORS[number % len(_COLORS)]
        places = (points - low) / spans * inner
        places = places * (1, -1) + (_LEFT, _HEIGHT - _BOTTOM)
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        if len(points) == 1:
            x, y = places[0]
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
        else:
            shape = f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.6"/>'
            drawn.append(shape)
        legend.append(f'<b style="color:{color}">{escape(name)}</b>')
    frame = (
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" '
        'fill="none" stroke="currentColor" opacity=".6"/>'
    )
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
        f'aria-label="{escape(y_label)}" font-size="11" fill="currentColor">{frame}'
        f"{''.join(drawn)}{_ticks(low, low + spans)}</svg>\n"
        f"<figcaption>{', '.join(legend)}: {escape(y_label)} by {escape(x_label)}</figcaption>"
        "</figure>\n"
    )


def _finite(points):
    """The finite points, `(N, 2)`, at most `MAX_POINTS`."""
    array = np.array(list(points), float).reshape(-1, 2)
    array = array[np.isfinite(array).all(axis=1)]
    if len(array) <= MAX_POINTS:
        return array
    return array[np.unique(np.linspace(0, len(array) - 1, MAX_POINTS).astype(int))]


def _ticks(low, high):
    """The smallest, middle and largest number of both axes."""
    texts = []
    for share in (0.0, 0.5, 1.0):
        x, y = low + share * (high - low)
        left = _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
        top = _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)
        anchor = ("start", "middle", "end")[round(2 * share)]
        texts.append(f'<text x="{left}" y="{_HEIGHT - 16}" text-anchor="{anchor}">{x:.4g}</text>')
        texts.append(f'<text x="{_LEFT - 6}" y="{top + 4}" text-anchor="end">{y:.3g}</text>')
    return "".join(texts)


def shaded_table(names: Sequence[str], rows: Iterable[Sequence[int]], corner: str) -> str:
    """Returns a square table of counts, each cell shaded by its share of the row.

    Args:
        names: The names of rows and columns.
        rows: The counts, `(K, K)`.
        corner: The text above the names of the rows.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *names))
    lines = [f"<tr>{head}</tr>\n"]
    for name, row in zip(names, rows, strict=True):
        total = max(math.fsum(row), 1)
        cells = "".join(
            f'<td style="text-align:right;background:rgb(59 118 196 / {count / total:.2f})">'
            f"{count or ''}</td>"
            for count in row
        )
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>\n")
    return (
        f'<div style="overflow-x:auto"><table><caption>{escape(corner)}</caption>\n'
        f"{''.join(lines)}</table></div>\n"
    )
