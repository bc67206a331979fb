"""References beside an accuracy, and the detail of photos that a model sees.

The most frequent class and simple numbers of the photos are right so often that an accuracy which
is not clearly higher is of no use. So each accuracy is printed with them for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from keras_vit.configs import ModelConfig, ViTConfig
from keras_vit.configs.counting import cost_of
from keras_vit.description.run_record import Reference
from keras_vit.images.transcoding import with_pixels
from keras_vit.training.data.content import on_all_cores
from keras_vit.training.data.copies import GREY, grey_photo
from keras_vit.utils.intervals import wilson_interval

from .measures import accuracy_text, independent_images
from .ridge import L2_SHARES, Decomposition

MAX_SIMPLE = 1000  # Photos whose simple numbers are computed.

_BLOCKS = 16  # Per side, of the contrasts.
_PIXELS = 24  # Per side, of the grey photo that is a reference.
_EDGE_BLOCKS, _DIRECTIONS, _LEVELS = 8, 9, 4  # Per side; of edges; of each color.

FAR = 0.1  # So much better than the features, simple numbers hint at photos of one thing.
ALARM = "do the weights fit these photos? are photos of one thing in both parts?"
# A larger size is taken if an image takes at most as many times as long, up to the paper's size.
MAX_TIMES = 8
MAX_SIDE = 384
_CLASSES = 1000  # The head whose cost is counted.
MIN_GROWTH = 1.6  # Growth of a side. A little more detail is seldom clearly better.


def most_frequent(labels: np.ndarray, class_names: Sequence[str]) -> Reference:
    """Returns what is right if each image gets the most frequent class.

    Args:
        labels: Class numbers `(N,)`, N at least 1.
        class_names: Their names.
    """
    counts = np.bincount(labels)
    name = class_names[int(counts.argmax())]
    share = float(counts.max() / len(labels))
    return Reference(f"always {name}, the most frequent class", share)


def expected_accuracy(right: np.ndarray, groups: np.ndarray) -> tuple[float, float, float]:
    """Returns the mean of right answers, and its 95% interval, which knows of groups.

    The interval is Wilson's, for as many independent images as the groups are worth.

    Args:
        right: Share of right answers for each image, `(N,)`.
        groups: Group of each image, int from 0 `(N,)`.
    """
    mean, count = float(right.mean()), independent_images(right, groups)
    return mean, *wilson_interval(mean * count, count)


def is_exceeded(reference: Reference, accuracy: float, low: float) -> bool:
    """Returns whether an accuracy is shown to be better than a reference.

    The difference must exceed the uncertainty of both together (Newcombe, 1998, method 10).

    Args:
        reference: The reference.
        accuracy: The accuracy.
        low: The lower end of its 95% interval.
    """
    high, count = reference.accuracy, reference.images
    if count:
        _, high = wilson_interval(reference.accuracy * count, count)
    difference = accuracy - reference.accuracy
    return difference > math.hypot(accuracy - low, high - reference.accuracy)


def reference_text(reference: Reference) -> str:
    """Returns a reference with its accuracy, and the 95% interval of an estimated one."""
    name, accuracy, images = reference
    return f"{name}: {accuracy_text(accuracy, images) if images else f'{accuracy:.1%}'}"


def beside_references(accuracy: float, low: float, references: Iterable[Reference]) -> str:
    """Returns the text that stands with each accuracy: the references, and whether it is better.

    Args:
        accuracy: The accuracy.
        low: The lower end of its 95% interval.
        references: The references; those that are not exceeded come first.
    """
    better, others = [], []
    for reference in references:
        text = f"better than {reference_text(reference)}"
        if is_exceeded(reference, accuracy, low):
            better.append(text)
            continue
        if reference.accuracy >= accuracy + FAR and reference.images:
            others.append(f"far worse than {reference_text(reference)}: {ALARM}")
            continue
        others.append(f"not shown to be {text}")
        if accuracy > reference.accuracy:
            others[-1] += ", of too few images to tell"
    return "; ".join([*others, *better])


def larger_size(
    config: ModelConfig | None, seen: tuple[int, int], photo: tuple[int, int]
) -> tuple[int, float] | None:
    """Returns the side of larger square images, and how many times as long they take.

    It shows each pixel of the photo, or as many as `MAX_TIMES` and `MAX_SIDE` allow. None if what
    is seen is nearly all, or not square.

    Args:
        config: The model's config.
        seen: Pixels (height, width) that the model sees.
        photo: Pixels (height, width) of the photo.
    """
    if not isinstance(config, ViTConfig) or seen[0] != seen[1]:
        return None
    grid = config.grid(seen)
    if not grid[0]:
        return None
    patch, flops = seen[0] // grid[0], cost_of(config, (*seen, 3), _CLASSES).flops
    largest = patch * (min(MAX_SIDE, *(patch * math.ceil(side / patch) for side in photo)) // patch)
    for side in range(largest, math.ceil(MIN_GROWTH * seen[0]) - 1, -patch):
        times = cost_of(config, (side, side, 3), _CLASSES).flops / flops
        if times <= MAX_TIMES:
            return side, times
    return None


def describe_seen(config: ModelConfig | None, seen: tuple[int, int], photo: tuple[int, int]) -> str:
    """Returns what of photos (height, width) is lost at the size that a model sees."""
    text = "seen at {}x{}".format(*seen)
    if (pixels := math.ceil(min(photo) / min(seen))) > 1:
        text += f": details below {pixels} pixels are lost"
    if larger := larger_size(config, seen, photo):
        text += f"; --image-size {larger[0]} takes {larger[1]:.0f} times as long"
    return text


def simple_numbers(image: Image.Image) -> np.ndarray:
    """Returns thirty numbers of a photo at its own size, float32 `(30,)`.

    They are the logarithms of eight quantiles over the blocks of a grid, from the least to the
    largest, of three contrasts: the standard deviation, the difference to the right neighbour, and
    that to the mean of all four neighbours. Then the contrast of the photo, the mean of each
    colour, and the logarithms of width and height.

    Args:
        image: The photo, upright.
    """
    colours = np.asarray(image.convert("RGB"), "float32")
    grey = np.pad(colours @ np.array([0.299, 0.587, 0.114], "float32"), 1, "reflect")
    centre, right = grey[1:-1, 1:-1], grey[1:-1, 2:]
    around = grey[2:, 1:-1] + grey[:-2, 1:-1] + right + grey[1:-1, :-2]
    contrasts = (
        np.sqrt(np.maximum(_means_of_blocks(centre**2) - _means_of_blocks(centre) ** 2, 0)),
        _means_of_blocks(np.abs(right - centre)),
        _means_of_blocks(np.abs(around - 4 * centre)),
    )
    quantiles = np.quantile(np.reshape(contrasts, (3, -1)), np.linspace(0, 1, 8), axis=1)
    rest = (grey.std(keepdims=True)[0], colours.mean(axis=(0, 1)), np.log(image.size))
    return np.concatenate([np.log1p(quantiles.T).ravel(), *rest]).astype("float32")


def _means_of_blocks(values):
    """Returns the mean of each block of `(H, W)`, of as many blocks as there are pixels."""
    for axis, size in enumerate(values.shape):
        edges = np.linspace(0, size, min(_BLOCKS, size) + 1).astype(int)
        sums = np.add.reduceat(values, edges[:-1], axis=axis)
        values = sums / np.expand_dims(np.diff(edges), 1 - axis)
    return values


class SimplePhoto(NamedTuple):
    """What the simple references read of a photo.

    Args:
        few: The `simple_numbers`, float32 `(30,)`.
        grey: The `grey_photo`, uint8 `(96, 96)`.
        many: The `edge_numbers`, float32 `(704,)`.
    """

    few: np.ndarray
    grey: np.ndarray
    many: np.ndarray


def simple_photo(image: Image.Image) -> SimplePhoto:
    """Returns what the simple references read of an upright photo."""
    grey = np.asarray(grey_photo(image))
    return SimplePhoto(simple_numbers(image), grey, edge_numbers(image, grey))


def edge_numbers(image: Image.Image, grey: np.ndarray) -> np.ndarray:
    """Returns 704 numbers of a photo: edges, colors and grey pixels, float32 `(704,)`.

    They are the strength of the edges in nine directions for each of 8 x 8 blocks, of which each
    block has the norm 1 (histograms of oriented gradients; Dalal and Triggs, 2005); the roots of
    the shares of 4 x 4 x 4 colors; and 8 x 8 grey pixels.

    Args:
        image: The photo, upright.
        grey: Its `grey_photo`, uint8 `(96, 96)`.
    """
    values = grey.astype("float32")
    down, right = np.gradient(values)
    strength, angle = np.hypot(down, right), np.arctan2(down, right) % np.pi
    direction = np.minimum((angle / np.pi * _DIRECTIONS).astype(int), _DIRECTIONS - 1)
    rows, columns = np.indices(values.shape) * _EDGE_BLOCKS // GREY
    place = (rows * _EDGE_BLOCKS + columns) * _DIRECTIONS + direction
    edges = np.bincount(place.ravel(), strength.ravel(), _EDGE_BLOCKS**2 * _DIRECTIONS)
    edges = edges.reshape(-1, _DIRECTIONS)
    norms = np.linalg.norm(edges, axis=1, keepdims=True)
    edges = edges / (norms + GREY)  # Flat blocks have no edges.
    small = np.asarray(image.convert("RGB").resize((GREY // 2, GREY // 2), Image.Resampling.BOX))
    levels = small.reshape(-1, 3).astype(int) * _LEVELS // 256
    color = (levels[:, 0] * _LEVELS + levels[:, 1]) * _LEVELS + levels[:, 2]
    shares = np.bincount(color, minlength=_LEVELS**3) / len(color)
    return np.concatenate([edges.ravel(), np.sqrt(shares), _pixels(grey, 8)]).astype("float32")


def _pixels(greys, side):
    """Returns the means of `side` x `side` blocks of grey photos `(..., 96, 96)`, as rows."""
    block = GREY // side
    blocks = greys.reshape(*greys.shape[:-2], side, block, side, block)
    means = blocks.mean(axis=(-3, -1), dtype="float32")
    return means.reshape(*greys.shape[:-2], -1)


def simple_reference(
    photos: Sequence[SimplePhoto], labels: np.ndarray, groups: np.ndarray
) -> Reference:
    """Returns the best of three ridge regressions, each photo left out.

    They are of the `simple_numbers`, of the pixels of the `grey_photo`, and of the `edge_numbers`.

    Args:
        photos: What is read of N photos.
        labels: Class numbers `(N,)`.
        groups: Group of each photo, int `(N,)`, at least two; a group is left out as a whole.
    """
    numbers = {
        "thirty simple numbers of each photo": np.stack([photo.few for photo in photos]),
        f"{_PIXELS} x {_PIXELS} grey pixels": _pixels(
            np.stack([photo.grey for photo in photos]), _PIXELS
        ),
        "edge directions, colors and grey pixels": np.stack([photo.many for photo in photos]),
    }
    answers = {name: _left_out(values, labels, groups) for name, values in numbers.items()}
    name, right = max(answers.items(), key=lambda answer: answer[1].mean())
    return Reference(name, float(right.mean()), independent_images(right, groups))


def reference_of_files(
    images: Iterable[bytes], labels: np.ndarray, groups: np.ndarray, bit_depth: int
) -> Reference:
    """Returns the `simple_reference` of image files.

    Args:
        images: The content of N files, which can be decoded.
        labels: Class numbers `(N,)`.
        groups: Group of each photo, int `(N,)`, at least two.
        bit_depth: Bits of the values of 16-bit images.
    """

    def read(encoded):
        return with_pixels(encoded, lambda pixels: simple_photo(Image.fromarray(pixels)), bit_depth)

    return simple_reference(list(on_all_cores(read, images)), labels, groups)


def _left_out(numbers, labels, groups):
    """Returns whether a ridge regression of numbers `(N, D)` is right, each photo left out."""
    scaled = (numbers - numbers.mean(axis=0)) / np.maximum(numbers.std(axis=0), 1e-6)
    decomposition = Decomposition(scaled)
    l2 = decomposition.chosen_l2(labels, decomposition.l2_of(L2_SHARES), groups=groups)
    right = np.zeros(len(labels))
    for places, scores in decomposition.left_out_scores(labels, l2, groups=groups):
        right[places] = scores.argmax(axis=1) == labels[places]
    return right
