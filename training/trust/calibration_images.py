"""The images that the decision of a classifier is found on, and those that its run trained on."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from keras_vit.description.run_record import RunRecord
from keras_vit.predictor import Predictor
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
from keras_vit.training.evaluation.scores import counted, spaced
from keras_vit.utils.progress import Log


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
