"""Images per second of `predict` and `evaluate`, decoding alone and the model alone.

    python benchmarks/predict_speed.py [--models NAME ...] [--images 3000] [--turns 2]

JPEG files of 640 x 480 pixels, gradients with noise (about 90 kB), in two folders. All four are
timed in turns in one process on the same files, without the start of TensorFlow. `predict` is what
the command does from the files to its text, `evaluate` what it does from the folder to its report.
Decoding and the model use the same cores: with d and m images per second alone, both together can
reach 1 / (1 / d + 1 / m), which is the last column's 1. `vit_mini4_cifar10` is in the package;
another name is a model with random weights and 224 pixels.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import tempfile
import time

from machine import describe

from keras_vit.reports.report import markdown_table

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DIFFERENT = 200  # Files; the others are links to them.
SIDES = ("decode", "model", "predict", "evaluate")
BATCH = 32


def main():
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["ViT-Ti/16", "vit_mini4_cifar10"])
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    print(describe("tensorflow", "keras"), "\n")
    rows = [["model", *SIDES, *SIDES, "of the slower", "", "of both together", ""]]
    rows.append(["", *["images/s"] * 4, *["processor ms"] * 4, *["predict", "evaluate"] * 2])
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            classifier = open_or_build(name)
            data = pathlib.Path(folder) / name.replace("/", "-")
            make_files(data, arguments.images, classifier.class_names[:2])
            # The first calls compile.
            few = data.with_name(f"{data.name} few")
            make_files(few, 2 * BATCH, classifier.class_names[:2])
            for step in sides(classifier, few, 2 * BATCH).values():
                step()
            rows.append([name, *measured(classifier, data, arguments.images, arguments.turns)])
    print(markdown_table(rows))


def open_or_build(name):
    """Returns a classifier in the package, or one with random weights."""
    import keras_vit
    from keras_vit.checkpoints.catalogue import RELEASED_NAMES
    from keras_vit.opening import open_predictor
    from keras_vit.predictor import Predictor
    from keras_vit.preprocessing import Preprocessing

    if name in RELEASED_NAMES:
        return open_predictor(name)
    names = [f"class {number}" for number in range(1000)]
    return Predictor(keras_vit.build(name), names, Preprocessing((224, 224)))


def make_files(folder, count, classes):
    """Writes JPEG files of gradients with noise, half of them in each of two folders."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:480, 0:640] / 640
    for number in range(count):
        path = folder / classes[number % 2] / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number >= DIFFERENT:
            place = number % DIFFERENT
            os.link(folder / classes[place % 2] / f"{place:06d}.jpg", path)
            continue
        waves = [np.sin(rng.uniform(3, 30) * x + rng.uniform(3, 30) * y) for _ in range(3)]
        pixels = 128 + 80 * np.stack(waves, -1) + rng.normal(0, 12, (480, 640, 3))
        Image.fromarray(pixels.clip(0, 255).astype("uint8")).save(path, quality=90)


def measured(classifier, data, count, turns):
    """Returns rates and processor time of the four sides, and ratios of the rates, as text."""
    steps = sides(classifier, data, count)
    rates = {side: [] for side in SIDES}
    processor = {side: [] for side in SIDES}
    for _ in range(turns):
        for side in SIDES:
            start = time.perf_counter(), time.process_time()
            steps[side]()
            rates[side].append(count / (time.perf_counter() - start[0]))
            processor[side].append((time.process_time() - start[1]) / count * 1000)
    ratios = []
    for bound in (min, lambda d, m: 1 / (1 / d + 1 / m)):
        for side in ("predict", "evaluate"):
            found = zip(rates[side], rates["decode"], rates["model"], strict=True)
            ratios.append(statistics.median(rate / bound(d, m) for rate, d, m in found))
    medians = (f"{statistics.median(rates[side]):,.0f}" for side in SIDES)
    times = (f"{statistics.median(processor[side]):.2f}" for side in SIDES)
    return [*medians, *times, *(f"{ratio:.2f}" for ratio in ratios)]


def sides(classifier, data, count):
    """Returns the function of each side; all do the same images."""
    from keras_vit.commands.predict import WRITERS
    from keras_vit.images.listing import image_files
    from keras_vit.models.outputs import predict_batch
    from keras_vit.training.data import evaluation_batches, open_source
    from keras_vit.training.evaluation.classification import evaluate_classifier

    examples = open_source(data, holdout=0, verify=False).splits["train"]
    batches = evaluation_batches(examples, preprocessing=classifier.preprocessing, batch_size=BATCH)
    ready = [images for images, _ in batches.take(4)]

    def decode():
        for _ in batches:
            pass

    def compute():
        for number in range(count // BATCH):
            predict_batch(classifier.model, ready[number % len(ready)])

    def predict():
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            WRITERS["text"](classifier.stream(image_files(data), 5, BATCH), several=False)

    return {
        "decode": decode,
        "model": compute,
        "predict": predict,
        "evaluate": lambda: evaluate_classifier(classifier, data),
    }


if __name__ == "__main__":
    main()
