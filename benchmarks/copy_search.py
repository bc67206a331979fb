"""Time, memory and recall of `check`'s search for copies, among photos of a fixed camera or others.

    python benchmarks/copy_search.py FOLDER [FOLDER ...] [--counts 1000 3000 10000] [--planted 50]

The photos are the files of the folders, each once, then with another crop, light and JPEG quality
until there are enough: 8% to 20% are cut off, more than a copy lacks. Copies are planted that are
resized, cropped by 5%, recompressed, brightened, turned, and all of it but turned. `fingerprints`
is the time to read all photos.
"""

import argparse
import io
import pathlib
import resource
import time

import numpy as np
from PIL import Image, ImageEnhance

from keras_vit.reports.report import markdown_table
from keras_vit.training.data.copies import find_copies, photo_print

SIDE = 300  # Pixels of larger photos and of crops.


def recompressed(image, quality):
    content = io.BytesIO()
    image.save(content, "JPEG", quality=quality)
    return Image.open(content).convert("RGB")


def cropped(image, rng, low=0.05, high=0.05):
    """Returns an image without a share of each side, at any place."""
    width, height = image.size
    lack = rng.uniform(low, high)
    across, down = round(lack * width), round(lack * height)
    left, top = rng.integers(0, across + 1), rng.integers(0, down + 1)
    return image.crop((left, top, left + width - across, top + height - down))


def brightened(image, _):
    return ImageEnhance.Brightness(image).enhance(1.15)


PLANTED = {
    "resized": lambda image, _: image.resize((image.width // 2, image.height // 2)),
    "cropped by 5%": cropped,
    "recompressed": lambda image, _: recompressed(image, 70),
    "brightened": brightened,
    "turned by a quarter": lambda image, _: image.transpose(Image.Transpose.ROTATE_90),
    "upside down": lambda image, _: recompressed(image.transpose(Image.Transpose.ROTATE_180), 85),
    "all": lambda image, rng: recompressed(
        brightened(cropped(image, rng), rng).resize((image.width // 2, image.height // 2)), 75
    ),
}


def is_whole(file):
    """Returns whether an image file can be read to its end."""
    try:
        Image.open(file).load()
    except OSError:
        return False
    return True


def peak():
    """Returns the largest memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def drawn_prints(files, count):
    """Returns fingerprints of photos and of changed ones, and the seconds of the processor."""
    rng, prints, began = np.random.default_rng(0), [], time.process_time()
    for number in range(count):
        image = Image.open(files[number % len(files)]).convert("RGB")
        if number >= len(files):
            image = cropped(image, rng, 0.08, 0.2).resize((min(SIDE, image.width),) * 2)
            image = ImageEnhance.Brightness(image).enhance(rng.uniform(0.7, 1.0))
            image = recompressed(image, int(rng.integers(60, 95)))
        prints.append(photo_print(image))
    return prints, time.process_time() - began


def main():
    """Prints a table of the time, and one of the planted copies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--counts", nargs="*", type=int, default=[1000, 3000, 10_000])
    parser.add_argument("--planted", type=int, default=50)
    arguments = parser.parse_args()
    folders = arguments.folders
    files = sorted(
        file
        for folder in folders
        for file in folder.rglob("*")
        if file.suffix.lower() in (".png", ".jpg", ".jpeg") and is_whole(file)
    )
    rng, rows = np.random.default_rng(1), []
    imports = peak()
    prints, seconds = drawn_prints(files, max([0, *arguments.counts]))
    for count in arguments.counts:
        wall, processor = time.time(), time.process_time()
        found = find_copies(prints[:count])
        wall, processor = time.time() - wall, time.process_time() - processor
        times = (f"{seconds * count / len(prints):.0f}", f"{processor:.0f}", f"{wall:.0f}")
        rows.append(
            (
                f"{count:,}",
                *times,
                f"{peak() - imports:.2f}",
                str(len(found.pairs)),
                f"{found.fixed:,}",
            )
        )
    columns = ("photos", "fingerprints, CPU s", "CPU s", "seconds", "GiB", "pairs", "fixed camera")
    if rows:
        print(f"GiB are those beyond the {imports:.2f} of the process after its imports.")
        print(markdown_table([columns, *rows]), "\n", flush=True)

    own = [photo_print(Image.open(file).convert("RGB")) for file in files]
    chosen = rng.permutation(len(files))[: arguments.planted * len(PLANTED)]
    copies, kinds = [], []
    for place, number in enumerate(chosen):
        kind = list(PLANTED)[place % len(PLANTED)]
        copies.append(photo_print(PLANTED[kind](Image.open(files[number]).convert("RGB"), rng)))
        kinds.append(kind)
    alone = find_copies(own).pairs
    pairs = {(pair.first, pair.second) for pair in find_copies([*own, *copies]).pairs}
    planted = [(int(number), len(own) + place) for place, number in enumerate(chosen)]
    rows = [("without planted ones", f"{len(alone)} pairs")]
    for kind in PLANTED:
        of_kind = [pair for pair, name in zip(planted, kinds, strict=True) if name == kind]
        rows.append((kind, f"{len(pairs.intersection(of_kind))} of {len(of_kind)}"))
    rows.append(("other pairs", str(len(pairs.difference(planted)))))
    print(markdown_table([(f"{len(files):,} photos", "found"), *rows]))


if __name__ == "__main__":
    main()
