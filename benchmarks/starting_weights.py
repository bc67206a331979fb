"""How well the package's classifiers start the training of a classifier of photographs.

    python benchmarks/starting_weights.py OUTPUT [--weights KEY ...] [--steps 100] [--seeds 5]

A class is a photograph that scikit-image ships; its images are squares of 96 pixels and more, cut
from one half for training and from the other half for testing, so that no pixel is in both. The
training is the README's command with other seeds. Each difference from the first weights is within
a seed, so that the images are the same. Runs in OUTPUT are used again. Needs scikit-image.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import scipy.stats

from keras_vit import load_classifier
from keras_vit.checkpoints.catalogue import RELEASED
from keras_vit.training import FineTuning, finetune
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.utils.report import markdown_table

PHOTOGRAPHS = [
    "astronaut",
    "brick",
    "cat",
    "coffee",
    "coins",
    "grass",
    "gravel",
    "hubble_deep_field",
    "immunohistochemistry",
    "moon",
    "retina",
    "rocket",
]
SIDES = (96, 160)  # Pixels of the smallest and the largest square.
IMAGES = {"train": 20, "test": 100}  # In each class.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--weights", nargs="+", default=[row.key for row in RELEASED])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()

    accuracies: dict[str, list[float]] = {key: [] for key in arguments.weights}
    for seed in range(arguments.seeds):
        data = squares(seed)
        for key in arguments.weights:
            folder = arguments.output / f"{key}-{arguments.steps}-{seed}"
            if not folder.exists():
                settings = FineTuning(
                    model=None,
                    weights=key,
                    steps=arguments.steps,
                    batch_size=32,
                    seed=seed,
                    samples="none",
                )
                finetune(data, folder, settings, class_names=PHOTOGRAPHS, log=lambda text: None)
            report = evaluate_classifier(load_classifier(folder), data, split="test")
            accuracies[key].append(100 * report.top_1)
            print(key, seed, f"{accuracies[key][-1]:.1f}%", flush=True)
    base = np.array(accuracies[arguments.weights[0]])
    rows = [("weights", "test accuracy", "difference, 95% interval")]
    for key, values in accuracies.items():
        differences = values - base
        low, high = scipy.stats.t.interval(
            0.95, len(base) - 1, differences.mean(), scipy.stats.sem(differences)
        )
        difference = "" if key == arguments.weights[0] else f"{low:+.1f} to {high:+.1f}"
        rows.append((key, f"{np.mean(values):.1f}%", difference))
    print(markdown_table(rows))


def squares(seed):
    """Returns `{split: (images, class numbers)}`; which half is for testing depends on the seed."""
    from PIL import Image
    from skimage import data

    rng = np.random.default_rng(seed)
    found: dict[str, tuple[list, list]] = {split: ([], []) for split in IMAGES}
    for number, name in enumerate(PHOTOGRAPHS):
        photograph = Image.fromarray(getattr(data, name)()).convert("RGB")
        middle = photograph.width // 2
        halves = [(0, middle), (middle, photograph.width)]
        rng.shuffle(halves)
        for (split, count), (left, right) in zip(IMAGES.items(), halves, strict=True):
            for _ in range(count):
                side = rng.integers(SIDES[0], min(SIDES[1], right - left, photograph.height) + 1)
                x = rng.integers(left, right - side + 1)
                y = rng.integers(0, photograph.height - side + 1)
                square = photograph.crop((x, y, x + side, y + side)).resize((96, 96))
                found[split][0].append(np.asarray(square))
                found[split][1].append(number)
    return {
        split: (np.stack(images), np.array(labels)) for split, (images, labels) in found.items()
    }


if __name__ == "__main__":
    main()
