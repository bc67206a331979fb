"""Answers of a classifier for each image: a table, and a page of the surest mistakes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_vit.files import write_csv
from keras_vit.tasks import SEPARATOR
from keras_vit.training.data import Examples

from .picture_page import PageImage, encoded_images, write_picture_page

MAX_SHOWN = 100  # Mistakes on a page.

ANSWERS_CSV = "answers.csv"
MISTAKES_HTML = "mistakes.html"

COLUMNS = ("image", "true", "answer", "probability", "right")


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answer for each image, in the order of the examples.

    Args:
        examples: The N images.
        class_names: The K names.
        true: The class of each image, int `(N,)`; of several labels whether it has each, bool
            `(N, K)`.
        given: What was answered, likewise.
        probability: Of the answer, `(N,)`; of several labels that of the surest wrong decision,
            or of the least sure one if all are right.
        right: Whether the answer is right, bool `(N,)`.
    """

    examples: Examples
    class_names: Sequence[str]
    true: np.ndarray
    given: np.ndarray
    probability: np.ndarray
    right: np.ndarray

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes a row for each image (CSV), and the page of the surest mistakes (HTML).

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

    def surest_mistakes(self, count: int = MAX_SHOWN) -> np.ndarray:
        """Returns the numbers of wrong answers, the most probable first, int `(M,)`."""
        wrong = np.flatnonzero(~self.right)
        return wrong[np.argsort(-self.probability[wrong], kind="stable")][:count]

    def _text(self, classes):
        """A class number, or bool `(K,)`, for people; several labels are separated by ";"."""
        if classes.ndim:
            return SEPARATOR.join(self.class_names[k] for k in np.flatnonzero(classes).tolist())
        return self.class_names[int(classes)]

    def _write_page(self, path):
        chosen, names = self.surest_mistakes(), self.examples.names
        wrong = int((~self.right).sum())
        shown = f", the {len(chosen)} surest of them below" if wrong > len(chosen) else ""
        images = (
            PageImage(
                names[number],
                encoded,
                [
                    f"answer ({self.probability[number]:.1%})",
                    self._text(self.given[number]) or "no label",
                    "true",
                    self._text(self.true[number]) or "no label",
                ],
            )
            for number, encoded in zip(chosen, encoded_images(self.examples, chosen), strict=True)
        )
        text = f"{wrong:,} of {len(self.right):,} images have a wrong answer{shown}."
        write_picture_page(path, "Surest mistakes", text, images)
