"""References beside an accuracy, and the detail of photos that a model sees.

The most frequent class and simple numbers of the photos are right so often that an accuracy which
is not clearly higher is of no use. So each accuracy is printed beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.description import describe

from .measures import wilson_interval

TO_TRY = "try a larger --image-size or other --weights"
# A larger size is taken if an image takes at most as many times as long, up to the paper's size.
MAX_TIMES = 8
MAX_SIDE = 384
MIN_GROWTH = 1.6  # Growth of a side. A little more detail is seldom clearly better.


def most_frequent(labels: np.ndarray, class_names: Sequence[str]) -> tuple[str, float]:
    """Returns what is right if each image gets the most frequent class.

    Args:
        labels: Class numbers `(N,)`, N at least 1.
        class_names: Their names.

    Returns:
        A reference: its name, and the share of images that are right.
    """
    counts = np.bincount(labels)
    name = class_names[int(counts.argmax())]
    return f"always {name}, the most frequent class", float(counts.max() / len(labels))


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


def beside_references(low: float, references: Iterable[tuple[str, float]]) -> str:
    """Returns the text that stands beside each accuracy: the references, and whether it is better.

    Args:
        low: The lower end of the interval of the accuracy, which is not better than a reference
            that is as high.
        references: Names and accuracies; those that are not exceeded come first.
    """
    better, others = [], []
    for name, accuracy in references:
        if low > accuracy:
            better.append(f"{name}: {accuracy:.1%}")
        else:
            others.append(f"not better than {name}: {accuracy:.1%}")
    return "; ".join([*others, *better, *([TO_TRY] if others else [])])


def larger_size(
    config: ViTConfig | BiTConfig | None, seen: tuple[int, int], photo: tuple[int, int]
) -> tuple[int, float] | None:
    """Returns the side of larger square images, and how many times as long they take.

    It shows each pixel of the photo, or as many as `MAX_TIMES` and `MAX_SIDE` allow. None if what
    is seen is nearly all, or not square.

    Args:
        config: The model's config.
        seen: Pixels (height, width) that the model sees.
        photo: Pixels (height, width) of the photo.
    """
    grid = config.grid(seen) if isinstance(config, ViTConfig) else None
    if grid is None or seen[0] != seen[1] or not grid[0]:
        return None
    patch, flops = seen[0] // grid[0], describe(config, input_shape=(*seen, 3)).flops
    largest = patch * (min(MAX_SIDE, *(patch * math.ceil(side / patch) for side in photo)) // patch)
    for side in range(largest, math.ceil(MIN_GROWTH * seen[0]) - 1, -patch):
        times = describe(config, input_shape=(side, side, 3)).flops / flops
        if times <= MAX_TIMES:
            return side, times
    return None


def describe_seen(
    config: ViTConfig | BiTConfig | None, seen: tuple[int, int], photo: tuple[int, int]
) -> str:
    """Returns what of photos (height, width) is lost at the size that a model sees."""
    text = "seen at {}x{}".format(*seen)
    if (pixels := math.ceil(min(photo) / min(seen))) > 1:
        text += f": details below {pixels} pixels are lost"
    if larger := larger_size(config, seen, photo):
        text += f"; --image-size {larger[0]} takes {larger[1]:.0f} times as long"
    return text
