"""The decision of an export with integers, found on the scores of the export."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

from keras_vit.answering import scores_model
from keras_vit.classifier import Classifier

from .artefacts import RuntimeModel
from .export_format import ExportFormat

KEPT = (
    "The decision is the one of the Keras model, whose scores are other ones: give the calibration "
    "images (--data) to find it on the export."
)


def with_decision_of_export(
    export: ExportFormat, classifier: Classifier, files: Sequence[str]
) -> tuple[Classifier, tuple[str, ...]]:
    """Returns the classifier to export, and remarks about its decision for the user.

    Where the export has integers and can compute the calibration images, its scores are exported
    first, with the same integers, and the decision is found on them.

    Args:
        export: The format, with its options.
        classifier: The classifier.
        files: Real images, as for `ExportFormat.write`.

    Raises:
        ValueError: If no threshold is within the bound, or the classifier has no decision.
    """
    decision, decide = classifier.description.decision, getattr(export, "decide", None)
    if decide is None:
        is_kept = decision is not None and export.has_integers and export.unknown_class != "off"
        return classifier, (KEPT,) if is_kept else ()
    if decision is None or decision.in_outputs:
        raise ValueError(
            "Calibration images (--data) are for a classifier with a decision (keras-vit "
            f"calibrate). Received: {classifier.folder}"
        )
    model = scores_model(classifier.model, classifier.decision_arrays)
    names = tuple(map(str, range(model.output_shape[-1])))
    scores = Classifier(model, names, classifier.preprocessing, task=classifier.task)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"scores{export.suffix}"
        if export.marker:
            path.mkdir()
        export.write(path, scores, files)
        opened = export.open(path)
        runtime: Any = RuntimeModel(
            opened.signatures()["serve"], scores.preprocessing.image_size, opened.files
        )
        return decide(classifier, Classifier.of(runtime, scores.description))
