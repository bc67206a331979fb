"""Reports of evaluations: what all tasks have in common."""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.description.class_labels import SEPARATOR
from keras_vit.description.run_record import Reference
from keras_vit.images.samples import seen_picture
from keras_vit.preprocessing import Preprocessing
from keras_vit.reports.pages import GridPicture, Photos, write_page
from keras_vit.reports.report import (
    FACTS_TABLE,
    METRICS_JSON,
    NamedFact,
    Report,
    Table,
    fact_of_line,
)
from keras_vit.training.data import Examples
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.data.spec import NOT_LOOKED_FOR
from keras_vit.utils.files import REPORT, SKIPPED
from keras_vit.utils.json_files import number_or_none

from .measures import ClassCounts, Share, independent_images
from .report_page import errors_section, numbers_section

MAX_SHOWN = 100  # Errors on a page.

_TABLES = (
    FACTS_TABLE,
    "per_class",
    "answers",
    "skipped",
    "confusion",
    "calibration",
    "risk_coverage",
)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class EvaluationReport(abc.ABC):
    """The answers of a classifier to N images, and numbers about them; `str` gives the text.

    Args:
        class_names: The K names.
        true: The class of each image, int `(N,)`; for multi-label data whether it has each label,
            bool `(N, K)`.
        given: The answers, in the same form.
        probability: The probability of each answer, `(N,)`. For multi-label data, the probability
            of the most confident wrong decision, or of the least confident one if all are right.
        loss: Mean over images, nats.
        examples: The images; None where only the outputs are known.
        preprocessing: How an image became the model's input; None where it is not known.
        skipped: `(path, reason)` of images that could not be read.
        images_per_second: Speed of decoding and the model together.
        split_lines: What of the data was evaluated, and what was left out.
        new: The report on images that are new to the classifier's run, if others are reported on.
        simple: What simple numbers of the photos reach without the classifier, if it is known.
        is_shown_before: Whether each image shows a thing of which the run trained on an image, or
            chose its weights by one, bool `(N,)`; None where it is not known.
        ignores_copies: Whether copies were not looked for when the parts were drawn.
        run_test: The accuracy on the test images of the classifier's run, where others are reported
            on; None where it is not known.
        trained: Images of each class that the classifier was trained on, K numbers; None where
            they are not known.
        units: The thing or group of each image, int from 0 `(N,)`, whose images are counted
            together by intervals; None where each image stands alone.
    """

    class_names: tuple[str, ...]
    true: np.ndarray
    given: np.ndarray
    probability: np.ndarray
    loss: float
    examples: Examples | None = None
    preprocessing: Preprocessing | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    images_per_second: float = 0.0
    split_lines: tuple[str, ...] = ()
    new: EvaluationReport | None = None
    simple: Reference | None = None
    is_shown_before: np.ndarray | None = None
    ignores_copies: bool = False
    run_test: Reference | None = None
    trained: tuple[int, ...] | None = None
    units: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Images evaluated."""
        return len(self.true)

    @property
    def on_new_things(self) -> Share | None:
        """Share of right answers to images of things that were not trained on.

        None where all images are such, none is, or it is not known.
        """
        seen = self.is_shown_before
        if seen is None or not seen.any() or seen.all():
            return None
        return Share(self.right[~seen].mean(), self._worth(self.right, ~seen))

    @functools.cached_property
    def independent(self) -> int:
        """Independent images that the right answers are worth; see `independent_images`."""
        return self._worth(self.right, np.ones(self.count, bool))

    def _worth(self, right, chosen):
        if self.units is None:
            return int(chosen.sum())
        return independent_images(right[chosen], self.units[chosen])

    @property
    def interval_text(self) -> str:
        """What the interval is of."""
        if self.independent == self.count:
            return "95% interval"
        return f"95% interval of {self.independent} independent images"

    @property
    def things(self) -> str:
        """What the images say of things that were not trained on; "" if all show such things."""
        texts, seen = [], self.is_shown_before
        if seen is not None and (new := self.on_new_things) is not None:
            count = int((~seen).sum())
            text = f"{count} of them show things that were not trained on: {new} of these are right"
            texts.append(text)
        elif seen is not None and seen.any():
            texts.append(
                "none of them shows a thing that was not trained on: this test says nothing about "
                "new things"
            )
        if self.ignores_copies:
            texts.append(NOT_LOOKED_FOR)
        return "; ".join(texts)

    @property
    def num_things(self) -> int | None:
        """How many things the images show; None where each image stands alone."""
        return None if self.units is None else len(np.unique(self.units))

    @property
    def main_facts(self) -> list[NamedFact]:
        """The facts that stand at the end of a run and of an evaluation."""
        facts = self.facts()[:2]
        if self.things:
            facts.append(NamedFact("things", self.things, numbers={}))
        if self.run_test is not None:
            facts.append(NamedFact("run", self.compared_with_run, numbers={}))
        return facts

    @property
    def compared_with_run(self) -> str:
        """The accuracy on the test images of the run, and whether this one differs from it."""
        return ""

    @functools.cached_property
    def right(self) -> np.ndarray:
        """Whether each answer is right, bool `(N,)`."""
        return (self.true == self.given).reshape(self.count, -1).all(axis=1)

    @functools.cached_property
    def counts(self) -> ClassCounts:
        """Right and wrong answers by class."""
        return ClassCounts.of(self.true, self.given, len(self.class_names))

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
    def columns(self) -> dict[str, Sequence]:
        """The table by class: from each heading to its K numbers; the first is "images"."""

    @abc.abstractmethod
    def facts(self) -> list[NamedFact]:
        """Returns the facts of all images; the first two are the main ones."""

    def tables(self) -> dict[str, Table]:
        """Returns the tables of the report by the names of their files."""
        columns = dict(self.columns)
        if self.trained is not None:
            columns["trained on"] = self.trained
        by_class = zip(self.class_names, *columns.values(), strict=True)
        tables = {"per_class": Table(("class", *columns), list(by_class))}
        if self.examples is not None:
            cells = (
                self.examples.names,
                map(self.text_of, self.true),
                map(self.text_of, self.given),
                self.probability.tolist(),
                self.right.astype(int).tolist(),
            )
            header = ("image", "true", "answer", "probability", "right")
            tables["answers"] = Table(header, list(zip(*cells, strict=True)))
        if self.skipped:
            tables[pathlib.Path(SKIPPED).stem] = Table(("path", "reason"), self.skipped)
        return tables

    def by_recall(self) -> Table:
        """Returns the table by class, the lowest recall first, classes without images last."""
        table = self.tables()["per_class"]
        order = np.argsort(self.counts.known(self.counts.recall), kind="stable")  # NaN last.
        return Table(table.columns, [table.rows[k] for k in order])

    def report(self) -> Report:
        """Returns the facts and tables of all images."""
        facts = [*map(fact_of_line, self.split_lines)]
        facts.append(NamedFact("images", f"{self.count} (each once)", numbers={}))
        facts += self.facts()[2:]
        if self.new is not None:
            text = f"images that are new to the run: {self.new.summary}"
            facts.append(NamedFact("new", text, numbers={}))
        counted = zip(self.class_names, self.counts.images, strict=True)
        absent, notes = [name for name, count in counted if not count], []
        if absent:
            more = f" and {len(absent) - 10} more" if len(absent) > 10 else ""
            notes = [f"not in the means, as no image has it: {', '.join(absent[:10])}{more}"]
        if self.skipped:
            notes += ["", f"images that could not be read: {len(self.skipped)}"]
            notes += describe_skipped(self.skipped)
        tables, main = self.tables(), self.main_facts
        return Report(facts, tables, "per_class", notes, main, self._numbers())

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON; None where a class has no images."""
        return self.report().to_json()

    def _numbers(self):
        """What the JSON has in addition to the facts."""
        columns = {_JSON_NAMES.get(head, head): values for head, values in self.columns.items()}
        by_class = {
            name: {head: number_or_none(values[k]) for head, values in columns.items()}
            for k, name in enumerate(self.class_names)
        }
        return {
            **self._facts_of_things(),
            "loss": self.loss,
            "images_per_second": self.images_per_second,
            "by_class": by_class,
            "skipped": [list(item) for item in self.skipped],
            **({"split": list(self.split_lines)} if self.split_lines else {}),
            **({} if self.new is None else {"new": self.new.to_json()}),
        }

    def _facts_of_things(self):
        if self.is_shown_before is None:
            return {}
        new, share = int((~self.is_shown_before).sum()), self.on_new_things
        return {"new_things": {"images": new, "right": None if share is None else float(share)}}

    def __str__(self) -> str:
        return str(self.report())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}; print() shows all>"

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes all numbers (JSON), the tables (CSV), and a page with the most confident errors.

        The files of an older evaluation are removed first, and the numbers are written last: where
        they are, all files are of one evaluation.

        Args:
            folder: Created if it does not exist.

        Returns:
            The files written.
        """
        folder = pathlib.Path(folder)
        page = folder / REPORT
        for name in (METRICS_JSON, REPORT, *(f"{table}.csv" for table in _TABLES)):
            (folder / name).unlink(missing_ok=True)
        write_page(page, "Evaluation", *self.page_parts(self.error_pictures(MAX_SHOWN)))
        return [*self.report().write(folder), page]

    def page_parts(self, pictures: Mapping[int, GridPicture]) -> list[str]:
        """Returns the parts of a page about the report.

        Args:
            pictures: The most confident errors, by `error_pictures`.
        """
        photos: dict[tuple[str, str], list[GridPicture]] = collections.defaultdict(list)
        for number, picture in pictures.items():
            pair = self.text_of(self.true[number]), self.text_of(self.given[number])
            photos[pair].append(picture)
        return [
            self.panel(),
            *numbers_section(self.report(), self.by_recall()),
            *self.charts(photos),
            *errors_section(self.count, int((~self.right).sum()), list(pictures.values())),
        ]

    @abc.abstractmethod
    def panel(self) -> str:
        """Returns the panel of the page with the main number, HTML."""

    def charts(self, photos: Photos) -> list[str]:
        """Returns the parts of the page that only this task has.

        Args:
            photos: Photos of the most confident errors, by the true class and the answer.
        """
        return []

    def error_pictures(
        self, count: int, relative: Callable[[str], str] | None = None
    ) -> dict[int, GridPicture]:
        """Returns the most confident errors, by their place in the report.

        Args:
            count: The most pictures.
            relative: Shortens the name of an image; such a picture has no link to its file.
        """
        wrong = np.flatnonzero(~self.right)
        chosen = wrong[np.argsort(-self.probability[wrong], kind="stable")][:count]
        if self.examples is None or not len(chosen):
            return {}
        encoded = self.examples.take(chosen).encoded()  # In ascending order.
        images = {place: image for place, (image, _) in zip(sorted(chosen), encoded, strict=True)}
        pictures = {}
        for number in chosen.tolist():
            name, caption = self.examples.names[number], self._caption(number)
            if relative is not None:
                name, caption = "", {**caption, relative(name): ""}
            encoded = images[number]
            picture = GridPicture(name, encoded, caption, seen_picture(encoded, self.preprocessing))
            if self.preprocessing is not None:
                picture = picture._replace(bit_depth=self.preprocessing.bit_depth)
            pictures[number] = picture
        return pictures

    def _caption(self, number):
        given, true = (
            self.text_of(classes[number]).replace(SEPARATOR, ", ") or "no label"
            for classes in (self.given, self.true)
        )
        return {f"answer ({self.probability[number]:.1%})": given, "true": true}

    def text_of(self, classes: np.ndarray) -> str:
        """Returns the name of a class number, or the names of labels, bool `(K,)`, between ";"."""
        if classes.ndim:
            return SEPARATOR.join(self.class_names[k] for k in np.flatnonzero(classes).tolist())
        return self.class_names[int(classes)]


# Names in the JSON of columns of the table.
_JSON_NAMES = {"accuracy": "recall"}
