"""`check_photos`: wrong labels, copies and shortcuts among labelled photos, before training."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from keras_vit.description.tasks import MULTILABEL
from keras_vit.models.opening import is_model_name
from keras_vit.training.data.labels import task_of
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.evaluation.features import default_cache, extract
from keras_vit.training.evaluation.intervals import wilson_interval
from keras_vit.training.evaluation.predictions import build_evaluated
from keras_vit.training.evaluation.ridge import Decomposition, one_hot
from keras_vit.utils.progress import progress_bar

from .check_files import write_check
from .check_report import CheckReport
from .copies import find_copies, joined_groups
from .photo_facts import PhotoFacts, all_photo_facts
from .shortcuts import find_shortcuts
from .wrong_labels import doubts_of_classes, doubts_of_labels

DEFAULT_MODEL = "ViT-B/16"
L2_SHARES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # Regularisations, of the mean eigenvalue.


def check_photos(
    data: Data,
    *,
    weights: str = "imagenet21k",
    model: str | None = None,
    image_size: int | None = None,
    feature: str = "pre_logits",
    batch_size: int = 32,
    output: str | os.PathLike | None = None,
    cache: bool | str | os.PathLike = True,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> CheckReport:
    """Checks labelled photos before training. It changes and deletes none of them.

    Args:
        data: The photos, as for `keras_vit.training.finetune`, or a `DataSpec`.
        weights: Weights whose features are used: "imagenet21k", a name of the catalogue, a
            file, or a classifier's folder. Best those that will be fine-tuned.
        model: A model's name; by default the model of the weights, or ViT-B/16.
        image_size: Pixels; by default the weights', or 224.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        output: Folder for check.html, findings.csv and split.csv; None writes nothing.
        cache: Folder for computed features; True for the commands' folder, False for none.
        seed: Seed of the split and of permutations.
        progress: Whether to show lines with the rate and the time left.
        **options: Other fields of `DataSpec`.

    Raises:
        ValueError: If the data or the weights do not exist or do not fit, there are fewer than
            ten images, or all are copies of one.

    Example:
    >>> report = check_photos("photos", weights="runs/first", output="check")
    >>> print(report)
    >>> report.doubts[0].ranked()[:10]
    """
    spec = dataclasses.replace(data_spec(data, **options), holdout=0.0)
    spec.open(verify=False)  # An error here comes before weights are downloaded.
    named = model or (DEFAULT_MODEL if _needs_name(weights) else None)
    opened = build_evaluated(
        named or weights, weights=weights if named else None, image_size=image_size
    )
    source = spec.open()
    splits = source.splits
    names = [name for examples in splits.values() for name in examples.names]
    if len(names) < 10:
        raise ValueError(f"There must be at least 10 images to check. Received: {len(names)}")
    found = [
        extract(
            opened.model,
            examples,
            preprocessing=opened.preprocessing,
            feature=feature,
            batch_size=batch_size,
            cache=default_cache() if cache is True else cache or None,
            progress=progress,
        )
        for examples in splits.values()
    ]
    features = np.concatenate([part.values for part in found])
    labels = np.concatenate([examples.labels for examples in splits.values()])
    encoded = (image for examples in splits.values() for image, _ in examples.encoded())
    facts: list[PhotoFacts] = []
    with progress_bar(len(names), "files", disable=not progress) as bar:
        for photo in all_photo_facts(encoded):
            facts.append(photo)
            bar.update(1)
    multilabel = task_of(labels) == MULTILABEL
    targets = labels if multilabel else one_hot(labels, len(source.class_names)).astype("uint8")
    copies = find_copies([photo.fingerprint for photo in facts], features)
    given = source.groups and np.array([source.groups[name] for name in names])
    groups = joined_groups(len(names), copies, given)
    if groups.max() == 0:
        raise ValueError("The images must be of two groups at least. Received: one group")
    decomposition = Decomposition(features)
    ridge = decomposition.ridge(targets, decomposition.l2_of(L2_SHARES), groups=groups)
    scores = ridge.left_out_predictions
    if multilabel:
        right = ((scores > 0.5) == (targets > 0)).mean(axis=1)
    else:
        right = (scores.argmax(axis=1) == labels).astype("float64")
    report = CheckReport(
        class_names=tuple(source.class_names),
        names=names,
        parts=[
            part if len(splits) > 1 else "" for part, images in splits.items() for _ in images.names
        ],
        targets=targets,
        multilabel=multilabel,
        features=features,
        groups=groups,
        expected=expected_accuracy(right, groups),
        doubts=(
            doubts_of_labels(scores, targets) if multilabel else [doubts_of_classes(scores, labels)]
        ),
        copies=copies,
        shortcuts=find_shortcuts(facts, targets, groups, seed=seed),
        unreadable=tuple(source.skipped),
        notes=(
            f"features of {opened.name}, {opened.weights}",
            f"classes: {source.class_line}",
            *source.notes,
        ),
    )
    if output is None:
        return report
    return dataclasses.replace(report, written=write_check(report, spec, splits, output, seed))


def _needs_name(weights):
    """Returns whether weights fit models of several names, so that one must be named."""
    return weights in ("imagenet21k", "imagenet", "random") or is_model_name(weights)


def expected_accuracy(right: np.ndarray, groups: np.ndarray) -> tuple[float, float, float]:
    """Returns the mean of right answers, and its 95% interval, which knows of groups.

    The interval is Wilson's, for as many independent images as the groups are worth.

    Args:
        right: Share of right answers for each image, `(N,)`.
        groups: Group of each image, int from 0 `(N,)`.
    """
    mean = float(right.mean())
    variance = float(np.square(np.bincount(groups, right - mean)).sum()) / len(right) ** 2
    alone = float(np.square(right - mean).sum()) / len(right) ** 2
    # As many independent images as have this variance; all alike leave it open.
    count = len(right) * min(1.0, alone / variance) if variance else float(groups.max() + 1)
    count = max(1, round(count))
    return mean, *wilson_interval(round(mean * count), count)
