"""HTML pages of text, pictures and charts; each page is one file that needs no network.

`write_page` joins the parts that the other functions return. All of them take plain text and escape
it: names of files and classes can hold anything.
"""

from __future__ import annotations

import base64
import html
import io
import math
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from keras_vit.images.transcoding import to_rgb, transcoded
from keras_vit.utils.files import write_text

MAX_THUMBNAIL = 160  # Pixels of the longer side.

_WIDTH, _HEIGHT = 480, 260  # A chart, in SVG's units.
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 38  # Margins with the numbers.
_NUM_COLORS = 4  # In the style sheet.


class GridPicture(NamedTuple):
    """A picture of a grid.

    Args:
        name: Its file, to which the page links, or its name in record files; "" for a picture
            without either, on a page that leaves this machine.
        encoded: The image file's bytes.
        caption: Lines of text, each with the value that stands below it in bold, or "".
    """

    name: str
    encoded: bytes
    caption: Mapping[str, str]


def write_page(path: str | os.PathLike, title: str, *parts: str, policy: str = "") -> None:
    """Writes a page atomically.

    Args:
        path: The HTML file.
        title: The heading, and the title of the browser's window.
        *parts: What the other functions of this module return, in the order of the page.
        policy: The page's Content-Security-Policy; "" for a page without scripts.

    Raises:
        OSError: If the file cannot be written.
    """
    rule = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
    write_text(
        path,
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{rule if policy else ''}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style_sheet()}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{escape(title)}</h1>\n{''.join(parts)}</main>\n</body>\n</html>\n",
    )


def style_sheet() -> str:
    """Returns the style of all pages: elements and a few classes, in light and dark."""
    return pathlib.Path(__file__).with_name("pages.css").read_text(encoding="utf-8")


def escape(text: object) -> str:
    """Returns HTML that shows a text; all text of a page goes through this function."""
    return html.escape(str(text))


def heading(text: str) -> str:
    """Returns the heading of a section."""
    return f"<h2>{escape(text)}</h2>\n"


def paragraph(text: str) -> str:
    """Returns a paragraph."""
    return f"<p>{escape(text)}</p>\n"


def facts_table(facts: Iterable[tuple[object, object]]) -> str:
    """Returns a table with a row for each fact: its name and its value."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>\n" for name, value in facts)
    return f"<table>\n{''.join(rows)}</table>\n"


def file_links(files: Mapping[str, str]) -> str:
    """Returns a list of links to files beside the page, each with what it holds, or ""."""
    lines = []
    for name, content in files.items():
        link = f'<a href="{escape(urllib.parse.quote(name))}">{escape(name)}</a>'
        lines.append(f"<li>{link} {escape(content)}</li>\n")
    return f'<ul class="files">\n{"".join(lines)}</ul>\n'


def wide_picture(png: bytes, name: str, caption: str) -> str:
    """Returns a picture in its own size, at most as wide as the page, with a caption.

    Args:
        png: A PNG file's bytes.
        name: The text in place of the picture, for screen readers.
        caption: The text below it.
    """
    return _figure(png, "png", name, escape(caption))


def picture_grid(pictures: Iterable[GridPicture]) -> str:
    """Returns a grid of small pictures with captions and links to their files."""
    return f'<div class="grid">\n{"".join(map(_picture, pictures))}</div>\n'


def _picture(picture):
    file = pathlib.Path(picture.name)
    lines = []
    for text, value in picture.caption.items():
        lines += [escape(text), f"<b>{escape(value)}</b>"] if value else [escape(text)]
    link = escape(file.name)
    if file.is_file():
        link = f'<a href="{escape(file.absolute().as_uri())}">{link}</a>'
    caption = "<br>".join([*lines, f"<small>{link}</small>"] if picture.name else lines)
    return _figure(thumbnail(picture.encoded), "jpeg", file.name, caption)


def thumbnail(encoded: bytes, side: int = MAX_THUMBNAIL, quality: int = 85) -> bytes:
    """Returns a small JPEG of an image file, without the file's metadata.

    Args:
        encoded: The content of an image file.
        side: Pixels of the longer side, at most.
        quality: Quality of the JPEG.
    """
    with Image.open(io.BytesIO(transcoded(encoded))) as image:
        small = to_rgb(ImageOps.exif_transpose(image))
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def data_address(encoded: bytes, file_format: str) -> str:
    """Returns the address of a picture that is embedded in a page."""
    return f"data:image/{file_format};base64,{base64.b64encode(encoded).decode()}"


def _figure(encoded, file_format, name, caption):
    """Returns a picture that is embedded in the page; `caption` is HTML."""
    return (
        f'<figure><img alt="{escape(name)}" src="{data_address(encoded, file_format)}">\n'
        f"<figcaption>{caption}</figcaption></figure>\n"
    )


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
    arrays = {name: np.array(list(points), float) for name, points in lines.items() if points}
    finite = {name: points[np.isfinite(points).all(axis=1)] for name, points in arrays.items()}
    finite = {name: points for name, points in finite.items() if len(points)}
    if not finite:
        return ""
    all_points = np.concatenate(list(finite.values()))
    low, high = all_points.min(axis=0), all_points.max(axis=0)
    low[1] = min(low[1], 0.0)
    spans = np.where(high > low, high - low, 1.0)
    inner = np.array([_WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM])
    drawn, legend = [], []
    for number, (name, points) in enumerate(finite.items()):
        color = f"var(--series-{number % _NUM_COLORS + 1})"
        places = (points - low) / spans * inner
        places = places * (1, -1) + (_LEFT, _HEIGHT - _BOTTOM)
        text = [f"{x:.1f},{y:.1f}" for x, y in places]
        # The last point again: one point alone is a dot.
        drawn.append(
            f'<polyline points="{" ".join([*text, text[-1]])}" fill="none" stroke="{color}" '
            'stroke-width="1.6" stroke-linecap="round"/>'
        )
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
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(corner)}">'
        f"<table><caption>{escape(corner)}</caption>\n"
        f"{''.join(lines)}</table></div>\n"
    )
