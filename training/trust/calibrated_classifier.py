"""Calibration of a finished classifier: `keras-vit calibrate`."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.classifier_folder import write_model
from keras_vit.description.run_record import RunRecord
from keras_vit.models.rebuild import without_unknown
from keras_vit.opening import open_predictor
from keras_vit.predictor import AnyClassifier, Predictor
from keras_vit.training.data.spec import (
    Data,
    data_spec,
)
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.evaluation.scores import compute_scores
from keras_vit.training.settings import DecisionSettings
from keras_vit.training.trainer.devices import backend_devices
from keras_vit.utils.files import (
    CARD,
    MODEL,
    atomic_folder,
    check_own_files,
    check_writable,
    write_text,
)
from keras_vit.utils.progress import Log

from .calibration_bound import about_size, check_counts, find_decision, with_section
from .calibration_images import calibration_images


def calibrate(
    model: AnyClassifier,
    data: Data,
    settings: DecisionSettings | None = None,
    *,
    split: str | None = None,
    training_data: Data = None,
    batch_size: int = 32,
    progress: bool = False,
    log: Log = print,
    **data_options,
) -> Predictor:
    """Finds when a classifier answers, and writes its model with "unknown" into its folder.

    The images that it is found on are recorded there, so that `evaluate` does not report on them.

    Args:
        model: A classifier's folder, or a `Classifier` that was loaded from one.
        data: The data of its run, or others with its classes; see `evaluate_classifier`.
        settings: The bounds.
        split: The calibration images: a part of the run or of the data; by default
            "calibration" if there is one, else as for `evaluate_classifier`.
        training_data: The data that the run trained on, by which strange images are recognised;
            needed where they are not in `data`.
        batch_size: Images in a batch; does not change the results.
        progress: Whether to show a line with the rate and the time left.
        log: Receives the lines of the result.
        **data_options: See `evaluate_classifier`.

    Returns:
        The calibrated classifier, of which "unknown" is the last output.

    Raises:
        ValueError: If the folder cannot be written or has links that lead out of it; if the
            calibration images are too few, were trained on, or lack a class; if no
            threshold is within the bound; or if the bound is of another task.
    """
    settings = settings or DecisionSettings()
    classifier = _open_to_write(model)
    labels, plain = classifier.description.labels, without_unknown(classifier.model)
    settings.check(labels)
    spec = data_spec(data, data_options)
    images = calibration_images(classifier, spec, split, log, training_data)
    check_counts(images.examples.labels, labels, settings, grouped=images.grouped)
    recipe = RunRecord.from_json(classifier.recipe)
    tested = (recipe.test or {}).get("top_1")
    if settings.max_error is not None and tested is not None:
        count, of = len(images.examples), "on the test images of the run"
        log("bound   " + about_size(tested, of, count, settings, grouped=images.grouped))

    scores_of = functools.partial(
        compute_scores,
        plain,
        preprocessing=classifier.preprocessing,
        batch_size=batch_size,
        progress=progress,
        skip_unreadable=True,
    )
    scores, training_features = scores_of(images.examples), None
    if images.trained is None:
        log(
            "strange the data have no training images, so strange images are not recognised: "
            "--training-data DATA (training_data=) gives the data of the run"
        )
    else:
        training_features = scores_of(images.trained).features
    decision = find_decision(labels, scores, training_features, settings, grouped=images.grouped)
    decision = dataclasses.replace(decision, recorded=images.recorded)
    for line in decision.lines:
        log(line)
    recipe = dataclasses.replace(recipe, decision=decision.to_json())
    description = dataclasses.replace(
        classifier.description, labels=dataclasses.replace(labels, abstains=True)
    )
    calibrated = Predictor.of(
        decision.calibrated(plain), description, recipe.to_json(), classifier.folder
    )
    if backend_devices().is_chief():
        _write(calibrated, decision, images.taken)
    return calibrated


def _open_to_write(model):
    """Returns a classifier whose folder can be written."""
    classifier = open_predictor(model)
    folder = classifier.folder
    is_packaged = folder is not None and name_of_folder(folder) != os.fspath(folder)
    if folder is None or is_packaged or not (folder / MODEL).is_file():
        raise ValueError(
            f"A classifier to calibrate must be a folder with {MODEL}, not an export, and not the "
            "package's own but a copy of it, which classifier.save(folder) writes in Python. "
            f"Received: {name_of_folder(folder) or classifier.source or 'a classifier in memory'}"
        )
    for exchanged in (folder, folder.resolve().parent):  # It is exchanged as a whole.
        check_writable(exchanged)
    check_own_files(folder)
    return classifier


def _write(calibrated, decision, taken):
    """Writes the model into its folder, the decision into its card, and what it was found on."""
    folder, card = calibrated.folder, calibrated.folder / CARD
    with atomic_folder(folder.resolve(), marker=MODEL, overwrite=True) as partial:
        shutil.copytree(folder, partial, symlinks=True, dirs_exist_ok=True)
        (partial / MODEL).unlink()  # A link would be written through.
        write_model(partial, calibrated.model, calibrated.description, calibrated.recipe)
        if card.is_file():
            text = with_section(card.read_text(encoding="utf-8"), decision)
            write_text(partial / CARD, text)
        record = SplitRecord.read(folder) or SplitRecord({}, pixels={})
        record.with_calibration(taken).write(partial)
