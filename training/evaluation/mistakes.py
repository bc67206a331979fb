"""Answers of a classifier for each image: a table, and a page of the most confident errors."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from keras_vit.description.class_labels import SEPARATOR
from keras_vit.images.pages import GridPicture, paragraph, picture_grid, write_page
from keras_vit.training.data import Examples
from keras_vit.utils.files import write_csv

MAX_SHOWN = 100  # Errors on a page.

ANSWERS_CSV = "answers.csv"
MISTAKES_HTML = "mistakes.html"

COLUMNS = ("image", "true", "answer", "probability", "right")


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answer for each image, in the order of the examples.

    Args:
        examples: The N images.
        class_names: The K names.
        true: The class of each image, int `(N,)`; for multi-label data whether it has each label,
            bool `(N, K)`.
        given: The answers, in the same form.
        probability: The probability of each answer, `(N,)`. For multi-label data, the probability
            of the most confident wrong decision, or of the least confident one if all are right.
        right: Whether the answer is right, bool `(N,)`.
    """

    examples: Examples
    class_names: Sequence[str]
    true: np.ndarray
    given: np.ndarray
    probability: np.ndarray
    right: np.ndarray

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes a row for each image (CSV), and the page of the most confident errors (HTML).

        Args:
            folder: An existing folder.

        Returns:
            The files written.
        """
        table, page = (pathlib.Path(folder) / name for name in (ANSWERS_CSV, MISTAKES_HTML))
        columns = (
            self.examples.names,
            map(self._text, self.true),
            map(self._text, self.given),
            [f"{value:.6g}" for value in self.probability],
            self.right.astype(int).tolist(),
        )
        write_csv(table, [COLUMNS, *zip(*columns, strict=True)])
        self._write_page(page)
        return [table, page]

    def most_confident_errors(self, count: int = MAX_SHOWN) -> np.ndarray:
        """Returns the numbers of wrong answers, the most probable first, int `(M,)`."""
        wrong = np.flatnonzero(~self.right)
        return wrong[np.argsort(-self.probability[wrong], kind="stable")][:count]

    def caption(self, number: int) -> dict[str, str]:
        """Returns the answer to an image and its true class, as the caption of its picture."""
        return {
            f"answer ({self.probability[number]:.1%})": self._text(self.given[number])
            or "no label",
            "true": self._text(self.true[number]) or "no label",
        }

    def _text(self, classes):
        """Returns the name of a class number, or the names of labels, bool `(K,)`, between ";"."""
        if classes.ndim:
            return SEPARATOR.join(self.class_names[k] for k in np.flatnonzero(classes).tolist())
        return self.class_names[int(classes)]

    def _write_page(self, path):
        chosen = self.most_confident_errors()
        wrong = int((~self.right).sum())
        shown = f"; the {len(chosen)} most confident are below" if wrong > len(chosen) else ""
        pictures = (
            GridPicture(
                self.examples.names[number],
                encoded,
                self.caption(number),
            )
            for number, encoded in zip(chosen, encoded_images(self.examples, chosen), strict=True)
        )
        write_page(
            path,
            "Most confident errors",
            paragraph(f"{wrong:,} of {len(self.right):,} images have a wrong answer{shown}."),
            picture_grid(pictures),
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
