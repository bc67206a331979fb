"""The images of a run in their parts, with replayed ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from keras_vit.configs import ModelConfig
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.model_weights import Weights
from keras_vit.training.data import DataSpec, Source, open_source
from keras_vit.training.data.content import fingerprint
from keras_vit.training.data.examples import MixedExamples, class_counts, typical_size
from keras_vit.training.data.parts import Drawing, with_validation
from keras_vit.training.data.spec import IGNORED, spec_of_run
from keras_vit.training.data.split_record import NEW, PARTS, SplitRecord, read_fingerprints
from keras_vit.training.data.things import FOUND_BY
from keras_vit.training.evaluation.measures import UNEQUAL
from keras_vit.training.evaluation.references import describe_seen
from keras_vit.training.settings import FineTuning, Settings

_UNWEIGHTED = (
    "class weights are in the loss of training alone; the head's start and the choice of the best "
    "weights count each image once"
)


@dataclasses.dataclass(frozen=True)
class RunImages:
    """The images of a run.

    Args:
        source: The images in parts: "train", and if there are any, "validation", by which the best
            weights are chosen, "calibration", which is held out, and "test".
        counts: Images of each of `PARTS`.
        photo_size: Pixels (height, width) of a typical training image.
        ignores_copies: Whether photos that show one thing are drawn into any parts.
    """

    source: Source
    counts: dict[str, int]
    photo_size: tuple[int, int]
    ignores_copies: bool = False

    @classmethod
    def of(cls, source: Source, *, ignores_copies: bool) -> Self:
        """Returns the images of a source, counted.

        Args:
            source: The images in parts.
            ignores_copies: Whether photos that show one thing are drawn into any parts.
        """
        counts = {name: len(source.splits.get(name, ())) for name in PARTS}
        return cls(source, counts, typical_size(source.splits["train"], 20), ignores_copies)

    def facts(self, config: ModelConfig | None, size: tuple[int, int]) -> dict[str, Fact]:
        """Returns what a plan lists of the images: the detail that is lost, and their things.

        Args:
            config: The model's config.
            size: Pixels (height, width) at which the model sees them.
        """
        seen = describe_seen(config, size, self.photo_size)
        facts = {"photos": Fact(list(self.photo_size), seen)}
        if self.source.things is not None:
            facts["things"] = Fact(self.source.things.line, FOUND_BY)
        elif self.ignores_copies:
            facts["things"] = Fact("not looked for", f"--copies {IGNORED}")
        return facts


class ImageContents(NamedTuple):
    """The images of a run by their content.

    Args:
        fingerprints: By part, see `read_fingerprints`.
        numbers: See `image_numbers`.
    """

    fingerprints: Mapping[str, np.ndarray | None]
    numbers: np.ndarray

    @classmethod
    def of(cls, source: Source) -> Self:
        """Returns the content of the images of a source, which are read.

        Args:
            source: The images in parts.
        """
        fingerprints = read_fingerprints(source.splits)
        return cls(fingerprints, image_numbers(source, fingerprints))


def open_images(
    data: DataSpec,
    share: Callable[[int], float],
    record: SplitRecord | None,
    how: Mapping[str, Any],
) -> Source:
    """Returns the images of a run in their parts.

    Args:
        data: The data.
        share: The share of a number of images that is kept for validation.
        record: For a run that goes on without some of its images, the record of their parts: each
            of the others is in the part that it had, whatever a new choice would be.
        how: Arguments of `open_source`.

    Raises:
        ValueError: If the data do not fit.
    """
    if record is None:
        return open_source(data, share, **how)
    source = by_record(data, record, share, how)
    if source is None:
        raise ValueError(
            f"A run goes on without some of its images where they are files. Received: {data.name}"
        )
    return source


def notes_on_classes(source: Source, settings: Settings) -> tuple[str, ...]:
    """Returns lines about unequal classes and their weights, if there are any.

    Args:
        source: The images in splits.
        settings: The settings.
    """
    return _unequal(source) if settings.class_weight is None else (_UNWEIGHTED,)


def _unequal(source):
    """A line about unequal classes, if there are any."""
    if source.task == MULTILABEL:
        return ()
    counts = class_counts(source.splits["train"].labels, len(source.class_names))
    least, most = counts[counts > 0].min(), counts.max()
    if most <= UNEQUAL * least:
        return ()
    smallest = source.class_names[int(np.argmax(counts == least))]
    largest = source.class_names[int(counts.argmax())]
    return (
        f"unequal classes: {least} of {smallest} and {most} of {largest} to train; --class-weight "
        "balanced gives them the same weight in the loss",
    )


def extend(
    source: Source,
    weights: Weights,
    settings: FineTuning,
    validation: Callable[[int], float],
    *,
    download: bool = True,
    follow_symlinks: bool = False,
) -> Source:
    """Returns a source with all classes of the weights first, and the replayed images.

    Training images are mixed by the share of the settings. Validation and test images are from
    both data sets, so that the best weights are the best on old and new classes. The images that
    were held out when the weights were trained are held out again.

    Args:
        source: The new data.
        weights: The weights to start from.
        settings: The settings.
        validation: See `open_source`.
        download: Whether missing data are downloaded.
        follow_symlinks: Whether replayed images are read through links out of their folder.

    Raises:
        ValueError: If the weights do not name their classes, or the replayed images have another
            class or task.
    """
    if not settings.extends_head:
        return source
    old_names = weights.class_names
    if old_names is None:
        raise ValueError(
            "To extend the head (--head extend, --replay) the weights must name their classes. "
            f"Received: weights={settings.weights}"
        )
    names = dict.fromkeys((*old_names, *source.class_names))
    extended = source.with_classes(tuple(names))
    if settings.replay is None:
        return extended
    given = DataSpec(settings.replay, follow_symlinks=follow_symlinks)
    spec = spec_of_run(RunRecord.from_json(weights.recipe), given) or given
    record = SplitRecord.read(weights.folder)
    replayed = record and by_record(spec, record, validation, {"download": download})
    if replayed is None:
        replayed = open_source(spec, validation, download=download)
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
    things = source.things
    if things is not None:
        others = [name for examples in old.values() for name in examples.names]
        things = things.with_others(others, replayed.things)
    return dataclasses.replace(extended, splits=splits, skipped=skipped, notes=notes, things=things)


def by_record(
    spec: DataSpec,
    record: SplitRecord,
    validation: Callable[[int], float],
    how: Mapping[str, Any],
) -> Source | None:
    """Returns the images of data as a run split them; None for images that are not of the run.

    Images that are new to that run are trained on, if the data do not hold them out.

    Args:
        spec: The data.
        record: The record of the run.
        validation: See `open_source`.
        how: Other arguments of `open_source`.
    """
    source = open_source(spec, recorded=True, **how)
    part_of, train = {}, source.splits.get("train")
    for split, examples in source.splits.items():
        contents = record.contents_of(examples)
        if contents is None:
            return None
        part_of[split] = record.part_of(*contents)
    if train is None or all((parts == NEW).all() for parts in part_of.values()):
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


def image_numbers(source: Source, fingerprints: Mapping[str, np.ndarray | None]) -> np.ndarray:
    """Returns a number for each image of a run with its class and part, uint64 `(N,)`, in order.

    Images in record files are known by their names, all others by their bytes.

    Args:
        source: The images in splits.
        fingerprints: Their `read_fingerprints`.
    """
    numbers = []
    for part, examples in source.splits.items():
        contents = fingerprints[part]
        if contents is None:
            contents = np.zeros(len(examples), "uint64")
        for name, label, content in zip(examples.names, examples.labels, contents, strict=True):
            image = content.tobytes() if content else name.encode("utf-8", "surrogateescape")
            numbers.append(fingerprint(f"{part} ".encode() + np.asarray(label).tobytes() + image))
    return np.array(numbers, "uint64")
