"""A classifier that replaces another one: seeds of one recipe, and negative flips with a teacher.

    python benchmarks/updates.py seeds FOLDER
    python benchmarks/updates.py cure FOLDER --data cifar10-images

The first command trains one recipe on scikit-learn's digits with 21 seeds and compares 20 of them
with the first. The second trains an old classifier on 5,000 images of CIFAR-10 and new ones on
these and 5,000 others, alone and with the old one as their teacher. Runs that are there are used
again.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import time
from collections import Counter

import numpy as np
from PIL import Image

import keras_vit
from keras_vit.images.listing import image_files
from keras_vit.training import FineTuning, finetune
from keras_vit.training.comparison import compare_classifiers
from keras_vit.utils.text_tables import markdown_table

GATES = "top_1 > -0.5, negative_flips < 1%, class_recall > -3"
COMMON = {"accumulate": 1, "optimizer": "adam", "validation": 0.0, "samples": "none"}
DIGITS = FineTuning(
    model=keras_vit.ViTConfig(2, 64, 4, 256, 4),
    weights=None,
    learning_rate=1e-3,
    image_size=8,
    steps=600,
    batch_size=32,
    warmup_steps=50,
    augmentation="jitter",
    flip="never",
    **COMMON,
)
CIFAR = FineTuning(
    model=keras_vit.ViTConfig(4, 96, 4, 384, 3),
    weights=None,
    learning_rate=1e-3,
    image_size=16,
    steps=500,
    batch_size=100,
    augmentation="padded_crop",
    **COMMON,
)
SIDE = 16  # Pixels of CIFAR-10's images, reduced from 32.
OLD_IMAGES, NEW_IMAGES = 5000, 10_000
CURES = {
    "labels alone": {},
    "teacher": {},
    "teacher, focus 5": {"distillation_focus": 5.0},
}


def trained(folder, data, names, settings):
    """Returns the folder of a run, which is trained if it is not there."""
    if not folder.exists():
        finetune(data, folder, settings, class_names=names, log=lambda text: None)
        print("trained", folder.name, flush=True)
    return folder


def seeds(folder: pathlib.Path, count: int) -> None:
    """Prints how often each gate holds, fails or is undecided between seeds of one recipe."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype("uint8")
    is_test = np.arange(len(images)) % 3 == 0
    data = {
        part: (images[chosen], digits.target[chosen])
        for part, chosen in (("train", ~is_test), ("test", is_test))
    }
    names = [str(digit) for digit in range(10)]
    runs = [
        trained(folder / f"seed-{seed}", data, names, dataclasses.replace(DIGITS, seed=seed))
        for seed in range(count + 1)
    ]
    outcomes: dict[str, Counter] = {}
    overall, flips = Counter(), []
    for new in runs[1:]:
        found = compare_classifiers(runs[0], new, data, gate=GATES, split="test")
        overall[found.exit_code] += 1
        flips.append(found.measures[1].value)
        for verdict in found.verdicts:
            outcomes.setdefault(str(verdict.gate), Counter())[verdict.outcome] += 1
    for gate, counts in outcomes.items():
        print(gate, dict(counts))
    print(f"exit codes {dict(overall)}; negative flips {min(flips):.2f}% to {max(flips):.2f}%")


def cure(folder: pathlib.Path, data: str, count: int) -> None:
    """Prints the flips between an old classifier and new ones, for each seed."""
    names = sorted(path.name for path in (pathlib.Path(data) / "train").iterdir())
    train, test = read(data, "train", NEW_IMAGES, names), read(data, "test", None, names)
    first = tuple(part[:OLD_IMAGES] for part in train)
    old = trained(folder / "old", {"train": first, "test": test}, names, CIFAR)
    rows = [("NEW", "seed", "top-1, NEW minus OLD", "negative flips", "positive flips")]
    for kind, changes in CURES.items():
        for seed in range(1, count + 1):
            given = {"teacher": str(old), **changes} if kind != "labels alone" else {}
            settings = dataclasses.replace(CIFAR, seed=seed, **given)
            name = f"{kind.replace(', ', '-').replace(' ', '-')}-{seed}"
            new = trained(folder / name, {"train": train, "test": test}, names, settings)
            found = compare_classifiers(old, new, {"test": test}, split="test", batch_size=500)
            measures = {measure.metric: measure for measure in found.measures}
            shown = (measures[name] for name in ("top_1", "negative_flips", "positive_flips"))
            rows.append((kind, str(seed), *map(str, shown)))
    print(markdown_table(rows))


def read(data, part, count, names):
    """Returns images of 16 pixels and their class numbers, in an order of chance."""
    files = image_files(f"{data}/{part}")
    files = [files[k] for k in np.random.default_rng(0).permutation(len(files))[:count]]
    images = [Image.open(file).convert("RGB").reduce(32 // SIDE) for file in files]
    labels = [names.index(pathlib.Path(file).parent.name) for file in files]
    return np.stack([np.asarray(image) for image in images]), np.array(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("seeds", "cure"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--count", type=int, help="20 or 3: runs of NEW, for each kind")
    arguments = parser.parse_args()
    start = time.process_time()
    if arguments.part == "seeds":
        seeds(arguments.folder, arguments.count or 20)
    else:
        cure(arguments.folder, arguments.data, arguments.count or 3)
    print(f"{time.process_time() - start:.0f} s of processor time")


if __name__ == "__main__":
    main()
