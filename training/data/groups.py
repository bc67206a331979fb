"""Groups of images that belong together: a column, a pattern of names, or bursts by EXIF."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import ExifTags, Image

from keras_vit.training.machine import usable_cores

from .labels import class_counts, places_by_class

EXIF = "exif"
_DRAWS = 20  # Multi-label splits drawn until every label is in both parts.
BURST_SECONDS = 10  # Between a shot and the next of the same camera in the same group.


def group_of(
    group_by: str,
    names: Sequence[str],
    paths: Sequence[str] | None = None,
    cells: Mapping[str, str] | None = None,
) -> tuple[np.ndarray, int]:
    """Returns the group of each image, and how many images lack the information.

    An image without the information is a group of one.

    Args:
        group_by: "exif": shots of one camera (make, model and serial number), each within
            `BURST_SECONDS` of the next. Otherwise, without `cells`, a regular expression that is
            searched in the names: the group is its first capture group, or the whole match.
        names: The images; paths relative to the data.
        paths: Their files, for "exif".
        cells: The text that names the group, by the image's name; "" for none.

    Returns:
        Numbers from 0 in the order of their first image, int64 `(N,)`, and the count.

    Raises:
        ValueError: If the regular expression is wrong, no image has the information, or images
            are in no files.
    """
    if cells is not None:
        found: list = [cells.get(name) or None for name in names]
    elif group_by == EXIF:
        if paths is None:
            raise ValueError("--group-by exif goes with image files. Received: images in records")
        found = _bursts(paths)
    else:
        try:
            pattern = re.compile(group_by)
        except re.error as error:
            raise ValueError(
                "--group-by (group_by=) must be exif, a column of the table, or a regular "
                f"expression. Received: {group_by!r}: {error}"
            ) from error
        matches = [pattern.search(name) for name in names]
        first = 1 if pattern.groups else 0
        found = [None if match is None else match[first] for match in matches]
    alone = sum(key is None for key in found)
    if names and alone == len(names):
        raise ValueError(
            "--group-by (group_by=) must be exif, a column of the table, or a regular expression "
            f"that some paths match. Received: {group_by!r}; none of {len(names)} images has a "
            f"group, such as {names[0]}"
        )
    numbers: dict = {}
    keys = [("alone", place) if key is None else key for place, key in enumerate(found)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], "int64"), alone


def _bursts(paths):
    """A number for each image's burst; None without camera or time."""
    with ThreadPoolExecutor(2 * usable_cores()) as pool:
        shots = list(pool.map(_shot, paths))
    found: list = [None] * len(paths)
    before, burst = None, 0
    for place in sorted(
        (place for place, shot in enumerate(shots) if shot is not None),
        key=lambda place: (shots[place], paths[place]),
    ):
        camera, time = shots[place]
        if before is None or before[0] != camera or time - before[1] > BURST_SECONDS:
            burst += 1
        before, found[place] = (camera, time), burst
    return found


def _shot(path):
    """The camera of a photo, and its time in seconds; None without them."""
    tags = ExifTags.Base
    try:
        with Image.open(path) as image:
            exif = image.getexif()
            details = exif.get_ifd(ExifTags.IFD.Exif)
        camera = [exif.get(tags.Make), exif.get(tags.Model), details.get(tags.BodySerialNumber)]
        time = details.get(tags.DateTimeOriginal) or details.get(tags.DateTimeDigitized)
        moment = datetime.datetime.strptime(str(time)[:19], "%Y:%m:%d %H:%M:%S")
    except Exception:  # Pillow's errors of damaged files are of many types.
        return None
    seconds = (moment - datetime.datetime(1970, 1, 1)).total_seconds()
    names = tuple("" if value is None else str(value).strip("\0 ") for value in camera)
    return (names, seconds) if any(names[:2]) else None


