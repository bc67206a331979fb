"""Calibration of a finished classifier: `keras-vit calibrate`."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence

import numpy as np

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.classifier import Classifier
from keras_vit.classifier_folder import write_model
from keras_vit.description import UNKNOWN
from keras_vit.description.recipe import Recipe
from keras_vit.description.without_paths import is_place
from keras_vit.images.listing import image_files
from keras_vit.models.rebuild import without_unknown
from keras_vit.opening import open_classifier
from keras_vit.training.data.examples import Examples
from keras_vit.training.data.spec import Data, DataSpec, data_spec, spec_of_run
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.evaluation.held_out import choose_images
from keras_vit.training.evaluation.scores import compute_scores, counted, spaced
from keras_vit.training.settings import DecisionSettings
from keras_vit.utils.fields import required
from keras_vit.utils.files import (
    CARD,
    MODEL,
    atomic_folder,
    check_own_files,
    check_writable,
    write_text,
)

from .calibration_bound import (
    check_counts,
    find_decision,
    recognises_strange,
    with_section,
)


def calibrate(
    model: Classifier | str | os.PathLike,
    data: Data,
    settings: DecisionSettings | None = None,
    *,
    split: str | None = None,
    training_data: Data = None,
    unknown: str | os.PathLike | Sequence | None = None,
    batch_size: int = 32,
    progress: bool = False,
    log: Callable[[str], object] = print,
    **data_options,
) -> Classifier:
    """Finds when a classifier answers, and writes its model with "unknown" into its folder.

    Args:
        model: A classifier's folder.
        data: The data of its run, or others with its classes; see `evaluate_classifier`.
        settings: The bounds.
        split: The calibration images: a part of the run or of the data; by default
            "calibration" if there is one, else as for `evaluate_classifier`.
        training_data: The data that the run trained on, by which strange images are recognised;
            needed where they are neither in `data` nor found where the run read them.
        unknown: Images of none of the classes, files and folders; how many of them are refused
            is reported.
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
    classifier = open_classifier(model)
    folder = classifier.folder
    is_packaged = folder is not None and name_of_folder(folder) != os.fspath(folder)
    if folder is None or is_packaged or not (folder / MODEL).is_file():
        raise ValueError(
            f"A classifier to calibrate must be a folder with {MODEL}, not an export, and not the "
            "package's own but a copy of it. "
            f"Received: {name_of_folder(folder) or classifier.model}"
        )
    for place in (folder, folder.resolve().parent):  # It is exchanged as a whole.
        check_writable(place)
    check_own_files(folder)
    settings.check(classifier.description.labels)
    strangers = None if unknown is None else image_files(unknown)
    known, trained, skip_unreadable, grouped = calibration_images(
        classifier, data_spec(data, **data_options), split, log, training_data
    )
    labels, plain = classifier.description.labels, without_unknown(classifier.model)
    check_counts(known.labels, labels, settings)

    def scores_of(examples):
        return compute_scores(
            plain,
            examples,
            classifier.preprocessing,
            batch_size=batch_size,
            progress=progress,
            unreadable=[] if skip_unreadable else None,
        )

    if trained is None:
        log(
            "strange no training images are found, so strange images are not recognised: "
            "--training-data DATA (training_data=) gives the data of the run"
        )
    scores, features = scores_of(known), None
    if trained is not None and recognises_strange(len(scores), settings):
        features = scores_of(trained).features
    found = find_decision(labels, scores, features, settings, grouped=grouped)
    for line in found.lines:
        log(line)
    recipe = Recipe.from_json(classifier.recipe)
    recipe = dataclasses.replace(recipe, decision=found.to_json())
    description = dataclasses.replace(
        classifier.description, labels=dataclasses.replace(labels, abstains=True)
    )
    calibrated = Classifier.of(found.calibrated(plain), description, recipe.to_json(), folder)
    card = folder / CARD
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    with atomic_folder(folder.resolve(), marker=MODEL, overwrite=True) as partial:
        shutil.copytree(folder, partial, symlinks=True, dirs_exist_ok=True)
        (partial / MODEL).unlink()  # A link would be written through.
        write_model(partial, calibrated)
        if text:
            write_text(partial / CARD, with_section(text, found))
    if strangers is not None:
        predictions = calibrated.predict(strangers, batch_size=batch_size)
        read = [prediction for prediction in predictions if not prediction.error]
        refused = sum(prediction.answer == UNKNOWN for prediction in read)
        line = f"strangers {refused} of {len(read)} images are answered with unknown"
        unread = len(predictions) - len(read)
        log(f"{line}; {unread} could not be read" if unread else line)
    return calibrated


