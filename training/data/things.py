"""Photos that show one thing: equal files, copies and bursts, which stay in one part.

A photo of a thing in training makes the others easy: six exposures of one tile in training and test
say nothing about new tiles. So parts are drawn by things, not by photos.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image
from tqdm import tqdm

from keras_vit.description.class_labels import MULTICLASS
from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.images.transcoding import with_pixels
from keras_vit.utils.fields import required

from .content import UNKNOWN, at_once, number_of_digest, on_all_cores, pixel_digest, usable_cores
from .copies import ALIKE, EXACT, Copy, Fingerprint, find_copies, joined_groups, photo_print
from .examples import Examples, task_of
from .labelled_images import Source, Things
from .spec import IGNORED, NOT_LOOKED_FOR, DataSpec
from .split_record import PARTS, SplitRecord, read_pixel_fingerprints

SEARCHED = 20_000  # Photos at most; among more only equal ones are looked for.
LARGEST_SHARE, BURST = 0.05, 10  # A thing of more photos than both is a chain of bursts.

# Where a plan's number of things is from.
FOUND_BY = (
    "copies and bursts, by their pixels; a thing that was turned or moved is not found: "
    "--group-by, --groups"
)

_SECONDS_A_PAIR = 3e-7  # One core of 2024, with the few pairs that are compared in full.
_WORTH_A_LINE = 10  # Seconds.

# What the first of several processes computes, in all of them: a function of a function that
# returns int64 `(N,)`, and of N.
InFirst: TypeAlias = Callable[[Callable[[], np.ndarray], int], np.ndarray]


def find_things(
    splits: Mapping[str, Examples],
    *,
    by_pixels: bool = True,
    log: Callable[[str], None] | None = None,
    in_first: InFirst | None = None,
    bit_depth: int | None = None,
) -> Things:
    """Returns the things that the images of all parts show.

    Args:
        splits: The images by the name of their part.
        by_pixels: Whether copies and bursts are looked for; else, and among more than `SEARCHED`
            images, equal files and equal pixels alone.
        log: Receives a line before a long search, with an estimate of its time.
        in_first: Computes the things in the first of several processes, for all of them.
        bit_depth: Bits of the values of 16-bit images; None: all of them.
    """
    parts = [*splits.values()]
    names = [name for part in parts for name in part.names]
    is_searched = by_pixels and len(names) <= SEARCHED
    labels = None
    if task_of(parts[0].labels) == MULTICLASS:
        labels = np.concatenate([part.labels for part in parts])

    read_photos: list[_ReadPhoto] = []

    def search():
        images = (encoded for part in parts for encoded, _ in part.encoded())
        depth = bit_depth or FULL_DEPTH
        reading = on_all_cores(functools.partial(_read_photo, depth, is_searched), images)
        began = time.perf_counter()
        read_photos.extend(itertools.islice(reading, at_once()))
        seconds = (time.perf_counter() - began) / len(read_photos)
        is_long = log is not None and _announce(seconds, len(names), is_searched, log)
        read_photos.extend(reading)
        if is_searched:
            found = [required(photo.found, "found") for photo in read_photos]
            return things_of(find_copies(found, progress=is_long).pairs, len(names), labels)
        return _equal(photo.digest for photo in read_photos)

    # The number of things whose bursts were separated is behind the numbers.
    numbers = search() if in_first is None else in_first(search, len(names) + 1)
    *things, separated = numbers.tolist()
    count = len(set(things))
    notes = []
    if separated:
        notes.append(
            f"{separated} chains of bursts of more than {LARGEST_SHARE:.0%} of the photos, or of "
            "all photos of a class, are separated: only their copies are kept together"
        )
    limits = ""
    if not is_searched:
        limits = "; only equal files and equal pixels are looked for, no changed copies or bursts"
    numbers_by_name = dict(zip(names, things, strict=True))
    line = f"{len(names):,} photos show {count:,} things"
    pixels = None
    if len(read_photos) == len(numbers_by_name):
        pixels = np.array([photo.pixels for photo in read_photos], "uint64")
    return Things(numbers_by_name, line, limits=limits, notes=tuple(notes), pixels=pixels)


class _ReadPhoto(NamedTuple):
    """What is read of an image file.

    Args:
        digest: A hash of the pixels, or of a file that cannot be decoded.
        pixels: The `pixel_fingerprint`.
        found: What copies are found by; None if they are not looked for.
    """

    digest: bytes
    pixels: int
    found: Fingerprint | None


def fingerprints(images: Iterable[bytes], bit_depth: int = FULL_DEPTH) -> list[Fingerprint]:
    """Returns what copies are found by, for each of some image files, read on all cores.

    Args:
        images: Their contents. One that cannot be decoded is a copy of its equals alone.
        bit_depth: Bits of the values of 16-bit images.
    """
    read = on_all_cores(functools.partial(_read_photo, bit_depth, True), images)
    return [required(photo.found, "found") for photo in read]


def _read_photo(bit_depth, is_searched, encoded):
    """What is read of an image file, which is decoded once; of 16 bits twice."""

    def read(pixels):
        digest, found = pixel_digest(pixels), None
        if is_searched and pixels.dtype == np.uint8:
            found = _print_of(pixels, digest)
        return _ReadPhoto(digest, number_of_digest(pixels, digest), found)

    try:
        photo = with_pixels(encoded, read, None)
        if is_searched and photo.found is None:
            found = with_pixels(encoded, lambda pixels: _print_of(pixels, photo.digest), bit_depth)
            photo = photo._replace(found=found)
        return photo
    except ValueError:
        digest = hashlib.sha256(encoded).digest()
        return _ReadPhoto(digest, UNKNOWN, photo_print(Image.new("RGB", (1, 1)), digest))


def _print_of(pixels, digest):
    return photo_print(Image.fromarray(pixels), digest)


def _equal(digests):
    """The number of the first equal image of each, and 0 for separated things."""
    firsts: dict[bytes, int] = {}
    return np.array([*(firsts.setdefault(digest, len(firsts)) for digest in digests), 0], "int64")


def things_of(pairs: Sequence[Copy], count: int, labels: np.ndarray | None = None) -> np.ndarray:
    """Returns the number of the thing that each image shows, and last how many were separated.

    Copies and bursts are joined. A thing that is too large to be one, or holds all images of a
    class, is separated again into its copies: bursts make chains, copies do not.

    Args:
        pairs: The copies and bursts.
        count: Images N.
        labels: Class numbers `(N,)`; None of multi-label images.

    Returns:
        int64 `(N + 1,)`.
    """
    joined = joined_groups(count, pairs)
    certain = joined_groups(count, [pair for pair in pairs if pair.kind != ALIKE])
    is_chain = np.bincount(joined) > max(LARGEST_SHARE * count, BURST)
    if labels is not None:
        for label in np.unique(labels):
            own = np.unique(joined[labels == label])
            if len(own) == 1:
                is_chain[own] = True
    has_parts = np.zeros(len(is_chain), bool)
    for number in np.flatnonzero(is_chain):
        has_parts[number] = len(np.unique(certain[joined == number])) > 1
    things = np.where(has_parts[joined], certain + len(is_chain), joined)
    return np.append(np.unique(things, return_inverse=True)[1], has_parts.sum()).astype("int64")


def _announce(seconds_a_photo, count, is_searched, log):
    """Logs how long the search will take, if that is long; returns whether it is."""
    seconds = seconds_a_photo * count
    seconds += is_searched * _SECONDS_A_PAIR * count**2 / usable_cores()
    is_long = seconds > _WORTH_A_LINE
    if is_long:
        log(
            f"things  {count:,} photos are compared with each other, which takes about "
            f"{tqdm.format_interval(seconds)}; --copies {IGNORED} leaves it out"
        )
    return is_long


def joined(
    groups: Mapping[str, int] | None, things: Mapping[str, int] | None
) -> Mapping[str, int] | None:
    """Returns groups in which images of one group, or of one thing, are together, by name."""
    if groups is None or things is None:
        return groups if things is None else things
    firsts: dict[int, int] = {}
    first_places = [firsts.setdefault(things[name], place) for place, name in enumerate(groups)]
    pairs = [Copy(first, place, EXACT) for place, first in enumerate(first_places)]
    numbers = joined_groups(len(groups), pairs, np.array([*groups.values()]))
    return dict(zip(groups, numbers.tolist(), strict=True))


def units_of(groups: Mapping[str, int] | None, things: Things | None) -> Mapping[str, int] | None:
    """Returns what is left out together: images of one group or thing, by name.

    Args:
        groups: The group of each image by its name; None where images are not grouped.
        things: Their things; None where they were not looked for.

    Returns:
        None where each image is alone.
    """
    if things is None or things.are_single:
        return groups
    return joined(groups, things.numbers)


def unit_numbers(examples: Examples, source: Source) -> np.ndarray:
    """Returns the number of what is left out with each of some images, from 0, int64 `(N,)`.

    An image that is drawn several times, or shares a group or a thing, is left out as a whole.

    Args:
        examples: Images of the source.
        source: It has the groups and the things.
    """
    units = units_of(source.groups, source.things) or {}
    names = [str(units.get(name, name)) for name in examples.names]
    return np.unique(names, return_inverse=True)[1]


def shown_in_training(splits: Mapping[str, Examples], things: Things, part: str) -> np.ndarray:
    """Returns whether each image of a part shows a thing of a training or validation image.

    Args:
        splits: The images by the name of their part.
        things: Their things.
        part: "test", "calibration" or "validation"; of the last, training images alone count.
    """
    before = ("train",) if part == "validation" else ("train", "validation")
    chosen = [things.of(splits[name]) for name in before if name in splits]
    return np.isin(things.of(splits[part]), [number for each in chosen for number in each])


def shown_before(
    source: Source,
    fingerprints: Mapping[str, np.ndarray | None],
    start: str | os.PathLike | None,
) -> tuple[np.ndarray | None, bool]:
    """Returns which test images show a thing that a run, or the run of its weights, has used.

    Args:
        source: The images of the run, with a part "test".
        fingerprints: The fingerprints of each part; see `read_fingerprints`.
        start: The folder of the weights that the run started from; None without one.

    Returns:
        Whether the runs trained on it or chose by it, bool `(N,)`, None where it is not known; and
        whether the images of the run of the weights are recorded.
    """
    numbers, seen = fingerprints.get("test"), []
    run, before = SplitRecord.of(fingerprints), SplitRecord.read(start)
    if source.things is not None:
        seen.append(shown_in_training(source.splits, source.things, "test"))
    if numbers is not None and run is not None:
        seen.append(run.has_seen(numbers))
    if numbers is not None and before is not None:
        contents = before.contents_of(source.splits["test"])
        if contents is not None:
            seen.append(before.has_seen(*contents))
    return (np.any(seen, axis=0) if seen else None), before is not None


def record_of(source: Source, fingerprints: Mapping[str, np.ndarray | None]) -> SplitRecord | None:
    """Returns the record of a run's images; None where their content is not known.

    Args:
        source: The images.
        fingerprints: The fingerprints of each part; see `read_fingerprints`.
    """
    record = SplitRecord.of(fingerprints, _pixel_fingerprints(source))
    if record is None:
        return None
    found = [np.array([], "uint64")]
    for part in ("calibration", "test"):
        numbers = fingerprints.get(part)
        if source.things is not None and numbers is not None:
            found.append(numbers[shown_in_training(source.splits, source.things, part)])
    return dataclasses.replace(record, shown=np.unique(np.concatenate(found)))


def _pixel_fingerprints(source):
    """The pixel fingerprints of each part, as the search for things has read them, or read now."""
    if source.things is None or source.things.pixels is None:
        return read_pixel_fingerprints(source.splits)
    pixels = source.things.pixels
    places = {name: place for place, name in enumerate(source.things.numbers)}
    numbers: dict[str, np.ndarray | None] = {}
    for part, examples in source.splits.items():
        own = [places.get(name, len(pixels)) for name in examples.names]
        if max(own, default=0) < len(pixels):
            numbers[part] = pixels[np.array(own, "int64")]
        else:  # With images of other data, which are replayed.
            numbers[part] = examples.pixel_fingerprints()
    return numbers


def lines_of_things(source: Source, spec: DataSpec) -> list[str]:
    """Returns the line on photos that show one thing; none of data without parts.

    Args:
        source: The images in parts.
        spec: Their data.
    """
    if source.things is not None:
        return [f"things  {source.things.line}"]
    return [f"things  {NOT_LOOKED_FOR}"] if spec.ignores_copies else []


def crossings(splits: Mapping[str, Examples], things: Things) -> list[str]:
    """Returns a line for each part with images of things that are trained on, or chosen by."""
    lines = []
    for part in PARTS[1:]:
        if part in splits and "train" in splits:
            count = int(shown_in_training(splits, things, part).sum())
            if count:
                total = len(splits[part])
                lines.append(
                    f"{count} of the {total} {part} images show things of which others are trained "
                    "on or chosen by"
                )
    return lines
