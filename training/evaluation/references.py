"""References beside an accuracy, and the detail of photos that a model sees.

The most frequent class and simple numbers of the photos are right so often that an accuracy which
is not clearly higher is of no use. So each accuracy is printed beside them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from PIL import Image

from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.description import describe_config
from keras_vit.description.recipe import Reference
from keras_vit.images.transcoding import with_pixels
from keras_vit.training.data.split_record import usable_cores

from .measures import accuracy_text, wilson_interval
from .ridge import L2_SHARES, Decomposition, one_hot

GREY = 96  # Pixels per side of a small grey photo.

_BLOCKS = 16  # Per side, of the contrasts.
_PIXELS = 24  # Per side, of the grey photo that is a reference.

Result = TypeVar("Result")

TO_TRY = "try a larger --image-size or other --weights"
# A larger size is taken if an image takes at most as many times as long, up to the paper's size.
MAX_TIMES = 8
MAX_SIDE = 384
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
    mean, count = float(right.mean()), _independent_images(right, groups)
    return mean, *wilson_interval(round(mean * count), count)


def _independent_images(right, groups):
    """Returns how many independent images would have the variance of the mean of right answers."""
    deviations = right - right.mean()
    variance = float(np.square(np.bincount(groups, deviations)).sum())
    # All alike leave it open.
    count = float(groups.max() + 1)
    if variance:
        count = len(right) * min(1.0, float(np.square(deviations).sum()) / variance)
    return max(1, round(count))


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
        _, high = wilson_interval(round(reference.accuracy * count), count)
    difference = accuracy - reference.accuracy
    return difference > math.hypot(accuracy - low, high - reference.accuracy)


def reference_text(reference: Reference) -> str:
    """Returns a reference with its accuracy, and the 95% interval of an estimated one."""
    name, accuracy, images = reference
    return f"{name}: {accuracy_text(accuracy, images) if images else f'{accuracy:.1%}'}"


def beside_references(accuracy: float, low: float, references: Iterable[Reference]) -> str:
    """Returns the text that stands beside each accuracy: the references, and whether it is better.

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
        else:
            others.append(f"not shown to be {text}")
    return "; ".join([*others, *better, *([TO_TRY] if others and accuracy < 1 else [])])


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
    if not isinstance(config, ViTConfig) or seen[0] != seen[1]:
        return None
    grid = config.grid(seen)
    if not grid[0]:
        return None
    patch, flops = seen[0] // grid[0], describe_config(config, input_shape=(*seen, 3)).flops
    largest = patch * (min(MAX_SIDE, *(patch * math.ceil(side / patch) for side in photo)) // patch)
    for side in range(largest, math.ceil(MIN_GROWTH * seen[0]) - 1, -patch):
        times = describe_config(config, input_shape=(side, side, 3)).flops / flops
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


def grey_photo(image: Image.Image) -> Image.Image:
    """Returns a photo as small grey image of `GREY` pixels per side."""
    return image.convert("L").resize((GREY, GREY), Image.Resampling.LANCZOS)


def simple_reference(
    numbers: Sequence[np.ndarray],
    greys: Sequence[np.ndarray],
    labels: np.ndarray,
    groups: np.ndarray,
) -> Reference:
    """Returns the better of two ridge regressions, each photo left out.

    One is of the `simple_numbers`, the other of the pixels of the `grey_photo`.

    Args:
        numbers: The `simple_numbers` of N photos, `(30,)` each.
        greys: Their grey photos, uint8 `(96, 96)` each.
        labels: Class numbers `(N,)`.
        groups: Group of each photo, int `(N,)`, at least two; a group is left out as a whole.
    """
    block = GREY // _PIXELS
    blocks = np.stack(greys).reshape(-1, _PIXELS, block, _PIXELS, block)
    pixels = blocks.mean(axis=(2, 4), dtype="float32").reshape(len(blocks), -1)
    answers = {
        "thirty simple numbers of each photo": _left_out(np.stack(numbers), labels, groups),
        f"{_PIXELS} x {_PIXELS} grey pixels": _left_out(pixels, labels, groups),
    }
    name, right = max(answers.items(), key=lambda answer: answer[1].mean())
    return Reference(name, float(right.mean()), _independent_images(right, groups))


def reference_of_files(
    images: Iterable[bytes], labels: np.ndarray, groups: np.ndarray
) -> Reference:
    """Returns the `simple_reference` of image files.

    Args:
        images: The content of N files, which can be decoded.
        labels: Class numbers `(N,)`.
        groups: Group of each photo, int `(N,)`, at least two.
    """

    def numbers_and_grey(encoded):
        return with_pixels(encoded, lambda pixels: _both(Image.fromarray(pixels)))

    numbers, greys = zip(*on_all_cores(numbers_and_grey, images), strict=True)
    return simple_reference(numbers, greys, labels, groups)


def _both(image):
    return simple_numbers(image), np.asarray(grey_photo(image))


def _left_out(numbers, labels, groups):
    """Returns whether a ridge regression of numbers `(N, D)` is right, each photo left out."""
    scaled = (numbers - numbers.mean(axis=0)) / np.maximum(numbers.std(axis=0), 1e-6)
    decomposition = Decomposition(scaled)
    ridge = decomposition.ridge(one_hot(labels), decomposition.l2_of(L2_SHARES), groups=groups)
    return (ridge.left_out_predictions.argmax(axis=1) == labels).astype("float64")


def on_all_cores(function: Callable[[bytes], Result], images: Iterable[bytes]) -> Iterator[Result]:
    """Yields what a function makes of each image file, in order, on all cores."""
    waiting = iter(images)
    with ThreadPoolExecutor(usable_cores()) as pool:  # Pillow decodes without Python's lock.
        while some := list(itertools.islice(waiting, 8 * usable_cores())):
            yield from pool.map(function, some)
