"""`check_photos`: wrong labels, copies and shortcuts among labelled photos, before training."""

from __future__ import annotations

import dataclasses
import math
import os

import numpy as np

from keras_vit.configs import MODELS
from keras_vit.predictor import AnyClassifier
from keras_vit.training.data import open_source
from keras_vit.training.data.content import on_all_cores
from keras_vit.training.data.copies import find_copies
from keras_vit.training.data.examples import typical_size
from keras_vit.training.data.spec import IGNORED, Data, DataSpec, data_spec
from keras_vit.training.data.things import joined, things_of
from keras_vit.training.evaluation.predictions import build_evaluated, features_of, name_of_model
from keras_vit.training.evaluation.references import (
    describe_seen,
    expected_accuracy,
    most_frequent,
    simple_reference,
)
from keras_vit.training.evaluation.ridge import L2_SHARES, Decomposition
from keras_vit.utils.progress import progress_bar

from .check_files import write_check
from .check_report import CheckReport, expected_separated
from .photo_findings import findings_of, photos_of
from .shortcuts import find_shortcuts, photo_facts
from .wrong_labels import doubts_of_classes

DEFAULT_MODEL = "ViT-B/16"


def check_photos(
    data: Data,
    *,
    weights: AnyClassifier = "imagenet21k",
    model: str | None = None,
    image_size: tuple[int, int] | None = None,
    batch_size: int = 32,
    output: str | os.PathLike | None = None,
    progress: bool = False,
    **options: object,
) -> CheckReport:
    """Checks labelled photos before training. It changes and deletes none of them.

    Args:
        data: The photos, as for `keras_vit.training.finetune`, or a `DataSpec`.
        weights: Weights whose features are used: "imagenet21k", a name of the catalogue, a
            file, a classifier or its folder. Best those that will be fine-tuned.
        model: A model's name; by default the model of the weights, or ViT-B/16.
        image_size: Pixels (height, width) that the model sees; by default the weights'.
        batch_size: Images in a batch.
        output: Folder for check.html, findings.csv, split.csv and groups.csv; None writes nothing.
        progress: Whether to show lines with the rate and the time left.
        **options: Other fields of `DataSpec`.

    Raises:
        ValueError: If the data or the weights do not exist or do not fit, the photos are
            multi-label or fewer than ten, or all are copies of one.

    Example:
    >>> report = check_photos("photos", weights="runs/first", output="check")
    >>> print(report)
    >>> report.of_kind("wrong labels")[:10]
    """
    # The photos, and the model whose features are used.
    spec = dataclasses.replace(data_spec(data, options), holdout=0.0, copies=IGNORED)
    open_source(spec, verify=False)  # An error here comes before weights are downloaded.
    evaluated = _open_model(weights, model, image_size)
    source = open_source(spec)
    evaluated = evaluated.at_bit_depth(source.bit_depth)
    photos = photos_of(source)
    labels = photos.labels

    # What is read of each photo.
    features = np.concatenate(
        [
            features_of(evaluated, examples, batch_size=batch_size, progress=progress).values
            for examples in source.splits.values()
        ]
    )
    facts = _facts(source, evaluated.preprocessing.bit_depth, progress)
    fingerprints = [photo.fingerprint for photo in facts]

    # Copies, which are of one group.
    copies = find_copies(fingerprints, progress=progress)
    given_groups = source.groups and np.array([source.groups[name] for name in photos.names])
    things = things_of(copies.pairs, len(labels), labels)[:-1]
    units = joined(source.groups, dict(zip(photos.names, things.tolist(), strict=True))) or {}
    groups = np.unique([units[name] for name in photos.names], return_inverse=True)[1]
    if groups.max() == 0:
        is_empty = all(photo.is_one_color for photo in facts)
        why = ", as all photos are of one color" if is_empty else ""
        raise ValueError(f"The images must be of two groups at least. Received: one group{why}")

    # What a linear map says of each photo that was left out with its group.
    doubts = _doubts(features, labels, groups)
    accuracy = expected_accuracy((doubts.named == labels).astype("float64"), groups)
    always = most_frequent(labels, source.class_names)
    simple = simple_reference([photo.simple for photo in facts], labels, groups)

    # Labels, ranked where the features tell the classes apart.
    unjudged = _why_unjudged(accuracy, always)
    judged = None if unjudged else doubts

    shortcuts = find_shortcuts(facts, labels, groups)
    report = CheckReport(
        class_names=photos.class_names,
        names=photos.names,
        labels=photos.label_names,
        parts=photos.parts,
        groups=groups,
        expected=accuracy,
        findings=findings_of(photos, features, judged, facts, copies.pairs, shortcuts),
        unreadable=tuple(source.skipped),
        notes=_notes(source, evaluated, facts),
        references=(always, simple),
        unjudged=unjudged,
        confused=tuple(
            f"{photos.class_names[first]} and {photos.class_names[second]}"
            for first, second in doubts.confused
        ),
        fixed=copies.fixed,
        bit_depth=evaluated.preprocessing.bit_depth,
        separated=_separated(photos, copies.pairs, given_groups),
    )
    if output is None:
        return report
    return dataclasses.replace(report, written=write_check(report, spec, source.splits, output))


