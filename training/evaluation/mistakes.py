"""What a classifier answered for each image: a table, and a page of the surest mistakes."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import os
import pathlib
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageOps

from keras_vit.files import write_csv, write_text
from keras_vit.images.transcoding import transcoded
from keras_vit.training.data import Examples

MAX_SHOWN = 100  # Mistakes on a page.
THUMBNAIL = 160  # Pixels of the longer side.

COLUMNS = ("image", "true", "answer", "probability", "right")

STYLE = """
:root { color-scheme: light dark; }
body { font-family: sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .6rem; border: 1px solid #8884; border-radius: .4rem; }
img { display: block; margin: 0 auto .5rem; max-width: 100%; image-rendering: pixelated; }
figcaption { font-size: .9rem; overflow-wrap: anywhere; line-height: 1.4; }
small { opacity: .75; }
"""


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answer for each image, in the order of the examples.

    Args:
        examples: The N images.
        true: What each image is, for people; several labels are separated by ";".
        given: What was answered, likewise.
        probability: Of the answer, `(N,)`; of several labels that of the surest wrong decision,
            or of the least sure if all are right.
        right: Whether the answer is right, bool `(N,)`.
    """

    examples: Examples
    true: list[str]
    given: list[str]
    probability: np.ndarray
    right: np.ndarray

    def write_csv(self, path: str | os.PathLike) -> None:
        """Writes a row for each image."""
        rows = zip(
            self.examples.names,
            self.true,
            self.given,
            (f"{value:.6g}" for value in self.probability),
            self.right.astype(int),
            strict=True,
        )
        write_csv(pathlib.Path(path), [COLUMNS, *rows])

    def surest_mistakes(self, count: int = MAX_SHOWN) -> np.ndarray:
        """Returns the numbers of wrong answers, the most probable first, int `(M,)`."""
        wrong = np.flatnonzero(~self.right)
        return wrong[np.argsort(-self.probability[wrong], kind="stable")][:count]

    def write_page(self, path: str | os.PathLike, title: str) -> None:
        """Writes an HTML page with pictures of the surest mistakes, which needs no network.

        Args:
            path: The file.
            title: The heading.
        """
        chosen = self.surest_mistakes()
        names = self.examples.names
        figures = "".join(
            self._figure(number, names[number], picture)
            for number, picture in zip(chosen, self._pictures(chosen), strict=True)
        )
        wrong = int((~self.right).sum())
        shown = f", the {len(chosen)} surest of them" if wrong > len(chosen) else ""
        text = f"{wrong:,} of {len(self.right):,} images have a wrong answer{shown}."
        write_text(
            pathlib.Path(path),
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f"<h1>{html.escape(title)}</h1>\n<p>{text}</p>\n<main>\n{figures}</main>\n"
            "</body>\n</html>\n",
        )

    def _pictures(self, chosen) -> Iterator[str]:
        """A small JPEG of each chosen image as a data URL, in the order of `chosen`."""
        encoded = self.examples.take(chosen).encoded()  # In ascending order.
        pictures = {place: image for place, (image, _) in zip(sorted(chosen), encoded, strict=True)}
        for place in chosen:
            with Image.open(io.BytesIO(transcoded(pictures[place], "PNG"))) as image:
                small = ImageOps.exif_transpose(image).convert("RGB")
            small.thumbnail((THUMBNAIL, THUMBNAIL))
            buffer = io.BytesIO()
            small.save(buffer, "JPEG", quality=85)
            yield f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"

    def _figure(self, number, name, picture):
        file = pathlib.Path(name)
        label = html.escape(file.name)
        if file.is_file():
            label = f'<a href="{html.escape(file.absolute().as_uri())}">{label}</a>'
        texts = (self.given[number], self.true[number])
        given, true = (html.escape(text or "nothing") for text in texts)
        return (
            f'<figure><img alt="{html.escape(file.name)}" src="{picture}">\n'
            f"<figcaption><b>{given}</b> {self.probability[number]:.1%}<br>is <b>{true}</b><br>"
            f"<small>{label}</small></figcaption></figure>\n"
        )
