"""The image size of a run: larger than the weights', where a linear probe is clearly better."""

from __future__ import annotations

import numpy as np

from keras_vit import configs
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.models.build import build
from keras_vit.training.evaluation.references import larger_size
from keras_vit.training.trainer.devices import Place

from .head_start import CLEARLY, HeadStart, left_out_answers
from .machine import dtype_policy
from .plan import ChosenSize, Start

_BATCH = 64  # Images whose features are computed at once.


def size_to_try(start: Start) -> tuple[int, float] | None:
    """Returns the side of larger images, whose size is open, and how many times as long a step
    takes; None where the size is not open or no larger one is worth its time.

    Args:
        start: What a new run has read.
    """
    is_open = start.given.image_size is None and start.given.recipe is None
    has_probe = any(isinstance(stage, HeadStart) for stage in start.stages)
    if not is_open or not has_probe or start.images.source.task == MULTILABEL:
        return None
    description, preprocessing, _ = start.described()
    return larger_size(description.config, preprocessing.image_size, start.images.photo_size)


def probed_size(start: Start, place: Place, *, progress: bool = False) -> ChosenSize | None:
    """Returns the better of two image sizes by a linear probe; None where none is tried.

    The probe must name clearly more of the left-out images right, by two standard errors.

    Args:
        start: What a new run has read.
        place: The devices.
        progress: Whether to show a line while features are computed.
    """
    larger = size_to_try(start)
    if larger is None:
        return None
    side, times = larger
    right = []
    for size in (None, (side, side)):
        with dtype_policy(start.settings.precision), place.scope():
            answers, groups = _answers(start, size, progress)
        right.append(answers)
    gains = np.bincount(groups, right[1].astype(float) - right[0])
    is_clear = gains.mean() > CLEARLY * gains.std() / len(gains) ** 0.5
    _, seen, _ = start.described()
    reason = (
        f"a linear probe of {len(groups)} training images, each left out: {right[0].mean():.1%} "
        f"right at {seen.image_size[0]}, {right[1].mean():.1%} at {side}, {times:.1f} times as "
        "long"
    )
    return ChosenSize((side, side) if is_clear else seen.image_size, reason)


def _answers(start, size, progress):
    """Whether a probe of the features at a size is right about each image, and their groups."""
    description, preprocessing, head = start.described(size)
    model = build(
        description.config,
        input_shape=description.input_shape,
        classes=description.classes,
        classifier_activation=None,
        name=configs.layer_name(description.name),
    )
    start.weights.load_into(model, head)
    source = start.images.source
    return left_out_answers(model, source, preprocessing, _BATCH, progress=progress)
