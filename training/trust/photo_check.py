"""`check_photos`: wrong labels, copies and shortcuts among labelled photos, before training."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from keras_vit.configs import MODELS
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.prediction import highest
from keras_vit.training.data.examples import task_of, typical_size
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.evaluation.predictions import build_evaluated
from keras_vit.training.evaluation.references import (
    describe_seen,
    expected_accuracy,
    most_frequent,
)
from keras_vit.training.evaluation.ridge import L2_SHARES, Decomposition, one_hot
from keras_vit.training.evaluation.simple_reference import on_all_cores, simple_reference
from keras_vit.utils.progress import progress_bar

from .check_report import CheckReport, Finding, write_check
from .copies import ALIKE, find_copies, joined_groups
from .shortcuts import PhotoFacts, find_shortcuts, photo_facts
from .wrong_labels import doubts_of_classes

DEFAULT_MODEL = "ViT-B/16"

_NEIGHBOURS = 3  # Nearest images, in the given and in the proposed class.
_TYPICAL = 6  # Images of a shortcut.


def check_photos(
    data: Data,
    *,
    weights: str = "imagenet21k",
    model: str | None = None,
    image_size: tuple[int, int] | None = None,
    batch_size: int = 32,
    output: str | os.PathLike | None = None,
    progress: bool = False,
    **options: Any,
) -> CheckReport:
    """Checks labelled photos before training. It changes and deletes none of them.

    Args:
        data: The photos, as for `keras_vit.training.finetune`, or a `DataSpec`.
        weights: Weights whose features are used: "imagenet21k", a name of the catalogue, a
            file, or a classifier's folder. Best those that will be fine-tuned.
        model: A model's name; by default the model of the weights, or ViT-B/16.
        image_size: Pixels (height, width) that the model sees; by default the weights'.
        batch_size: Images in a batch.
        output: Folder for check.html, findings.csv and split.csv; None writes nothing.
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
    spec = dataclasses.replace(data_spec(data, **options), holdout=0.0)
    spec.open(verify=False)  # An error here comes before weights are downloaded.
    is_of_several = weights in ("imagenet21k", "imagenet", "random") or weights in MODELS
    named = model or (DEFAULT_MODEL if is_of_several else None)
    of_name = weights if named else None
    opened = build_evaluated(named or weights, weights=of_name, image_size=image_size)
    source = spec.open()
    splits = source.splits
    names = [name for examples in splits.values() for name in examples.names]
    if len(names) < 10:
        raise ValueError(f"There must be at least 10 images to check. Received: {len(names)}")
    labels = np.concatenate([examples.labels for examples in splits.values()])
    if task_of(labels) == MULTILABEL:
        raise ValueError("Photos to check must have one class each. Received: multi-label data")
    found = [
        opened.features(examples, batch_size=batch_size, progress=progress)
        for examples in splits.values()
    ]
    features = np.concatenate([part.values for part in found])
    encoded = (image for examples in splits.values() for image, _ in examples.encoded())
    facts: list[PhotoFacts] = []
    with progress_bar(len(names), "files", disable=not progress) as bar:
        for photo in on_all_cores(photo_facts, encoded):
            facts.append(photo)
            bar.update(1)
    class_names = tuple(source.class_names)
    targets = one_hot(labels, len(class_names)).astype("uint8")
    copies = find_copies([photo.fingerprint for photo in facts], features, progress=progress)
    given = source.groups and np.array([source.groups[name] for name in names])
    groups = joined_groups(len(names), copies.pairs, given)
    if groups.max() == 0:
        raise ValueError("The images must be of two groups at least. Received: one group")
    decomposition = Decomposition(features)
    ridge = decomposition.ridge(targets, decomposition.l2_of(L2_SHARES), groups=groups)
    scores = ridge.left_out_predictions
    doubts = doubts_of_classes(scores, labels)
    accuracy = expected_accuracy((scores.argmax(axis=1) == labels).astype("float64"), groups)
    numbers = [photo.simple for photo in facts]
    greys = [photo.fingerprint.grey for photo in facts]
    simple = simple_reference(numbers, greys, labels, groups)
    references = (most_frequent(labels, class_names), simple)
    unjudged = ""
    if accuracy[1] <= references[0][1]:
        always = "{} ({:.1%})".format(*references[0])
        unjudged = f"the features tell the classes apart no better than {always}"
    elif not doubts.is_judged:
        unjudged = "with these features right labels would look as wrong as these do"
    names_of = [class_names[k] for k in labels]
    photo_size = typical_size(next(iter(splits.values())))
    parts = [part if len(splits) > 1 else "" for part in splits for _ in splits[part].names]
    report = CheckReport(
        class_names,
        names,
        names_of,
        parts,
        groups,
        accuracy,
        None if unjudged else doubts.noise,
        [
            *([] if unjudged else _doubted_labels(doubts, labels, features, class_names)),
            *_copies(copies.pairs, names_of, parts),
            *(
                Finding(
                    "shortcuts",
                    int(found.images[0]),
                    f"{found.name} gives away {class_names[found.class_number]}",
                    f"AUROC {found.auroc:.3f}, p {found.adjusted:.3g}",
                    found.auroc,
                    near=[("most typical", found.images[1:_TYPICAL].tolist())],
                )
                for found in find_shortcuts(facts, targets, groups)
                if found.found
            ),
        ],
        tuple(source.skipped),
        (
            f"features of {opened.name}, {opened.weights}",
            "photos of {}x{} are ".format(*photo_size)
            + describe_seen(opened.description.config, opened.preprocessing.image_size, photo_size),
            f"classes: {source.class_line}",
            *source.notes,
        ),
        references,
        unjudged=unjudged,
        confused=tuple(f"{class_names[i]} and {class_names[j]}" for i, j, _ in doubts.confused),
        fixed=copies.fixed,
    )
    if output is None:
        return report
    written = write_check(report, spec, splits, targets, output)
    return dataclasses.replace(report, written=written)


def _doubted_labels(doubts, labels, features, class_names):
    """Returns the doubted labels with the nearest images of the given and the proposed class."""
    centred = features - features.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    rows: list[Finding] = []
    for number in doubts.ranked().tolist():
        near = []
        for label in (labels[number], doubts.proposed[number]):
            members = np.flatnonzero((labels == label) & (np.arange(len(labels)) != number))
            nearest = members[highest(unit[members] @ unit[number], _NEIGHBOURS)]
            near.append((class_names[label], nearest.tolist()))
        (given, _), (proposed, _) = near
        probability = float(doubts.probability[number])
        title, detail = f"{given}, or {proposed}?", f"wrong with probability {probability:.0%}"
        row = Finding("wrong labels", number, title, detail, probability, near=near, to=proposed)
        rows.append(row)
    return rows


def _copies(copies, labels, parts):
    """Returns the pairs of copies, leaks and conflicts first."""
    rows = []
    for first, second, how in copies:
        kind = "copies"
        if parts[first] != parts[second]:
            kind = "leaks"
        elif how != ALIKE and labels[first] != labels[second]:
            kind = "conflicts"
        detail = " and ".join(
            f"{labels[number]}{parts[number] and f' in {parts[number]}'}"
            for number in (first, second)
        )
        near = [("the other image", [first])]
        rows.append(Finding(kind, second, how, detail, other=first, near=near))
    return sorted(rows, key=lambda row: ("leaks", "conflicts", "copies").index(row.kind))
