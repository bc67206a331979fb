"""Features and logits of images, and which of them count as independent."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence

import keras
import numpy as np

from keras_vit.models.rebuild import head_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples
from keras_vit.utils.progress import Log

from .predictions import extract

MAX_TRAINING = 10_000  # Images whose features the leverage is computed from.


@dataclasses.dataclass(frozen=True)
class Scores:
    """Features and logits of images with their labels.

    Args:
        features: The input of the head, float32 `(N, D)`.
        logits: float64 `(N, K)`.
        labels: Class numbers `(N,)`.
    """

    features: np.ndarray
    logits: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, places: np.ndarray) -> Scores:
        """Returns the scores of some images."""
        return Scores(self.features[places], self.logits[places], self.labels[places])


def compute_scores(
    model: keras.Model,
    examples: Examples,
    preprocessing: Preprocessing,
    *,
    known: Mapping[str, np.ndarray] | None = None,
    batch_size: int = 32,
    progress: bool = False,
    skip_unreadable: bool = False,
) -> Scores:
    """Returns the features and logits of images.

    Args:
        model: From images to probabilities `(B, K)`.
        examples: The images, labelled with numbers of the model's classes.
        preprocessing: How an image becomes the model's input.
        known: Features `(D,)` of some images by name, which are not computed again.
        batch_size: Images in a batch.
        progress: Whether to show a line with the rate and the time left.
        skip_unreadable: Whether image files that cannot be read are left out; else they are an
            error.

    Raises:
        ValueError: If the model's output is not one head's.
    """
    extracted = functools.partial(
        extract,
        model,
        preprocessing=preprocessing,
        batch_size=batch_size,
        progress=progress,
        unreadable=[] if skip_unreadable else None,
    )
    kernel, *bias = map(keras.ops.convert_to_numpy, head_of(model).weights)
    if known:
        labels = examples.labels
        features = _completed(known, examples, extracted)
    else:
        features, labels = extracted(examples)
    logits = (features @ kernel + (bias[0] if bias else 0)).astype("float64")
    return Scores(features, logits, labels)


def _completed(known, examples, extracted):
    """The features of images, of which some are known by name."""
    rest = examples.take(np.flatnonzero([name not in known for name in examples.names]))
    features = dict(known)
    if len(rest):
        computed, _ = extracted(rest)
        features |= zip(rest.names, computed, strict=True)
    return np.stack([features[name] for name in examples.names])


def spaced(examples: Examples, most: int = MAX_TRAINING) -> Examples | None:
    """Returns so many images at most, evenly spaced; None of none."""
    count = min(len(examples), most)
    if not count:
        return None
    places = np.linspace(0, len(examples) - 1, count).round().astype(int)
    return examples.take(np.unique(places))


def distinct(*keys: Sequence) -> np.ndarray:
    """Returns the places of images that have no key in common, one of each at random.

    Copies and images of a group are no independent draws, which the bound is for.

    Args:
        *keys: The content of each image, its group and so on, each `(N,)`.
    """
    seen: set[tuple[int, Hashable]] = set()
    places = []
    for place in np.random.default_rng(0).permutation(len(keys[0])):
        of_image = {(number, key[place]) for number, key in enumerate(keys)}
        if seen.isdisjoint(of_image):
            places.append(place)
        seen |= of_image
    return np.sort(np.array(places, "int64"))


def counted(
    examples: Examples, groups: Mapping[str, int] | None, log: Log
) -> tuple[Examples, bool]:
    """Returns the calibration images that count, one of each content and of each group.

    Returned with them is whether there are groups or copies.

    Args:
        examples: The calibration images.
        groups: The group or thing of each image by its name; None where each is another.
        log: Receives a line about the others.
    """
    numbers = examples.fingerprints()
    if numbers is None:  # Record files, all of which are read now.
        numbers = Examples.fingerprints(examples)
    contents = [number or name for number, name in zip(numbers, examples.names, strict=True)]
    of_images = [(groups or {}).get(name, name) for name in examples.names]
    places = distinct(contents, of_images)
    if left := len(examples) - len(places):
        log(
            f"split   {left} of the {len(examples)} calibration images do not count: copies, or of "
            "one group or thing with another"
        )
    return examples.take(places), bool(groups or left)