def _doubts(features, labels, groups):
    """Returns the doubts of labels by ridge regression, each group left out."""
    decomposition = Decomposition(features)
    l2 = decomposition.chosen_l2(labels, decomposition.l2_of(L2_SHARES), groups=groups)
    return doubts_of_classes(
        lambda: decomposition.left_out_scores(labels, l2, groups=groups), labels
    )


def _open_model(weights, model, image_size):
    """Returns the model whose features are used."""
    is_of_several = weights in ("imagenet21k", "imagenet", "none") or weights in MODELS
    if model is None and is_of_several:
        model = DEFAULT_MODEL
    if model is None:
        return build_evaluated(weights, image_size=image_size)
    return build_evaluated(model, weights=weights, image_size=image_size)


def _facts(source, bit_depth, progress):
    """Returns the facts about each photo that need no model."""
    splits, facts = source.splits.values(), []
    encoded = (image for examples in splits for image, _ in examples.encoded())
    with progress_bar(sum(map(len, splits)), "files", disable=not progress) as bar:
        for photo in on_all_cores(lambda image: photo_facts(image, bit_depth), encoded):
            facts.append(photo)
            bar.update(1)
    return facts


def _why_unjudged(accuracy, always):
    """Returns why labels cannot be ranked by these features; "" if they can."""
    name, share, _ = always
    if accuracy[1] <= share:
        return f"the features tell the classes apart no better than {name} ({share:.1%})"
    return ""


def _notes(source, evaluated, facts):
    """Returns lines about the features, the size that the model sees, and the data."""
    size = typical_size(next(iter(source.splits.values())))
    seen = evaluated.preprocessing.image_size
    lost = describe_seen(evaluated.description.config, seen, size)
    sizes = sorted(
        {(photo.readings["height"], photo.readings["width"]) for photo in facts}, key=math.prod
    )
    shown = [f"{height}x{width}" for height, width in (sizes[0], size, sizes[-1])]
    photo_sizes = f"photos of {shown[1]}"
    if len(sizes) > 1:
        photo_sizes = f"photos of {shown[0]} to {shown[2]}; the middle one, {shown[1]},"
    return (
        f"features of {name_of_model(evaluated)}, {evaluated.source}",
        f"{photo_sizes} {'is' if len(sizes) > 1 else 'are'} {lost}",
        f"classes: {source.class_line}",
        *source.notes,
    )


def _separated(photos, pairs, groups):
    """Returns how many pairs a random draw would separate; None for data that have parts."""
    if any(photos.parts):
        return None
    return expected_separated(photos.labels, pairs, groups, DataSpec().holdout)
