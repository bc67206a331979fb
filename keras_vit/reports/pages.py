"""HTML pages of text, pictures and charts; each page is one file without a script or a network.

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
import re
import string
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.images.transcoding import decode_file
from keras_vit.reports.report import Report
from keras_vit.utils.files import write_text

# Pixels of the longer side of a picture.
MAX_THUMBNAIL, MAX_LARGE = 160, 400

_MAX_COARSE = 128  # Pixels of the longer side.
_MIN_SECTIONS = 3  # Fewer need no links to them.
_DOT = 6  # Pixels.
_MAX_DOTS = 40  # Points of a line; more are drawn without dots.


class GridPicture(NamedTuple):
    """A picture of a grid.

    Args:
        name: Its file, to which the page links, or its name in record files; "" for a picture
            without either, on a page that leaves this machine.
        encoded: The image file's bytes.
        caption: Lines of text, each with the value that stands after it in bold, or "".
        seen: The file of what the model saw of it; b"" if that is all of it, or unknown.
        bit_depth: Bits of the values of a 16-bit image; see `decode_file`.
    """

    name: str
    encoded: bytes
    caption: Mapping[str, str]
    seen: bytes = b""
    bit_depth: int = FULL_DEPTH


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
    body = "".join(parts)
    sections = re.findall(r'<h2 id="([\w-]+)">(.*?)</h2>', body)
    links = "".join(f'<a href="#{name}">{text}</a>\n' for name, text in sections)
    nav = f'<nav aria-label="Sections">\n{links}</nav>\n' if len(sections) >= _MIN_SECTIONS else ""
    rule = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
    template = string.Template(_own_file("page.html"))
    page = template.substitute(
        policy=rule if policy else "", title=escape(title), style=style_sheet(), nav=nav, body=body
    )
    write_text(path, page)


def style_sheet() -> str:
    """Returns the style of all pages: elements and a few classes, in light and dark."""
    return _own_file("pages.css")


def _own_file(name):
    return pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")


class Html(str):
    """Text that is HTML, in which texts of others are escaped."""


def escape(text: str | float | None) -> str:
    """Returns HTML that shows a text; all text of a page goes through this function."""
    return text if isinstance(text, Html) else html.escape(str(text))


def heading(text: str) -> str:
    """Returns the heading of a section, to which the page links at its top."""
    name = re.sub(r"\W+", "-", text.lower()).strip("-")
    return f'<h2 id="{escape(name)}">{escape(text)}</h2>\n'


def paragraph(text: str) -> str:
    """Returns a paragraph."""
    return f"<p>{escape(text)}</p>\n"


def facts_table(facts: Iterable[Sequence[str | float]], header: Sequence[str] = ()) -> str:
    """Returns a table with a row for each fact: its name, and its value or values.

    Args:
        facts: The rows.
        header: Names of the columns, of which all but the first are numbers; () for none.
    """
    rows = []
    if header:
        rows = ["".join(f'<th scope="col">{escape(name)}</th>' for name in header)]
    for name, *values in facts:
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        rows.append(f'<th scope="row">{escape(name)}</th>{cells}')
    text = "".join(f"<tr>{row}</tr>\n" for row in rows)
    if not header:
        return f'<table class="facts">\n{text}</table>\n'
    return f'<div class="scroll" tabindex="0"><table class="numbers">\n{text}</table></div>\n'


def report_section(report: Report) -> str:
    """Returns the facts of a result with their origins, and below them the shown table."""
    rows = []
    for fact in report.all_facts:
        origin = f'<br><small class="quiet">{escape(fact.origin)}</small>' if fact.origin else ""
        rows.append((fact.name, Html(f"{escape(fact.value)}{origin}")))
    section = facts_table(rows)
    if report.shown:
        header, *cells = report.tables[report.shown].texts()
        section += facts_table(cells, header)
    return section


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
    return _figure(_image(png, "png", name), escape(caption))


def picture_grid(pictures: Iterable[GridPicture], *, is_large: bool = False) -> str:
    """Returns pictures with captions and links to their files.

    Args:
        pictures: The pictures.
        is_large: Whether they are large, with what the model saw beside them.
    """
    shown = "".join(_picture(picture, is_large) for picture in pictures)
    return f'<div class="{"pairs" if is_large else "grid"}">\n{shown}</div>\n'


def _picture(picture, is_large):
    file = pathlib.Path(picture.name)
    lines = []
    for text, value in picture.caption.items():
        lines += [f"{escape(text)} <b>{escape(value)}</b>"] if value else [escape(text)]
    link = escape(file.name)
    if file.is_file():
        link = f'<a href="{escape(file.absolute().as_uri())}">{link}</a>'
    caption = "<br>".join([*lines, f"<small>{link}</small>"] if picture.name else lines)
    name = file.name or ", ".join(f"{text} {value}" for text, value in picture.caption.items())
    side = MAX_LARGE if is_large else MAX_THUMBNAIL
    small = thumbnail(picture.encoded, side, bit_depth=picture.bit_depth)
    images = _image(small, "jpeg", name)
    if is_large and picture.seen:
        seen = thumbnail(picture.seen, MAX_LARGE, quality=95)
        images += _image(seen, "jpeg", f"{name}, as the model saw it")
    return _figure(f'<div class="pictures">{images}</div>', caption)


def thumbnail(
    encoded: bytes, side: int = MAX_THUMBNAIL, quality: int = 85, bit_depth: int = FULL_DEPTH
) -> bytes:
    """Returns a small JPEG of an image file, without the file's metadata.

    Args:
        encoded: The content of an image file.
        side: Pixels of the longer side, at most.
        quality: Quality of the JPEG.
        bit_depth: Bits of the values of a 16-bit image; see `decode_file`.
    """
    small = Image.fromarray(decode_file(encoded, bit_depth))
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def data_address(encoded: bytes, file_format: str) -> str:
    """Returns the address of a picture that is embedded in a page."""
    return f"data:image/{file_format};base64,{base64.b64encode(encoded).decode()}"


def _image(encoded, file_format, name):
    """Returns a picture that is embedded in the page; a small one is shown with its pixels."""
    with Image.open(io.BytesIO(encoded)) as image:
        kind = ' class="coarse"' if max(image.size) <= _MAX_COARSE else ""
    return f'<img{kind} alt="{escape(name)}" src="{data_address(encoded, file_format)}">'


def _figure(images, caption):
    """Returns pictures with a caption; both are HTML."""
    return f"<figure>{images}\n<figcaption>{caption}</figcaption></figure>\n"


Mark: TypeAlias = tuple[str, float]  # A name, and its place on the axis of a chart.


class Line(NamedTuple):
    """A line of a chart, or dots.

    Args:
        name: What it shows, for the legend; "" for none.
        points: Points (x, y) in the order of x; those that are not finite are left out.
        kind: "series-1" to "series-3", "ideal" for what they are compared with, or "interval".
        dots: Pixels of the dot of each point, in place of the line; () for a line.
    """

    name: str
    points: Sequence[tuple[float, float]]
    kind: str
    dots: Sequence[float] = ()


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Returns round numbers around a range: multiples of 1, 2 or 5 times a power of ten.

    Args:
        low: The first number is at most this.
        high: The last number is at least this.
        most: The most numbers within the range, at least 2.
    """
    if not high > low:
        high = low + (abs(low) or 1.0)
    least = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(least))
    # The margin is for rounding: (0.8 - 0.5) / 3 is a little more than 0.1.
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _axis(values, is_share):
    """The place of a value on an axis of round numbers, a function to percent, and their texts."""
    low, high = min(values), max(values)
    if is_share and low == high:
        low, high = 0.0, 1.0
    # Zero is on the axis unless the values are far from it.
    ticks = round_ticks(0.0 if 0 < low < high / 2 else low, high)
    factor, unit = (100, "%") if is_share else (1, "")
    digits = max(0, -math.floor(math.log10(factor * (ticks[1] - ticks[0])) + 1e-9))
    form = ".0e" if digits > 4 else f",.{digits}f"

    def place(value):
        return 100 * (value - ticks[0]) / (ticks[-1] - ticks[0])

    return place, [(f"{factor * tick:{form}}{unit}", place(tick)) for tick in ticks]


