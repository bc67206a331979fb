"""Near-duplicates of test images in a training set.

The paper removes them from its pre-training data (section 4.1). Copies are found that were
re-encoded, resized, mirrored, cropped by up to 5% or changed in colour.

The fingerprints of the test images form an index in memory. The training images are read
once, so time grows with their number and memory does not. Two images are duplicates if
their pixels are equal, or if their perceptual hashes and their thumbnails are similar.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from keras_vit.images.listing import image_files
from keras_vit.images.transcoding import to_rgb, transcoded
from keras_vit.training.data import Examples, open_source
from keras_vit.training.evaluation.protocols import DUPLICATE_DISTANCE, DUPLICATE_SIMILARITY
from keras_vit.utils.files import atomic_write, write_csv, write_text

from .fingerprints import (
    NUM_VIEWS,
    THUMBNAIL,
    Fingerprint,
    HammingIndex,
    fingerprint_or_reason,
    similarity,
)

_FOLDERS = {"train": ("train", "training"), "test": ("test", "testing", "val", "validation")}

_BATCH = 256  # Training images looked up at once.


class Duplicate(NamedTuple):
    """A training image and the test image that it copies.

    Args:
        train: The training image's name.
        test: The test image's name.
        kind: "exact" if all pixels are equal, else "near".
        distance: Bits of 64 in which the nearest perceptual hashes differ.
        similarity: Correlation of the thumbnails, at most 1.
        mirrored: Whether the images mirror each other.
    """

    train: str
    test: str
    kind: str
    distance: int
    similarity: float
    mirrored: bool


class DuplicateIndex:
    """Fingerprints of test images, searched for copies.

    Args:
        names: Names of the images.
        fingerprints: Their fingerprints, with the mirrored views.
        distance: Largest distance of perceptual hashes, bits of 64.
        similarity: Smallest correlation of thumbnails, in [-1, 1].

    Raises:
        ValueError: If a threshold is out of range.
    """

    def __init__(
        self,
        names: Sequence[str],
        fingerprints: Sequence[Fingerprint],
        distance: int = DUPLICATE_DISTANCE,
        similarity: float = DUPLICATE_SIMILARITY,
    ):
        if not -1 <= similarity <= 1:
            raise ValueError(
                f"similarity must be a correlation, in [-1, 1]. Received: {similarity}"
            )
        self.names = list(names)
        self._similarity = similarity
        self._thumbnails = np.empty((len(names), THUMBNAIL, THUMBNAIL), np.uint8)
        hashes = np.empty((len(names), 2 * NUM_VIEWS), np.uint64)
        self._digests: dict[bytes, list[int]] = {}
        for index, image in enumerate(fingerprints):
            self._thumbnails[index] = image.thumbnail
            hashes[index] = image.hashes
            self._digests.setdefault(image.digest, []).append(index)
        self._views = HammingIndex(hashes.ravel(), distance)

    def find(self, names: Sequence[str], images: Sequence[Fingerprint]) -> list[Duplicate]:
        """Returns the duplicates among training images, in their order."""
        if not images or not self.names:
            return []
        hashes = np.concatenate([image.hashes[:NUM_VIEWS] for image in images])
        query, entry, bits = self._views.search(hashes)
        train, test, view = query // NUM_VIEWS, *np.divmod(entry, 2 * NUM_VIEWS)
        # The nearest views of a pair; ties go to the unmirrored one.
        order = np.lexsort((view, bits, test, train))
        candidates: dict[tuple[int, int], tuple[int, bool]] = {}
        for k in order:
            nearest = (int(bits[k]), bool(view[k] >= NUM_VIEWS))
            candidates.setdefault((int(train[k]), int(test[k])), nearest)
        exact = {
            (k, j) for k, image in enumerate(images) for j in self._digests.get(image.digest, ())
        }
        duplicates = []
        for i, j in sorted(exact | candidates.keys()):
            if (i, j) in exact:
                duplicates.append(Duplicate(names[i], self.names[j], "exact", 0, 1.0, False))
                continue
            distance, mirrored = candidates[i, j]
            thumbnail = self._thumbnails[j]
            correlation = similarity(
                images[i].thumbnail, thumbnail[:, ::-1] if mirrored else thumbnail
            )
            if correlation >= self._similarity:
                near = Duplicate(names[i], self.names[j], "near", distance, correlation, mirrored)
                duplicates.append(near)
        return duplicates


class SkippedImage(NamedTuple):
    """An unreadable image and the reason."""

    name: str
    reason: str


class ImageList:
    """Names and contents of the images of a folder, a CSV file or a TFDS data set.

    Labels are not needed.

    Args:
        data: A folder: its `train` or `test` subfolder if it has one, else all images in it
            and its subfolders. Or other data for `keras_vit.training.data.open_source`.
        part: "train" or "test".
        data_dir: The folder of TFDS, or the start of relative paths in a CSV file.

    Raises:
        ValueError: If the data do not exist or have no images.
    """

    def __init__(
        self, data: str | os.PathLike, part: str, data_dir: str | os.PathLike | None = None
    ):
        self._examples: Examples | None = None
        self._paths: dict[str, str] = {}
        if pathlib.Path(data).is_dir():
            folder = pathlib.Path(data)
            inside = next((folder / n for n in _FOLDERS[part] if (folder / n).is_dir()), None)
            root = folder if inside else folder.absolute().parent
            for path in image_files(inside or folder):
                # Starts with the folder's name, as exclusion lists match the ends of paths.
                self._paths[os.path.relpath(path, root)] = path
            return
        splits = open_source(
            data, data_dir=data_dir, holdout=0, verify=False, follow_symlinks=True
        ).splits
        self._examples = splits[part if part in splits else "train"]

    def __len__(self) -> int:
        return len(self._paths if self._examples is None else self._examples)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        if self._examples is None:
            for name, path in self._paths.items():
                yield name, pathlib.Path(path).read_bytes()
            return
        encoded = (image for image, _ in self._examples.encoded())
        yield from zip(self._examples.names, encoded, strict=True)

    @property
    def paths(self) -> dict[str, str] | None:
        """The image files by name; None if the images are not in separate files."""
        return None if self._examples is not None else self._paths

    def read(self, names: Iterable[str]) -> Callable[[str], bytes]:
        """Returns a function from a name to the content of that image.

        Args:
            names: The names that will be read. Images that are not in separate files are
                found in one pass over the data and kept in memory.
        """
        if self._examples is None:
            return lambda name: pathlib.Path(self._paths[name]).read_bytes()
        wanted = set(names)
        return {name: encoded for name, encoded in self if name in wanted}.__getitem__


def index_test_images(
    images: Iterable[tuple[str, bytes]],
    *,
    distance: int = DUPLICATE_DISTANCE,
    similarity: float = DUPLICATE_SIMILARITY,
    workers: int = 1,
    skipped: list[SkippedImage] | None = None,
) -> DuplicateIndex:
    """Returns the index of a test set.

    Args:
        images: Names and contents of image files.
        distance: See `DuplicateIndex`.
        similarity: See `DuplicateIndex`.
        workers: Processes that compute fingerprints.
        skipped: Receives unreadable images; if None they are errors.

    Raises:
        ValueError: If an image cannot be read, or a threshold is out of range.
    """
    names, fingerprints = [], []
    for name, image in _fingerprints(images, mirrored=True, workers=workers, skipped=skipped):
        names.append(name)
        fingerprints.append(image)
    return DuplicateIndex(names, fingerprints, distance, similarity)


def find_duplicates(
    images: Iterable[tuple[str, bytes]],
    index: DuplicateIndex,
    *,
    workers: int = 1,
    skipped: list[SkippedImage] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Duplicate]:
    """Yields the duplicates of test images among training images, in their order.

    Args:
        images: Names and contents of the training images, read once.
        index: The test images.
        workers: Processes that compute fingerprints.
        skipped: Receives unreadable images; if None they are errors.
        progress: Called with the number of images finished since the last call.

    Raises:
        ValueError: If an image cannot be read.
    """
    fingerprints = _fingerprints(images, mirrored=False, workers=workers, skipped=skipped)
    while batch := list(itertools.islice(fingerprints, _BATCH)):
        names, prints = zip(*batch, strict=True)
        yield from index.find(names, prints)
        if progress:
            progress(len(batch))


def write_results(
    output: str | os.PathLike,
    duplicates: Iterable[Duplicate],
    read_train: Callable[[Iterable[str]], Callable[[str], bytes]],
    read_test: Callable[[Iterable[str]], Callable[[str], bytes]],
    *,
    num_pictures: int = 48,
) -> list[pathlib.Path]:
    """Writes the names of the training images to leave out, the pairs as CSV and a picture.

    Args:
        output: The list, one name a line; a copy of several test images is in it once.
        duplicates: The pairs.
        read_train: Method `read` of the training images; see `ImageList`.
        read_test: The same of the test images.
        num_pictures: Pairs to draw: the least similar, which show whether the thresholds are
            right.

    Returns:
        The files written: the list, OUTPUT_pairs.csv and OUTPUT_pairs.png.
    """
    output, pairs = pathlib.Path(output), list(duplicates)
    table, picture = (output.with_name(f"{output.stem}_pairs{end}") for end in (".csv", ".png"))
    rounded = (pair._replace(similarity=round(pair.similarity, 4)) for pair in pairs)
    write_csv(table, [Duplicate._fields, *rounded])
    shown = sorted(pairs, key=lambda pair: (pair.similarity, -pair.distance))[:num_pictures]
    write_picture(
        picture,
        shown,
        read_train(pair.train for pair in shown),
        read_test(pair.test for pair in shown),
    )
    # Last: the list is what `--exclude` takes.
    write_text(output, "".join(f"{name}\n" for name in dict.fromkeys(p.train for p in pairs)))
    return [output, table, picture]


def write_picture(
    path: str | os.PathLike,
    duplicates: Sequence[Duplicate],
    read_train: Callable[[str], bytes],
    read_test: Callable[[str], bytes],
) -> None:
    """Draws pairs, the training image above the test image.

    Args:
        path: A PNG file.
        duplicates: The pairs.
        read_train: Gives the content of a training image by name.
        read_test: Gives the content of a test image by name.
    """
    side, gap, text, columns = 96, 8, 28, 12
    rows = max(1, -(-len(duplicates) // columns))
    cell = (side + gap, 2 * side + gap + text)
    page = Image.new("RGB", (columns * cell[0] + gap, rows * cell[1] + gap), "white")
    draw = ImageDraw.Draw(page)
    for k, pair in enumerate(duplicates):
        x, y = gap + k % columns * cell[0], gap + k // columns * cell[1]
        for row, encoded in enumerate((read_train(pair.train), read_test(pair.test))):
            with Image.open(io.BytesIO(transcoded(encoded))) as opened:
                image = to_rgb(ImageOps.exif_transpose(opened))
            page.paste(ImageOps.pad(image, (side, side), color="white"), (x, y + row * side))
        caption = pair.kind if pair.kind == "exact" else f"{pair.similarity:.3f}, {pair.distance}"
        draw.text((x, y + 2 * side), caption, fill="black")
        draw.text((x, y + 2 * side + text // 2 - 1), "mirrored" * pair.mirrored, fill="black")
    with atomic_write(path) as partial:
        page.save(partial, "PNG")


def _fingerprints(
    images: Iterable[tuple[str, bytes]],
    *,
    mirrored: bool,
    workers: int,
    skipped: list[SkippedImage] | None,
) -> Iterator[tuple[str, Fingerprint]]:
    tasks = ((name, encoded, mirrored) for name, encoded in images)
    with _mapping(workers) as mapping:
        for name, result in mapping(fingerprint_or_reason, tasks):
            if isinstance(result, Fingerprint):
                yield name, result
            elif skipped is None:
                raise ValueError(f"{name}: {result}")
            else:
                skipped.append(SkippedImage(name, result))


@contextlib.contextmanager
def _mapping(workers):
    if workers <= 1:
        yield map
        return
    # TensorFlow's threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield lambda function, tasks: _bounded(pool, function, tasks, 4 * workers)


def _bounded(pool, function, tasks, limit):
    """Maps in order with a bounded number of pending chunks, unlike `Pool.imap`."""
    ahead: list = []
    tasks = iter(tasks)
    while True:
        while len(ahead) < limit and (chunk := list(itertools.islice(tasks, 64))):
            ahead.append(pool.map_async(function, chunk))
        if not ahead:
            return
        yield from ahead.pop(0).get()
