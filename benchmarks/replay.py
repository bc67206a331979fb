"""Digits 0 to 7, then 8 and 9, with and without replay; docs/results.md has the numbers.

    python benchmarks/replay.py FOLDER

scikit-learn's digits of 8x8 pixels; a quarter of them are test images. A seed chooses weights and
order, and the same seeds begin from the same classifier of the digits 0 to 7.
"""

import pathlib
import statistics
import sys
import time

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training import FineTuning, PreTraining, finetune, pretrain

SEEDS = 3
OLD, NEW = "01234567", "89"
COMMON = {
    "batch_size": 64,
    "accumulate": 1,
    "image_size": (8, 8),
    "augmentation": "none",
    "validation": 0.0,
}
FIRST = {
    "model": keras_vit.ViTConfig(2, 48, 3, 96, 3),
    "steps": 600,
    "warmup_steps": 50,
    "evaluate_every": 600,
    "learning_rate": 2e-3,
    "weight_decay": 0.05,
    "dropout_rate": 0.0,
    **COMMON,
}
SECOND = {
    "steps": 1000,
    "warmup_steps": 20,
    "evaluate_every": 1000,
    "learning_rate": 0.03,
    "head": "extend",
    **COMMON,
}


def write(folder):
    """Writes the digits as PNG files, `{old,new}/{train,test}/DIGIT/NUMBER.png`."""
    digits = load_digits()
    is_test = np.random.default_rng(0).permutation(len(digits.target)) % 4 == 0
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        data, part = "old" if str(label) in OLD else "new", "test" if is_test[number] else "train"
        path = folder / data / part / str(label) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9).astype("uint8")).save(path)


def accuracy(classifier, folder, names):
    """Returns the accuracy on the test images of some digits, in percent."""
    right = [
        prediction.top[0][0] == name
        for name in names
        for prediction in classifier.predict(folder / "test" / name)
    ]
    return 100 * statistics.mean(right)


def main(folder):
    """Trains on the old digits, then on the new ones, and prints a table."""
    write(folder)
    old, new, start = folder / "old", folder / "new", time.monotonic()
    kinds = {
        "no replay": {},
        "replay, share 0.8": {"replay": str(old), "replay_share": 0.8},
    }
    results = {}
    for seed in range(SEEDS):
        first = folder / f"first-{seed}"
        pretrain(old, first, PreTraining(**FIRST, seed=seed), log=lambda text: None)
        base = keras_vit.load_classifier(first)
        results.setdefault("before: old", []).append(accuracy(base, old, OLD))
        for kind, changes in kinds.items():
            settings = FineTuning(weights=str(first), **SECOND, **changes, seed=seed)
            done = finetune(new, folder / f"{kind}-{seed}", settings, log=lambda text: None)
            for digits, data, names in (("old", old, OLD), ("new", new, NEW)):
                found = accuracy(done.classifier, data, names)
                results.setdefault(f"{kind}: {digits}", []).append(found)
    for kind, found in results.items():
        each = ", ".join(f"{value:.1f}" for value in found)
        print(f"{kind}: {statistics.mean(found):.2f} ± {statistics.stdev(found):.2f}% ({each})")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
