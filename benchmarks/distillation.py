"""Digits from few labels, alone and with a teacher; docs/results.md has the numbers.

    python benchmarks/distillation.py FOLDER

The teacher learns 1,198 of scikit-learn's digits of 8x8 pixels, the students (ViT-Mini/4) 40 of
them. A seed chooses the 40, the weights and the order. A teacher that is there is used again.
"""

import pathlib
import statistics
import sys
import time

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training import FineTuning, finetune

SEEDS = 3
LABELS = 4  # Labelled images of each digit.
COMMON = {
    "weights": None,
    "image_size": 8,
    "accumulate": 1,
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "augmentation": "jitter",
    "validation": 0.0,
}
TEACHER = FineTuning(
    model=keras_vit.ViTConfig(4, 192, 6, 768, 3), steps=400, batch_size=64, **COMMON
)
STUDENT = {"model": "ViT-Mini/4", "steps": 400, "batch_size": 40, "mixup": 0.5, **COMMON}
KINDS = {"alone": {}, "soft": {"distillation_weight": 0.9}, "hard": {"distillation": "hard"}}


def write(folder, images, labels):
    """Writes the digits as PNG files, `DIGIT/NUMBER.png`."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / str(label) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.round(image * (255 / 16)).astype("uint8")).save(path)


def accuracy(data, output, settings):
    """Trains and returns the accuracy on the test images, in percent."""
    return 100 * finetune(data, output, settings, log=lambda text: None).report.top_1


def main(folder):
    """Trains the teacher and the students, and prints a table."""
    digits, start = load_digits(), time.monotonic()
    is_test = np.arange(len(digits.images)) % 3 == 0
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)

    def data(name, chosen):
        for part, numbers in (("train", chosen), ("test", test)):
            write(folder / name / part, digits.images[numbers], digits.target[numbers])
        return folder / name

    teacher = folder / "teacher"
    if not teacher.exists():
        top_1 = accuracy(data("all", train), teacher, TEACHER)
        print(f"teacher, {len(train)} labels: {top_1:.2f}%", flush=True)
    results = {kind: [] for kind in KINDS}
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(train)
        few = [order[digits.target[order] == digit][:LABELS] for digit in range(10)]
        images = data(f"few-{seed}", np.concatenate(few))
        for kind, changes in KINDS.items():
            given = {"teacher": str(teacher), **changes} if changes else {}
            settings = FineTuning(**STUDENT, **given, seed=seed)
            results[kind].append(accuracy(images, folder / f"{kind}-{seed}", settings))
            print(f"seed {seed}, {kind}: {results[kind][-1]:.2f}%", flush=True)
    for kind, found in results.items():
        mean, deviation = statistics.mean(found), statistics.stdev(found)
        print(f"{kind}: {mean:.2f} ± {deviation:.2f}%")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
