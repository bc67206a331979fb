"""An HTML page of small pictures with captions, in one file that needs no network."""

from __future__ import annotations

import base64
import html
import io
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from keras_vit.files import write_text
from keras_vit.images.transcoding import transcoded
from keras_vit.training.data import Examples

THUMBNAIL = 160  # Pixels of the longer side.

STYLE = """
:root { color-scheme: light dark; }
body { font-family: sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .6rem; border: 1px solid #8884; border-radius: .4rem; }
img { display: block; margin: 0 auto .5rem; max-width: 100%; min-width: 4rem; }
figcaption { font-size: .9rem; overflow-wrap: anywhere; line-height: 1.4; }
small { opacity: .75; }
"""


class PageImage(NamedTuple):
    """An image of a page.

    Args:
        name: Its file, to which the page links, or its name in record files.
        encoded: The image file's bytes.
        lines: Pieces of text; every second one is bold.
    """

    name: str
    encoded: bytes
    lines: list[str]


def write_picture_page(
    path: str | os.PathLike, title: str, text: str, images: Iterable[PageImage]
) -> None:
    """Writes the page.

    Args:
        path: The HTML file.
        title: The heading.
        text: A sentence below it.
        images: In the order of the page.
    """
    figures = "".join(map(_figure, images))
    write_text(
        pathlib.Path(path),
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(text)}</p>\n<main>\n{figures}</main>\n"
        "</body>\n</html>\n",
    )


def encoded_images(examples: Examples, chosen: np.ndarray) -> Iterator[bytes]:
    """Returns the encoded images of some examples, in the order given.

    Args:
        examples: The examples.
        chosen: Their numbers, each once.
    """
    found = examples.take(chosen).encoded()  # In ascending order.
    images = {place: image for place, (image, _) in zip(sorted(chosen), found, strict=True)}
    return (images[place] for place in chosen)


def _figure(image):
    file = pathlib.Path(image.name)
    name = html.escape(file.name)
    link = name
    if file.is_file():
        link = f'<a href="{html.escape(file.absolute().as_uri())}">{name}</a>'
    lines = [html.escape(line) for line in image.lines]
    caption = "<br>".join(f"<b>{line}</b>" if i % 2 else line for i, line in enumerate(lines))
    return (
        f'<figure><img alt="{name}" src="{_data_url(image.encoded)}">\n'
        f"<figcaption>{caption}<br><small>{link}</small></figcaption></figure>\n"
    )


def _data_url(encoded):
    with Image.open(io.BytesIO(transcoded(encoded, "PNG"))) as image:
        small = ImageOps.exif_transpose(image).convert("RGB")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