def calibration_images(
    classifier: Classifier,
    spec: DataSpec,
    split: str | None = None,
    log: Callable[[str], object] = print,
    given: Data = None,
) -> tuple[Examples, Examples | None, bool, bool]:
    """Returns the images that a classifier's decision is found on, labelled with its numbers.

    Args:
        classifier: The classifier, in its folder.
        spec: The data.
        split: See `calibrate`.
        log: Receives what of the data is taken and what is left out.
        given: See `training_data` of `calibrate`.

    Returns:
        Images that it was neither trained on nor chosen by; images that it was trained on, evenly
        spaced, or None without any; whether files that cannot be read are left out; and whether
        one image of each group counts.

    Raises:
        ValueError: If all images were trained on or chosen by, or the classes do not fit.
    """
    images = choose_images(classifier, spec, split, first="calibration")
    for line in images.lines:
        log(line)
    known, seen = images.examples, images.seen
    if seen is not None and seen.all():
        raise ValueError(
            "Calibration images must be ones that the run neither trained on nor chose its weights "
            f"by. Received: {len(seen)} that it did, such as {known.names[0]}"
        )
    if seen is not None and seen.any():
        log(f"split   {int(seen.sum())} copies of images that the run trained on are left out")
        known = known.take(np.flatnonzero(~seen))
    known, grouped = counted(known, images.source.groups, log)
    if given is not None:
        trained = _trained_on(classifier, data_spec(given))
    else:
        trained = images.trained or images.source.splits.get("train")
        if trained is images.examples:
            trained = None
        elif trained is not None and images.trained is None and images.record is not None:
            numbers = trained.fingerprints()
            if numbers is not None:
                trained = trained.take(np.flatnonzero(images.record.has("train", numbers)))
        trained = trained or _found_training_images(classifier, spec)
    trained = None if trained is None else spaced(trained)
    numbers = np.array([classifier.class_names.index(name) for name in images.source.class_names])
    return known.relabelled(numbers), trained, images.skip_unreadable, grouped


def _found_training_images(classifier, spec):
    """The images that a run trained on, where it read them: in the working folder, beside the
    classifier or beside other data; None if they are not there.
    """
    recipe = Recipe.from_json(classifier.recipe)
    folder = required(classifier.folder, "folder").absolute()
    near = ("", *folder.parents, os.path.dirname(os.path.abspath(str(spec.name))))
    for place in (os.path.join(place, recipe.data_name) for place in near):
        if is_place(recipe, place):
            try:
                return _trained_on(classifier, DataSpec(place), download=False)
            except (OSError, ValueError):  # They are gone, or others.
                return None
    return None


def _trained_on(classifier, data, **how):
    """The images in data that a run trained on; without a record, the train part."""
    record = SplitRecord.read(classifier.folder)
    recipe = Recipe.from_json(classifier.recipe)
    spec = spec_of_run(recipe, data) or dataclasses.replace(data, holdout=0.0)
    splits = spec.open(verify=False, recorded=record is not None, **how).splits
    if record is None:
        return splits.get("train")
    for examples in splits.values():
        numbers = examples.fingerprints()
        if numbers is not None and (is_trained := record.has("train", numbers)).any():
            return examples.take(np.flatnonzero(is_trained))
    raise ValueError(
        f"The training data must have images that the run trained on. Received: {data.name}, none"
    )