def columns(parts: Iterable[str]) -> str:
    """Returns parts beside each other where the page is wide."""
    return f'<div class="columns">\n{"".join(parts)}</div>\n'


def chart(
    title: str, lines: Sequence[Line], x_label: str, marks: Sequence[Mark] = (), shares: str = ""
) -> str:
    """Returns a chart of lines on common axes; "" if no line has a finite point.

    Args:
        title: What y is.
        lines: The lines.
        x_label: What x is.
        marks: Places on the axis of x.
        shares: The axes whose values are shares: "", "x", "y" or "xy".
    """
    points = [point for line in lines for point in line.points if _is_finite(point)]
    if not points:
        return ""
    across, x_texts = _axis([x for x, _ in points], "x" in shares)
    up, y_texts = _axis([y for _, y in points], "y" in shares)
    grid = "".join(f"M0 {100 - at:.2f}H100" for _, at in y_texts)
    drawn, keys = [f'<path class="grid-lines" d="{grid}"/>'], []
    for number, (name, value) in enumerate(marks, 1):
        drawn.append(f'<path class="mark-{number}" d="M{across(value):.2f} 0V100"/>')
        keys.append(_key(f"mark-{number}", name))
    for line in lines:
        if places := [(across(x), 100 - up(y)) for x, y in filter(_is_finite, line.points)]:
            drawn.append(_drawn(line, places))
            keys.append(_key(line.kind, line.name) if line.name else "")
    texts = [f'<span class="x" style="left:{at:.2f}%">{text}</span>' for text, at in x_texts]
    texts += [f'<span class="y" style="bottom:{at:.2f}%">{text}</span>' for text, at in y_texts]
    return (
        f'<figure class="chart"><h3>{escape(title)}</h3>\n'
        f'<div class="plot" role="img" aria-label="{escape(f"{title} by {x_label}")}">'
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">'
        f'{"".join(drawn)}</svg>{"".join(texts)}</div>\n<p class="x-label">{escape(x_label)}</p>\n'
        f'<ul class="legend">{"".join(keys)}</ul></figure>\n'
    )


