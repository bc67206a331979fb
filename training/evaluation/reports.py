"""The base of the reports of evaluations: text, numbers by class, and files."""

from __future__ import annotations

import abc
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.training.data.sources import describe_skipped
from keras_vit.utils.files import write_csv, write_skipped, write_text
from keras_vit.utils.text_tables import align_columns

from .mistakes import Answers
from .per_class import ClassCounts

METRICS_JSON = "metrics.json"
PER_CLASS_CSV = "per_class.csv"

LEAST_PROBABILITY = 1e-7  # In the logarithm of a loss; the epsilon of Keras's configuration.


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationReport(abc.ABC):
    """The numbers of a classifier on a data set.

    Args:
        class_names: The K names.
        count: Images evaluated.
        counts: Right and wrong answers by class.
        loss: Mean over images, nats.
        skipped: `(path, reason)` of images that could not be read.
        images_per_second: Speed of decoding and the model together.
        answers: The answer to each image.
        split_lines: What of the data was evaluated, and what was left out.
        new: The report on images that are new to the classifier's run, if others are reported on.
    """

    class_names: tuple[str, ...]
    count: int
    counts: ClassCounts
    loss: float
    skipped: tuple[tuple[str, str], ...] = ()
    images_per_second: float = 0.0
    answers: Answers | None = None
    split_lines: tuple[str, ...] = ()
    new: EvaluationReport | None = None

    @property
    @abc.abstractmethod
    def score(self) -> float:
        """The number by which the best weights are chosen."""

    @property
    @abc.abstractmethod
    def summary(self) -> str:
        """The main numbers in one line."""

    @property
    @abc.abstractmethod
    def columns(self) -> Mapping[str, np.ndarray]:
        """The table by class: from each heading to its numbers `(K,)`; the first is "images"."""

    @abc.abstractmethod
    def lines(self) -> list[str]:
        """Returns the numbers of all images, a line each."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON."""

    def split_json(self) -> dict[str, Any]:
        """Returns what was evaluated and the numbers of new images, as far as known."""
        lines = {"split": list(self.split_lines)} if self.split_lines else {}
        return lines if self.new is None else {**lines, "new": self.new.to_json()}

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Returns columns of the table by class that are printed in another form than the file's.

        From each heading to the text of each class.
        """
        return {}

    def notes(self) -> list[str]:
        """Returns remarks below the table by class: the classes that are not in the means."""
        counted = zip(self.class_names, self.counts.images, strict=True)
        absent = [name for name, count in counted if not count]
        if not absent:
            return []
        more = f" and {len(absent) - 10} more" if len(absent) > 10 else ""
        return [f"not in the means, as no image has it: {', '.join(absent[:10])}{more}"]

    def by_class(self) -> dict[str, dict[str, float | None]]:
        """Returns the table by class as types of JSON; None where a class has no images."""
        columns = {head: values.tolist() for head, values in self.columns.items()}
        return {
            name: {head: number_or_none(values[k]) for head, values in columns.items()}
            for k, name in enumerate(self.class_names)
        }

    def __str__(self) -> str:
        table = align_columns(self._table("{:.4f}", "-", self.texts()), left=[0])
        text = [*self.split_lines, f"images  {self.count} (each once)", *self.lines()]
        if self.new is not None:
            text.append(f"new     {self.new.summary} that are new to the run")
        text += ["", table, *self.notes()]
        if self.skipped:
            text += ["", f"skipped {len(self.skipped)} images that could not be read:"]
            text += [f"  {line}" for line in describe_skipped(self.skipped)]
        return "\n".join(text)

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes the numbers by class (CSV), all numbers (JSON), answers, and skipped files (CSV).

        Args:
            folder: Created if it does not exist.

        Returns:
            The files written.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / PER_CLASS_CSV, self._table("{:.6g}", ""))
        write_text(folder / METRICS_JSON, json.dumps(self.to_json(), indent=2) + "\n")
        answers = self.answers.write(folder) if self.answers else []
        skipped = [write_skipped(folder, self.skipped)] if self.skipped else []
        return [folder / PER_CLASS_CSV, folder / METRICS_JSON, *answers, *skipped]

    def _table(self, form, absent, texts=None):
        """The headings, then the name of each class and its numbers, as text."""
        columns = {
            name: [absent if np.isnan(value) else form.format(value) for value in values]
            for name, values in self.columns.items()
        }
        columns |= {"images": list(map(str, self.columns["images"])), **(texts or {})}
        return [("class", *columns), *zip(self.class_names, *columns.values(), strict=True)]


def number_or_none(value: float) -> float | None:
    """Returns a number as a type of JSON: None for NaN."""
    return None if math.isnan(value) else value