def assign(
    labels: np.ndarray, groups: np.ndarray, shares: Sequence[float], seed: int
) -> np.ndarray:
    """Returns the part of each image, int64 `(N,)`; images of a group are in the same part.

    Greedy: the largest groups first, ties in random order, each to the part where it brings the
    images of each class, and of all classes, nearest to the shares (the least sum of squared
    differences, in units of the images that are wanted). Then a class that a part lacks gets its
    smallest group from a part with several, where no other class loses its last group in a part.

    Args:
        labels: As `Examples.labels`.
        groups: The group of each image, int `(N,)`.
        shares: Share of each part; their sum is 1.
        seed: Decides the order of groups of the same size.
    """
    groups = np.unique(groups, return_inverse=True)[1]
    count = int(groups.max()) + 1 if len(groups) else 0
    rows, classes = (
        np.nonzero(labels) if labels.ndim == 2 else (np.arange(len(labels)), labels.astype("int64"))
    )
    num_classes = (labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1) + 1
    # The last class has all images, also without a label.
    rows = np.concatenate([rows, np.arange(len(labels))])
    classes = np.concatenate([classes, np.full(len(labels), num_classes - 1)])
    keys, numbers = np.unique(groups[rows] * num_classes + classes, return_counts=True)
    of_group, classes = np.divmod(keys, num_classes)
    starts = np.searchsorted(of_group, np.arange(count + 1))
    wanted = np.outer(shares, np.bincount(classes, numbers, num_classes))
    filled, parts = np.zeros_like(wanted), np.zeros(count, "int64")
    order = np.random.default_rng(seed).permutation(count)
    sizes = np.bincount(groups, minlength=count)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        inside = slice(starts[group], starts[group + 1])
        present, images = classes[inside], numbers[inside]
        excess = filled[:, present] - wanted[:, present]
        cost = (images * (images + 2 * excess) / wanted[:, present]).sum(axis=1)
        parts[group] = np.argmin(cost)
        filled[parts[group], present] += images
    _fill(parts, of_group, classes, sizes, len(shares), num_classes)
    return parts[groups]


def _fill(parts, of_group, classes, sizes, num_parts, num_classes):
    """Moves groups to parts that lack a class, in place."""
    present = np.zeros((num_parts, num_classes), "int64")  # Groups of each part with a class.
    np.add.at(present, (parts[of_group], classes), 1)
    starts = np.searchsorted(of_group, np.arange(len(parts) + 1))
    for number in np.argsort(present.sum(axis=0), kind="stable"):
        for part in np.flatnonzero(present[:, number] == 0):
            movable = []
            for group in of_group[classes == number]:
                inside = classes[starts[group] : starts[group + 1]]
                if (present[parts[group], inside] >= 2).all():
                    movable.append((sizes[group], group, inside))
            if movable:
                _, group, inside = min(movable, key=lambda found: found[:2])
                present[parts[group], inside] -= 1
                present[part, inside] += 1
                parts[group] = part


def held_out(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Returns which examples a stratified split holds out, bool `(N,)`.

    About `share` of every class, at least one of a class of two images or more and none of a
    class of one. Multi-label images allow that only nearly: of 20 assignments the first is taken in
    which every label is in both parts, or else the best.

    Args:
        labels: As `Examples.labels`.
        share: Share of each class; more than 0, less than 1.
        rng: Draws the examples.
    """
    chosen = np.zeros(len(labels), bool)
    if labels.ndim == 1:
        for of_class in places_by_class(labels):
            count, places = len(of_class), rng.permutation(of_class)
            chosen[places[: min(max(round(share * count), 1), count - 1)]] = True
        return chosen
    counts = labels.sum(axis=0, dtype="int64")
    fewest = len(counts) + 1
    for _ in range(_DRAWS):
        seed = int(rng.integers(2**31))
        drawn = assign(labels, np.arange(len(labels)), (1 - share, share), seed) == 1
        second = labels[drawn].sum(axis=0, dtype="int64")
        is_missing = ((counts >= 2) & (second == 0)) | ((counts >= 1) & (second == counts))
        missing = int(is_missing.sum())
        if missing < fewest:
            chosen, fewest = drawn, missing
        if not missing:
            break
    return chosen


def class_groups(labels: np.ndarray, groups: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns the number of groups with images of each class, int `(K,)`."""
    if labels.ndim == 2:
        rows, classes = np.nonzero(labels)
    else:
        rows, classes = np.arange(len(labels)), labels
    pairs = np.unique(np.stack([groups[rows], classes]), axis=1)
    return class_counts(pairs[1].astype("int32"), num_classes)