def calibration_chart(
    bins: Sequence[tuple[int, float, float]], intervals: Sequence[tuple[float, float]], few: int
) -> str:
    """Returns a chart of the accuracy of answers by their probability.

    Args:
        bins: The images, their mean probability and their accuracy, of each bin.
        intervals: The interval of each accuracy.
        few: Bins of fewer images are marked as too few.
    """
    most = max(count for count, _, _ in bins)
    lines = [Line("as often right as the probability says", [(0.0, 0.0), (1.0, 1.0)], "ideal")]
    for (_, confidence, _), interval in zip(bins, intervals, strict=True):
        lines.append(Line("", [(confidence, end) for end in interval], "interval"))
    for name, kind in (("", "series-1"), (f"too few photos, under {few}", "few")):
        dots = [dot for dot in bins if (dot[0] < few) == (kind == "few")]
        sizes = [_DOT + 14 * math.sqrt(count / most) for count, _, _ in dots]
        lines.append(Line(name, [dot[1:] for dot in dots], kind, sizes))
    return chart("Accuracy", lines, "probability of the answer", shares="xy")


def _is_finite(point):
    return all(map(math.isfinite, point))


def _drawn(line, places):
    """A line through places, and a dot at each if they are few or have a size."""
    texts, drawn, dots = [f"{x:.2f},{y:.2f}" for x, y in places], "", line.dots
    if not dots:
        drawn = f'<polyline class="{line.kind}" points="{" ".join(texts)}"/>'
        dots = [_DOT for _ in texts if len(texts) <= _MAX_DOTS and line.kind.startswith("series")]
    # A path without a length is a dot, which stays round in a picture that is stretched.
    return drawn + "".join(
        f'<path class="{line.kind}" d="M{text}h0" style="stroke-width:{size:.1f}px"/>'
        for text, size in zip(texts, dots, strict=False)
    )


