"""A classifier that replaces another one: seeds of one recipe, and negative flips with a teacher.

    python benchmarks/updates.py seeds FOLDER
    python benchmarks/updates.py cure FOLDER

The data are scikit-learn's digits. The first command trains a linear probe with 21 seeds and
compares 20 of them with the first. The second trains small models from random weights: an old
classifier on 200 digits, and new ones on these and 399 others, alone and with the old one as their
teacher. Runs that are there are used again.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import time
from collections import Counter

import numpy as np

import keras_vit
from keras_vit.reports.report import markdown_table
from keras_vit.training import FineTuning, finetune
from keras_vit.training.trust import compare_classifiers

GATES = "top_1 > -0.5, negative_flips < 1%, class_recall > -3"
RECIPE = FineTuning(
    model=keras_vit.ViTConfig(2, 64, 4, 256, 4),
    weights=None,
    image_size=8,
    learning_rate=1e-3,
    steps=600,
    steps_per_execution=50,
    batch_size=32,
    accumulate=1,
    warmup_steps=50,
    optimizer="adam",
    augmentation="jitter",
    flip="never",
    validation=0.0,
    samples="none",
)
# A linear probe of the package's weights of CIFAR-10; its seeds differ in the batches alone.
PROBE = dataclasses.replace(
    RECIPE,
    model=None,
    weights="vit_mini4_cifar10",
    train="head",
    image_size=16,
    augmentation="none",
    learning_rate=1e-2,
    steps=300,
)
OLD_DIGITS = 200  # The first ones of 599, on which new classifiers are trained.
CURES = ("labels alone", "teacher")


def digits(training_third):
    """Returns training and test digits by part; every third digit is of one of them."""
    from sklearn.datasets import load_digits

    known = load_digits()
    images = np.round(known.images * (255 / 16)).astype("uint8")
    is_third = np.arange(len(images)) % 3 == 0
    trains = is_third if training_third else ~is_third
    return {
        part: (images[chosen], known.target[chosen])
        for part, chosen in (("train", trains), ("test", ~trains))
    }


def trained(folder, data, settings):
    """Returns the folder of a run, which is trained if it is not there."""
    if not folder.exists():
        names = [str(digit) for digit in range(10)]
        finetune(data, folder, settings, class_names=names, log=lambda text: None)
        print("trained", folder.name, flush=True)
    return folder


def seeds(folder: pathlib.Path, count: int) -> None:
    """Prints how often each gate holds, fails or is undecided between seeds of one recipe."""
    data = digits(training_third=False)
    runs = [
        trained(folder / f"seed-{seed}", data, dataclasses.replace(PROBE, seed=seed))
        for seed in range(count + 1)
    ]
    outcomes: dict[str, Counter] = {}
    overall, flips = Counter(), []
    for new in runs[1:]:
        found = compare_classifiers(runs[0], new, data, gate=GATES, split="test")
        overall[found.exit_code] += 1
        flips += [m.value for m in found.measures if m.metric == "negative_flips"]
        for verdict in found.verdicts:
            outcomes.setdefault(str(verdict.gate), Counter())[verdict.outcome] += 1
    for gate, counts in outcomes.items():
        print(gate, dict(counts))
    print(f"exit codes {dict(overall)}; negative flips {min(flips):.2f}% to {max(flips):.2f}%")


def cure(folder: pathlib.Path, count: int) -> None:
    """Prints the flips between an old classifier and new ones, for each seed."""
    data = digits(training_third=True)
    first = {**data, "train": tuple(part[:OLD_DIGITS] for part in data["train"])}
    old = trained(folder / "old", first, RECIPE)
    rows = [("NEW", "seed", "top-1, NEW minus OLD", "negative flips", "positive flips")]
    for kind in CURES:
        for seed in range(1, count + 1):
            given = {"teacher": str(old)} if kind == "teacher" else {}
            settings = dataclasses.replace(RECIPE, seed=seed, **given)
            name = f"{kind.replace(' ', '-')}-{seed}"
            new = trained(folder / name, data, settings)
            found = compare_classifiers(old, new, data, split="test")
            measures = {measure.metric: measure for measure in found.measures}
            shown = (measures[name] for name in ("top_1", "negative_flips", "positive_flips"))
            rows.append((kind, str(seed), *map(str, shown)))
    print(markdown_table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("seeds", "cure"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, help="20 or 3: runs of NEW, for each kind")
    arguments = parser.parse_args()
    start = time.process_time()
    if arguments.part == "seeds":
        seeds(arguments.folder, arguments.count or 20)
    else:
        cure(arguments.folder, arguments.count or 3)
    print(f"{time.process_time() - start:.0f} s of processor time")


if __name__ == "__main__":
    main()
