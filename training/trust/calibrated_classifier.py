"""Calibration of a finished classifier: `keras-vit calibrate`."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from typing import NamedTuple

import numpy as np

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.classifier_folder import write_model
from keras_vit.description.run_record import RunRecord
from keras_vit.models.rebuild import without_unknown
from keras_vit.opening import open_predictor
from keras_vit.predictor import AnyClassifier, Predictor
from keras_vit.training.data import open_source
from keras_vit.training.data.examples import Examples
from keras_vit.training.data.image_files import FileExamples
from keras_vit.training.data.spec import (
    NOT_LOOKED_FOR,
    Data,
    DataSpec,
    data_spec,
    spec_of_run,
)
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.data.things import find_things, units_of
from keras_vit.training.evaluation.held_out import choose_images
from keras_vit.training.evaluation.scores import compute_scores, counted, spaced
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


class CalibrationImages(NamedTuple):
    """The images that a classifier's decision is found on.

    Args:
        examples: Images that it was neither trained on nor chosen by, labelled with its numbers.
        trained: Images that it was trained on, evenly spaced; None without any.
        grouped: Whether one image of each group counts.
        taken: The examples, and the other images of their groups and things.
        recorded: Whether a run recorded what the classifier was trained on.
    """

    examples: Examples
    trained: Examples | None
    grouped: bool
    taken: Examples
    recorded: bool


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
        write_model(partial, calibrated)
        if card.is_file():
            text = with_section(card.read_text(encoding="utf-8"), decision)
            write_text(partial / CARD, text)
        record = SplitRecord.read(folder) or SplitRecord({}, pixels={})
        record.with_calibration(taken).write(partial)


def calibration_images(
    classifier: Predictor,
    spec: DataSpec,
    split: str | None = None,
    log: Log = print,
    training_data: Data = None,
) -> CalibrationImages:
    """Returns the images that a classifier's decision is found on.

    Args:
        classifier: The classifier, in its folder.
        spec: The data.
        split: See `calibrate`.
        log: Receives what of the data is taken and what is left out.
        training_data: See `calibrate`.

    Raises:
        ValueError: If all images were trained on or chosen by, or the classes do not fit.
    """
    images = choose_images(classifier, spec, split, first="calibration")
    for line in images.lines:
        log(line)
    examples, seen = images.examples, images.seen
    if seen is not None and seen.all():
        raise ValueError(
            "Calibration images must be ones that the run neither trained on nor chose its weights "
            f"by. Received: {len(seen)} that it did, such as {examples.names[0]}"
        )
    if seen is not None and seen.any():
        log(f"split   {int(seen.sum())} copies of images that the run trained on are left out")
        examples = examples.take(np.flatnonzero(~seen))
    bit_depth, things = classifier.preprocessing.bit_depth, None
    if spec.ignores_copies:
        log(f"things  {NOT_LOOKED_FOR}")
    else:
        by_pixels = isinstance(examples, FileExamples)
        things = find_things(
            {"calibration": examples}, by_pixels=by_pixels, bit_depth=bit_depth, log=log
        )
    taken = examples
    examples, grouped = counted(examples, _units(examples, images.source, things), log)
    if training_data is not None:
        data = data_spec(training_data)
        follows = data.follow_symlinks or spec.follow_symlinks
        trained = _trained_on(classifier, dataclasses.replace(data, follow_symlinks=follows))
    else:
        trained = _trained_in(images.source.splits, images.record)
        if trained is images.examples:
            trained = None
    numbers = np.array([classifier.class_names.index(name) for name in images.source.class_names])
    has_trained = images.record is not None and len(images.record.parts["train"]) > 0
    return CalibrationImages(
        examples.relabelled(numbers),
        None if trained is None else spaced(trained),
        grouped,
        taken,
        recorded=has_trained or bool(RunRecord.from_json(classifier.recipe).job),
    )


def _units(examples, source, things):
    """What counts as one image, by name: images of one group or thing; None if all are single."""
    groups = source.groups
    if groups is not None:
        groups = {name: groups[name] for name in examples.names}
    return units_of(groups, things)


def _trained_on(classifier, data):
    """Returns the images in data that a run trained on."""
    record = SplitRecord.read(classifier.folder)
    recipe = RunRecord.from_json(classifier.recipe)
    spec = spec_of_run(recipe, data) or dataclasses.replace(data, holdout=0.0)
    splits = open_source(spec, verify=False, recorded=record is not None).splits
    trained = _trained_in(splits, record)
    if trained is None and record is not None:
        raise ValueError(
            f"The training data must have images that the run trained on. Received: {data.name}, "
            "none"
        )
    return trained


def _trained_in(splits, record):
    """Returns the images that a run trained on, by its record; without one, the train part."""
    if record is None:
        return splits.get("train")
    for examples in splits.values():
        contents = record.contents_of(examples)
        if contents is None:  # Record files.
            return splits.get("train")
        is_trained = record.has("train", *contents)
        if is_trained.any():
            return examples.take(np.flatnonzero(is_trained))
    return None
