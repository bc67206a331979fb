"""Adding classes to a classifier, with replay of images of its former classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_vit.models.opening import OpenedModel
from keras_vit.training.data import DataSpec, Source
from keras_vit.training.data.examples import MixedExamples
from keras_vit.training.data.parts import Drawing, with_validation
from keras_vit.training.data.spec import spec_of_run
from keras_vit.training.data.split_record import NEW, SplitRecord
from keras_vit.training.settings import FineTuning


def extend(
    source: Source,
    weights: OpenedModel,
    settings: FineTuning,
    validation: Callable[[int], float],
    *,
    download: bool = True,
) -> Source:
    """Returns a source with all classes of the weights first, and the replayed images.

    Training images are mixed by the share of the settings. Validation and test images are from
    both data sets, so that the best weights are the best on old and new classes. The images that
    were held out when the weights were trained are held out again.

    Args:
        source: The new data.
        weights: The weights to start from.
        settings: The settings.
        validation: See `DataSpec.open`.
        download: Whether missing data are downloaded.

    Raises:
        ValueError: If the weights do not name their classes, or the replayed images have another
            class or task.
    """
    if not extends_head(settings):
        return source
    known = weights.class_names
    if known is None:
        raise ValueError(
            "To extend the head (--head extend, --replay) the weights must name their classes. "
            f"Received: weights={settings.weights}"
        )
    names = dict.fromkeys((*known, *source.class_names))
    extended = source.with_classes(tuple(names))
    if settings.replay is None:
        return extended
    given = DataSpec(settings.replay)
    spec = spec_of_run(dict(weights.recipe), given) or given
    record = SplitRecord.read(weights.folder)
    replayed = record and _by_record(spec, record, validation, download=download)
    if replayed is None:
        replayed = spec.open(validation, download=download)
    unknown = [name for name in replayed.class_names if name not in names]
    if unknown or replayed.task != source.task:
        raise ValueError(
            "Replayed images must have classes of the weights or the data, and their task. "
            f"Received: {settings.replay}, with {', '.join(unknown[:10]) or replayed.task}"
        )
    old = replayed.with_classes(tuple(names)).splits
    splits = dict(extended.splits)
    for split in splits.keys() & old.keys():
        splits[split] = MixedExamples(splits[split], old[split], settings.replay_share)
    skipped = [*source.skipped, *replayed.skipped]
    notes = (*source.notes, *replayed.notes)
    return dataclasses.replace(extended, splits=splits, skipped=skipped, notes=notes)


def extends_head(settings: FineTuning) -> bool:
    """Returns whether a run adds the classes of its data to the classes of its weights."""
    return settings.head == "extend" or settings.replay is not None


def _by_record(spec, record, validation, *, download):
    """The replayed images as the run of the weights split them; None for images not of the run.

    Images that are new to that run are trained on, if the data do not hold them out.
    """
    source = spec.open(download=download, recorded=True)
    part_of, train = {}, source.splits.get("train")
    for split, examples in source.splits.items():
        numbers = examples.fingerprints()
        if numbers is None:
            return None
        part_of[split] = record.part_of(numbers)
    if train is None or all((found == NEW).all() for found in part_of.values()):
        return None

    def taken(split, *parts):
        return source.splits[split].take(np.flatnonzero(np.isin(part_of[split], parts)))

    splits = {"train": taken("train", "train", NEW)}
    for split in ("validation", "calibration", "test"):
        is_own = split in source.splits
        splits[split] = taken(split, split, NEW) if is_own else taken("train", split)
    splits = {split: examples for split, examples in splits.items() if len(examples)}
    share = validation(len(splits["train"]))
    drawing = Drawing(source.class_names, spec.split_seed or 0, source.groups)
    splits = with_validation(splits, share, drawing)
    return dataclasses.replace(source, splits=splits)
