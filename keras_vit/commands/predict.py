"""`keras-vit predict`: the most likely classes of images, or their labels."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import os
import pathlib
import sys

from keras_vit.commands import Command, shared_arguments
from keras_vit.description.class_labels import MULTILABEL, SEPARATOR
from keras_vit.training.data.spec import DataSpec
from keras_vit.utils.fields import AT_LEAST_1, REQUIRED, changed, setting
from keras_vit.utils.files import SAMPLES, csv_row
from keras_vit.utils.safe_text import for_line

LABELS, ANSWER = "labels", "answer"  # Columns of an image's answer.


def _checked(predictions, failed, strict):
    """Yields predictions, and collects the predictions of images that could not be read."""
    for prediction in predictions:
        if prediction.error is not None:
            if strict:
                raise ValueError(f"{prediction.path}: {prediction.error}")
            failed.append(prediction)
        yield prediction
        sys.stdout.flush()  # The writer has just printed this prediction.


def _write_text(predictions, column):
    for prediction in predictions:
        print(for_line(prediction.path))
        if prediction.error is not None:
            print(f"  could not be read: {for_line(prediction.error)}")
        elif column == LABELS:
            print(f"  labels: {for_line(', '.join(prediction.labels)) or 'none'}")
        elif prediction.text is not None:
            print(f"  {for_line(prediction.text)}")
        for name, probability in prediction.top:
            print(f"  {probability:7.2%}  {for_line(name)}")


def _write_json(predictions, column):
    """One array with a line for each image, so that lines can also be read one by one."""
    print("[", end="")
    for index, prediction in enumerate(predictions):
        entry = prediction.to_json()
        print(("," if index else "") + "\n" + json.dumps(entry, ensure_ascii=False), end="")
    print("\n]")


def _write_csv(predictions, column):
    """A row for each class, with all labels or the answer of the image in the last column."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    last = [column] if column else []
    writer.writerow(["path", "rank", "class", "probability", "error", *last])
    for prediction in predictions:
        last = [SEPARATOR.join(prediction.labels)] if column else []
        top = enumerate(prediction.top, 1)
        rows: list = [(rank, name, f"{value:.6f}", "") for rank, (name, value) in top]
        for row in rows or [("", "", "", prediction.error)]:
            writer.writerow(csv_row([prediction.path, *row, *last]))


WRITERS = {"text": _write_text, "json": _write_json, "csv": _write_csv}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predict(Command):
    """Print the most likely classes of images.

    Exit code: 0 if every image was predicted, 1 if some could not be read (they are reported and
    the others predicted), 2 for wrong input or, with --strict, at the first image that cannot be
    read.
    """

    model: str = shared_arguments.classifier()
    images: tuple[str, ...] = setting(
        REQUIRED,
        "image files and folders of images, or the word samples: the photos in the classifier's "
        "own folder",
        unit="IMAGE",
        positional=True,
    )
    top: int = setting(5, "classes to print", unit="K", limits=AT_LEAST_1)
    format: str = setting("text", "", choices=tuple(WRITERS))
    batch_size: int = shared_arguments.batch_size()
    strict: bool = changed(DataSpec, "strict")

    @property
    def models(self) -> tuple[str | None, ...]:
        """The classifier."""
        return (self.model,)

    @property
    def needs_tensorflow(self) -> bool:
        """Whether TensorFlow is needed: not for an export in another runtime."""
        from keras_vit.export.formats.table import runs_without_tensorflow

        return not runs_without_tensorflow(self.model)

    def _samples(self, folder):
        path = pathlib.Path(folder or "", SAMPLES)
        if not path.is_dir():
            raise ValueError(
                "samples must be a file or folder, or the photos in a classifier's folder. "
                f"Received: {self.model}, which has no photos"
            )
        print(f"keras-vit: the photos in {for_line(str(path))}", file=sys.stderr)
        return path

    @property
    def takes_samples(self) -> bool:
        """Whether the images are the photos in the classifier's folder."""
        return self.images == (SAMPLES,) and not os.path.exists(SAMPLES)

    @functools.cached_property
    def files(self) -> list[str]:
        """The image files, none of the classifier's own; a ValueError if one is missing."""
        from keras_vit.images.listing import image_files

        return [] if self.takes_samples else image_files(self.images)

    def check_data(self) -> None:
        """Raises ValueError if an image is missing."""
        _ = self.files

    def run(self) -> int:
        """Predicts; returns 1 if an image could not be read."""
        from keras_vit.classifier import find_predictor
        from keras_vit.images.listing import image_files

        classifier = find_predictor(self.model)
        files = self.files
        if self.takes_samples:
            files = image_files(self._samples(classifier.folder))
        predictions = classifier.stream(files, self.top, self.batch_size)
        failed: list = []
        column = ANSWER if classifier.description.labels.abstains else None
        column = LABELS if classifier.task == MULTILABEL else column
        if self.format != "text" and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # Whatever the console's.
        WRITERS[self.format](_checked(predictions, failed, self.strict), column)
        for prediction in failed:
            line = for_line(f"keras-vit: {prediction.path}: {prediction.error}")
            print(line, file=sys.stderr)
        return 1 if failed else 0
