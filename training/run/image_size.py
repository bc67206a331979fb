"""The image size of a run: larger than the weights', where a linear probe is clearly better."""

from __future__ import annotations

import numpy as np

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.training.evaluation.references import larger_size
from keras_vit.training.trainer.devices import Place

from .head_start import CLEARLY, HeadStart, left_out_answers
from .machine import dtype_policy
from .plan import ChosenSize, Start
from .start_weights import loaded_classifier

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
    with dtype_policy(start.settings.precision), place.scope():
        usual, tried = (_answers(start, size, progress) for size in (None, (side, side)))
    gains = np.bincount(usual.groups, tried.right.astype(float) - usual.right)
    is_clear = gains.mean() > CLEARLY * gains.std() / len(gains) ** 0.5
    _, seen, _ = start.described()
    reason = (
        f"a linear probe of {len(usual.right)} training images, each left out: "
        f"{usual.right.mean():.1%} right at {seen.image_size[0]}, {tried.right.mean():.1%} at "
        f"{side}, {times:.1f} times as long"
    )
    if is_clear:
        return ChosenSize((side, side), reason, tried.features)
    return ChosenSize(seen.image_size, reason, usual.features)


def _answers(start, size, progress):
    """What a probe of the features at a size answers for images that it left out."""
    description, preprocessing, head = start.described(size)
    model, _ = loaded_classifier(start.weights, description, head, description.config)
    source = start.images.source
    return left_out_answers(model, source, preprocessing, _BATCH, progress=progress)
