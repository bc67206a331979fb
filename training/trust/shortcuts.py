"""Shortcuts: whether the class can be read from what a photo should not be known by.

Size, bytes, brightness, file format, the border, or all but the centre: each is read by a
small ridge regression, whose leave-one-out predictions must be better than with permuted labels.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy import stats

from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.images.transcoding import kind_of, with_pixels
from keras_vit.training.data.copies import Fingerprint, photo_print
from keras_vit.training.evaluation.measures import holm
from keras_vit.training.evaluation.references import SimplePhoto, simple_photo
from keras_vit.training.evaluation.ridge import Decomposition

MAX_P_VALUE = 0.01  # After Holm's correction.
MIN_AUROC = 0.95  # One class against the others: a p-value alone finds every bright sky.

_MAX_IMAGES = 5000  # More make no p-value smaller than the permutations allow.
_MAX_CLASSES = 100  # Time and memory grow with images times classes.
_PERMUTATIONS = 999
_AT_ONCE = 2**22  # Numbers of predictions in memory; the ridge holds five such arrays.
_BINS = 16  # Parts of a number, by quantiles.
_CAMERAS = 20  # The most frequent; the others are one.
_L2 = (1e-3, 1e-1, 1e1)  # In units of the mean eigenvalue.


_SIDE = 16  # Pixels per side of the background.
_BORDER_SIDE = 32  # Pixels per side of the image whose outermost pixels are the border.
_PIECES = 4  # Pieces of each side of the border.

# Sum of the luminance table of quality 50 (ITU-T T.81, table K.1). libjpeg multiplies that table by
# 50 / quality below 50, else by 2 - quality / 50.
_SUM_OF_TABLE_K1 = 3688


class PhotoFacts(NamedTuple):
    """Facts about one image file that need no model.

    Args:
        fingerprint: See `photo_print`.
        readings: What a class should not be known by: numbers, names and arrays.
        simple: What the simple references read.
        is_one_color: Whether all pixels are equal.
    """

    fingerprint: Fingerprint
    readings: dict[str, float | str | np.ndarray]
    simple: SimplePhoto
    is_one_color: bool


def photo_facts(encoded: bytes, bit_depth: int = FULL_DEPTH) -> PhotoFacts:
    """Returns the facts about an image file.

    Args:
        encoded: Its content, which can be decoded.
        bit_depth: Bits of the values of a 16-bit image; see `decode_file`.
    """

    def facts_of(pixels):
        return _facts(encoded, Image.fromarray(pixels))

    return with_pixels(encoded, facts_of, bit_depth)


def _facts(encoded, image):
    kind = kind_of(encoded)
    quality = _jpeg_quality(Image.open(io.BytesIO(encoded))) if kind == "JPEG" else ""
    small = image.resize((_SIDE, _SIDE), Image.Resampling.BOX)
    readings = {
        "width": image.width,
        "height": image.height,
        "bytes of the file": len(encoded),
        "brightness": float(np.asarray(small.convert("L"), "float32").mean()),
        "file format and JPEG quality": f"{kind} {quality}",
        "border": _ring(image),
        "background": _without_centre(small),
    }
    is_one_color = all(low == high for low, high in image.getextrema())
    return PhotoFacts(photo_print(image), readings, simple_photo(image), is_one_color)


def _jpeg_quality(image):
    """Returns the quality by the sum of the first quantisation table; "" without one."""
    tables = getattr(image, "quantization", None)
    if not tables:
        return ""
    scale = sum(tables[min(tables)]) / _SUM_OF_TABLE_K1
    return round(max(1.0, 100 - 50 * scale if scale <= 1 else 50 / scale))


def _ring(image):
    """Returns 16 mean colours along the border, shares of 255, and their standard deviation."""
    small = image.resize((_BORDER_SIDE, _BORDER_SIDE), Image.Resampling.BOX)
    pixels = np.asarray(small, "float32") / 255
    sides = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    means = sides.reshape(4 * _PIECES, -1, 3).mean(axis=1)
    return np.append(means, sides.std(axis=0)).astype("float32")


def _without_centre(small):
    """Returns the pixels outside of the centre, as shares of 255; the centre is grey."""
    pixels = np.asarray(small, "float32") / 255
    quarter = _SIDE // 4
    pixels[quarter:-quarter, quarter:-quarter] = 0.5
    return pixels.reshape(-1)


class Shortcut(NamedTuple):
    """How well the classes can be recognised by something.

    Args:
        name: What.
        p_value: Share of permuted labels that are predicted as well, at least 1/1000.
        adjusted: The p-value after Holm's correction for all shortcuts.
        auroc: Area under the ROC curve of the class that is recognised best, in [0, 1].
        class_number: This class.
        images: The images of the class, the most typical first, int `(M,)`.
    """

    name: str
    p_value: float
    adjusted: float
    auroc: float
    class_number: int
    images: np.ndarray

    @property
    def is_strong(self) -> bool:
        """Whether it is significant and so strong that a model may use it alone."""
        return self.adjusted <= MAX_P_VALUE and self.auroc >= MIN_AUROC


def find_shortcuts(
    facts: Sequence[PhotoFacts], labels: np.ndarray, groups: np.ndarray, *, seed: int = 0
) -> list[Shortcut]:
    """Returns all shortcuts that were looked for, strong or not.

    Args:
        facts: Facts about the N images.
        labels: Class numbers `(N,)`. If there are more than 100 classes, the largest count.
        groups: Group of each image, int `(N,)`; one image of each is used, so that the images are
            independent.
        seed: Seed of the choice of images and of the permutations.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(facts))
    _, one_of_each = np.unique(groups[order], return_index=True)
    chosen = np.sort(order[rng.permutation(one_of_each)[:_MAX_IMAGES]])
    images = np.bincount(labels[chosen])
    largest = np.argsort(-images, kind="stable")[:_MAX_CLASSES]
    kept = np.sort(largest[(images[largest] >= 2) & (images[largest] <= len(chosen) - 2)])
    targets = (labels[chosen][:, np.newaxis] == kept).astype("float64")
    if len(kept) == 0 or len(chosen) < 10:
        return []
    readings = {
        name: _features([facts[number].readings[name] for number in chosen])
        for name in facts[0].readings
    }
    shortcuts = [
        _tested(name, features, targets, kept, chosen, rng)
        for name, features in readings.items()
        if (features != features[0]).any()
    ]
    adjusted = holm([shortcut.p_value for shortcut in shortcuts])
    return [
        shortcut._replace(adjusted=value)
        for shortcut, value in zip(shortcuts, adjusted, strict=True)
    ]


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Returns the area under the ROC curve of scores `(N,)`; ties count half."""
    first, second = scores[positive], scores[~positive]
    return float(stats.mannwhitneyu(first, second).statistic) / (len(first) * len(second))


def _tested(name, features, targets, classes, images, rng):
    """Returns the shortcut of features `(N, D)`, without Holm's correction."""
    decomposition = Decomposition(features)
    ridge = decomposition.ridge(targets, decomposition.l2_of(_L2))
    predictions = ridge.left_out_predictions
    areas = [auroc(predictions[:, k], targets[:, k] > 0) for k in range(len(classes))]
    best = int(np.argmax(areas))

    # The statistic: the largest share of a class's variance that is predicted.
    variances = np.square(targets - targets.mean(axis=0)).sum(axis=0)
    errors = np.square(ridge.left_out_residuals).sum(axis=0)
    statistic = (1 - errors / variances).max()
    as_good, at_once = 0, max(1, _AT_ONCE // targets.size)
    for start in range(0, _PERMUTATIONS, at_once):
        some = min(at_once, _PERMUTATIONS - start)
        orders = [rng.permutation(len(targets)) for _ in range(some)]
        permuted = np.concatenate([targets[order] for order in orders], axis=1)
        residuals = decomposition.ridge(permuted, ridge.l2).left_out_residuals
        errors = np.square(residuals).sum(axis=0).reshape(some, -1)
        as_good += int(((1 - errors / variances).max(axis=1) >= statistic).sum())
    p_value = (1 + as_good) / (1 + _PERMUTATIONS)
    typical = np.argsort(-predictions[:, best], kind="stable")
    typical = typical[targets[typical, best] > 0]
    return Shortcut(name, p_value, p_value, areas[best], int(classes[best]), images[typical])


def _features(values):
    """Returns readings of N photos as features `(N, D)`."""
    if isinstance(values[0], np.ndarray):
        return np.stack(values)
    return _one_hot(values) if isinstance(values[0], str) else _binned(np.array(values))


def _binned(values):
    """Returns which bin each number is in, and the number itself, scaled: `(N, bins + 1)`."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1], method="lower"))
    # An edge has a separate bin: many images may have one width.
    places = np.searchsorted(edges, values, "left") + np.searchsorted(edges, values, "right")
    return (places[:, np.newaxis] == np.unique(places)).astype("float64")


def _one_hot(names):
    frequent = [name for name, _ in Counter(names).most_common(_CAMERAS)]
    return np.array([[name == other for other in frequent] for name in names], "float64")