def _key(kind, name):
    """An entry of a legend."""
    return (
        f'<li><svg class="key" viewBox="0 0 24 8" aria-hidden="true"><path class="{kind}" '
        f'd="M1 4H23"/></svg>{escape(name)}</li>'
    )


def result_panel(
    share: float, text: str, interval: Sequence[float] = (), marks: Sequence[Mark] = ()
) -> str:
    """Returns the main number of a page, large, on a scale from 0 to 100%.

    Args:
        share: The number, from 0 to 1.
        text: What it is.
        interval: The two ends of its 95% interval, or ().
        marks: What it is compared with, with its share in the text.
    """
    drawn, keys, spoken = [], [], f"{share:.1%}"
    if interval:
        low, high = interval
        drawn.append(f'<i class="interval" style="left:{low:.2%};width:{high - low:.2%}"></i>')
        spoken += f", 95% interval {low:.1%} to {high:.1%}"
    for number, (name, value) in enumerate(marks, 1):
        drawn.append(f'<i class="mark-{number}" style="left:{value:.2%}"></i>')
        keys.append(_key(f"mark-{number}", name))
    drawn.append(f'<i class="value" style="left:{share:.2%}"></i>')
    ends = "".join(f"<span>{tick}%</span>" for tick in (0, 25, 50, 75, 100))
    return (
        f'<section class="panel result"><p class="large">{share:.1%}</p>\n{paragraph(text)}'
        f'<div class="scale" role="img" aria-label="{spoken}">{"".join(drawn)}</div>\n'
        f'<div class="ends" aria-hidden="true">{ends}</div>\n'
        f'<ul class="legend">{"".join(keys)}</ul></section>\n'
    )


Photos: TypeAlias = Mapping[tuple[str, str], Sequence[GridPicture]]


def confusion_table(names: Sequence[str], counts: np.ndarray, photos: Photos) -> str:
    """Returns a confusion matrix with totals and the percent of each row.

    Args:
        names: The names of rows and columns.
        counts: Images by true class (row) and answer (column), `(K, K)`.
        photos: By true class and answer, the photos that the page has; a click shows them.
    """
    head = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in names)
    lines = [f'<td></td>{head}<th scope="col"><span>images</span></th>']
    for true, row in zip(names, counts.tolist(), strict=True):
        total, cells = sum(row), []
        for answer, count in zip(names, row, strict=True):
            share = count / max(total, 1)
            text = Html(f"<b>{count:,}</b><small>{share:.0%}</small>" if count else "")
            kind = "right" if true == answer else "wrong"
            shown = with_photos(text, (true, answer), count, photos)
            cells.append(f'<td class="{kind}" style="--share:{share:.2f}">{shown}</td>')
        lines.append(f'<th scope="row">{escape(true)}</th>{"".join(cells)}<td>{total:,}</td>')
    sums = "".join(f"<td>{total:,}</td>" for total in [*counts.sum(axis=0), counts.sum()])
    lines.append(f'<th scope="row">answers</th>{sums}')
    table = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f'<div class="scroll" tabindex="0"><table class="confusion">{table}</table></div>\n'


def with_photos(text: str | float, pair: tuple[str, str], count: int, photos: Photos) -> str:
    """Returns a text, which is a button that shows photos above the page if there are any.

    Args:
        text: The text.
        pair: The true class and the answer.
        count: How many photos there are.
        photos: Those that the page has, by pair.
    """
    if not (pictures := photos.get(pair)):
        return escape(text)
    title, name = escape("{} taken for {}".format(*pair)), f"photos-{[*photos].index(pair)}"
    return Html(
        f'<button popovertarget="{name}" aria-label="{title}: {count:,}, show photos">'
        f'{escape(text)}</button><div popover id="{name}" role="dialog" aria-label="{title}">'
        f'<button popovertarget="{name}" popovertargetaction="hide">Close</button>'
        f"<h3>{title}</h3><p>{len(pictures):,} of {count:,} photos are on this page.</p>"
        f"{picture_grid(pictures)}</div>"
    )
