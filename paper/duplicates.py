"""Copies of test images in a training set, which the paper removes before pre-training (4.1).

    python paper/duplicates.py --train tfds:imagenet2012 --test photos --output copies.txt
    keras-vit pretrain --data tfds:imagenet2012 --exclude copies.txt --output runs/b16

Both are what `keras-vit finetune --data` takes, or folders with images in any subfolders. Writes
the names of the training images to leave out, a table of the pairs (OUTPUT_pairs.csv) and a picture
of the least similar ones (OUTPUT_pairs.png), which shows whether the two limits suit the data.

The test images are an index in memory, about 2 kB each. The training images are read once, so that
time grows with their number and memory does not.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import multiprocessing
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from perceptual_hashes import (
    LEAST_SIMILARITY,
    MAX_DISTANCE,
    Duplicate,
    DuplicateIndex,
    Fingerprint,
    fingerprint,
)
from PIL import Image, ImageDraw, ImageOps
from tqdm import tqdm

from keras_vit.training.data import Examples, open_source

CHUNK = 64  # Images that a process gets at once.
LOOKED_UP = 256  # Training images looked up at once.
NUM_DRAWN = 48  # Pairs, the least similar first.


def main(arguments: Sequence[str] | None = None) -> None:
    """Finds the pairs and writes the list, the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--data-dir")
    parser.add_argument("--distance", type=int, default=MAX_DISTANCE, help="bits of 64")
    parser.add_argument("--similarity", type=float, default=LEAST_SIMILARITY)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args(arguments)
    train = open_images(given.train, "train", given.data_dir)
    test = open_images(given.test, "test", given.data_dir)
    skipped: dict[str, str] = {}
    known = dict(fingerprints(test, given.workers, skipped, mirrored=True))
    index = DuplicateIndex(list(known), list(known.values()), given.distance, given.similarity)
    found = tqdm(
        fingerprints(train, given.workers, skipped), "duplicates", len(train), unit="image"
    )
    pairs = list(find_duplicates(found, index))
    write_results(given.output, pairs, train, test)
    copies, copied = {pair.train for pair in pairs}, {pair.test for pair in pairs}
    print(
        f"{len(copies)} of {len(train)} training images are copies of {len(copied)} of {len(test)} "
        f"test images ({len(pairs)} pairs, {sum(pair.kind == 'exact' for pair in pairs)} exact)"
    )
    for name, reason in skipped.items():
        print(f"left out: {name}: {reason}")


def open_images(data: str, part: str, data_dir: str | None = None) -> Examples:
    """Returns the images of a part of the data, all of them if the data have no parts."""
    source = open_source(
        data, data_dir=data_dir, holdout=0, verify=False, labelled=False, follow_symlinks=True
    )
    return source.splits.get(part) or source.splits["train"]


def fingerprints(
    images: Examples, workers: int, skipped: dict[str, str], mirrored: bool = False
) -> Iterator[tuple[str, Fingerprint]]:
    """Yields the names and fingerprints of images in their order; unreadable ones are skipped."""
    tasks = (
        (name, encoded, mirrored)
        for name, (encoded, _) in zip(images.names, images.encoded(), strict=True)
    )
    if workers > 1:  # Spawned, as TensorFlow's threads do not survive a fork.
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            yield from readable(bounded(pool, tasks, 4 * workers), skipped)
    else:
        yield from readable(map(fingerprint_or_reason, tasks), skipped)


def fingerprint_or_reason(task: tuple[str, bytes, bool]) -> tuple[str, Fingerprint | str]:
    """Returns an image's name with its fingerprint, or with the reason why it is unreadable."""
    name, encoded, mirrored = task
    try:
        return name, fingerprint(encoded, mirrored)
    except ValueError as error:
        return name, str(error)


def readable(found, skipped):
    """Yields what has a fingerprint, and notes the reasons of the others."""
    for name, result in found:
        if isinstance(result, Fingerprint):
            yield name, result
        else:
            skipped[name] = result


def bounded(pool, tasks, limit):
    """Maps in order with a bounded number of pending chunks, unlike `Pool.imap`."""
    pending: list = []
    for chunk in iter(lambda: list(itertools.islice(tasks, CHUNK)), []):
        pending.append(pool.map_async(fingerprint_or_reason, chunk))
        if len(pending) == limit:
            yield from pending.pop(0).get()
    for started in pending:
        yield from started.get()


def find_duplicates(
    training: Iterable[tuple[str, Fingerprint]], index: DuplicateIndex
) -> Iterator[Duplicate]:
    """Yields the copies of test images among training images, in their order."""
    batch: list[tuple[str, Fingerprint]] = []
    for image in training:
        batch.append(image)
        if len(batch) == LOOKED_UP:
            yield from index.find(*zip(*batch, strict=True))
            batch = []
    if batch:
        yield from index.find(*zip(*batch, strict=True))


def write_results(
    output: pathlib.Path, pairs: Sequence[Duplicate], train: Examples, test: Examples
) -> None:
    """Writes the pairs as a table and a picture, then the list that `--exclude` takes."""
    with output.with_name(f"{output.stem}_pairs.csv").open(
        "w", newline="", encoding="utf-8"
    ) as file:
        rounded = (pair._replace(similarity=round(pair.similarity, 4)) for pair in pairs)
        csv.writer(file).writerows([Duplicate._fields, *rounded])
    shown = sorted(pairs, key=lambda pair: (pair.similarity, -pair.distance))[:NUM_DRAWN]
    picture = draw(
        shown,
        contents(train, {pair.train for pair in shown}),
        contents(test, {pair.test for pair in shown}),
    )
    picture.save(output.with_name(f"{output.stem}_pairs.png"))
    names = dict.fromkeys(pair.train for pair in pairs)
    output.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def contents(images: Examples, wanted: set[str]) -> Mapping[str, bytes]:
    """Returns the content of some images by name."""
    places = [place for place, name in enumerate(images.names) if name in wanted]
    some = images.take(places)
    return {name: encoded for name, (encoded, _) in zip(some.names, some.encoded(), strict=True)}


def draw(
    pairs: Sequence[Duplicate], train: Mapping[str, bytes], test: Mapping[str, bytes]
) -> Image.Image:
    """Returns a picture of pairs, the training image above the test image."""
    side, gap, text, columns = 96, 8, 28, 12
    rows = max(1, -(-len(pairs) // columns))
    cell = (side + gap, 2 * side + gap + text)
    page = Image.new("RGB", (columns * cell[0] + gap, rows * cell[1] + gap), "white")
    pen = ImageDraw.Draw(page)
    for k, pair in enumerate(pairs):
        x, y = gap + k % columns * cell[0], gap + k // columns * cell[1]
        for row, encoded in enumerate((train[pair.train], test[pair.test])):
            with Image.open(io.BytesIO(encoded)) as opened:
                image = ImageOps.exif_transpose(opened).convert("RGB")
            page.paste(ImageOps.pad(image, (side, side), color="white"), (x, y + row * side))
        caption = pair.kind if pair.kind == "exact" else f"{pair.similarity:.3f}, {pair.distance}"
        pen.text((x, y + 2 * side), caption, fill="black")
        pen.text((x, y + 2 * side + text // 2 - 1), "mirrored" * pair.mirrored, fill="black")
    return page


if __name__ == "__main__":
    main()
