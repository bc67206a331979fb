"""Size, agreement and speed of a model's TFLite files.

    python benchmarks/tflite.py [MODEL] [--images 64] [--rounds 15]

Prints one table; the files take turns. The weights are random, with the official initialisation
and a random head: speed does not depend on them. The images are scikit-learn's digits, at the
model's size.
"""

import argparse
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import PIL.Image
from ai_edge_litert.interpreter import Interpreter
from sklearn.datasets import load_digits

from keras_vit.training.machine import describe

PRECISIONS = ("float32", "float16", "dynamic_int8", "int8")
WARM_UP_ROUNDS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="ViT-B/16")
    parser.add_argument("--images", type=int, default=64, help="checked on")
    parser.add_argument("--rounds", type=int, default=15, help="timed calls of each file")
    arguments = parser.parse_args()

    import keras

    import keras_vit.export
    from keras_vit.classifier import Classifier
    from keras_vit.preprocessing import Preprocessing

    keras.utils.set_random_seed(0)
    model = keras_vit.build(arguments.model)
    head = model.get_layer("predictions").kernel
    head.assign(np.random.default_rng(0).normal(size=head.shape) * head.shape[0] ** -0.5)
    size = model.input_shape[1:3]
    classifier = Classifier(model, [str(label) for label in range(1000)], Preprocessing(size))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for index, digit in enumerate(load_digits().images[: arguments.images]):
            picture = PIL.Image.fromarray((digit * 255 / 16).astype("uint8"))
            picture.resize(size[::-1], PIL.Image.BICUBIC).save(folder / f"{index}.png")
        reports = [
            keras_vit.export.tflite(
                classifier,
                folder / f"{precision}.tflite",
                precision=precision,
                check_images=folder,
                minimum_agreement=0,
            )
            for precision in PRECISIONS
        ]
        seconds = interleaved([report.path for report in reports], arguments.rounds, size)
    print(describe("tensorflow", "keras", "ai-edge-litert", "ai-edge-quantizer"))
    print(f"{arguments.model}, batch 1, {os.cpu_count()} threads")
    print(f"{'precision':<14}{'MB':>8}{'agreement':>11}{'mean':>10}{'ms':>8}{'times float32':>15}")
    for precision, report, times in zip(PRECISIONS, reports, seconds.T, strict=True):
        print(
            f"{precision:<14}{report.size / 1e6:>8.1f}{report.agreement:>11.1%}"
            f"{report.checks[0].mean_difference:>10.1e}{1000 * np.median(times):>8.1f}"
            f"{np.median(seconds[:, 0] / times):>15.2f}"
        )


def interleaved(paths, rounds, size):
    """Returns seconds of single calls `(rounds, files)`, the files taking turns."""
    interpreters = [Interpreter(path, num_threads=os.cpu_count()) for path in paths]
    runs = [interpreter.get_signature_runner("serve") for interpreter in interpreters]
    images = np.random.default_rng(0).uniform(-1, 1, (1, *size, 3)).astype("float32")
    seconds = np.zeros((rounds + WARM_UP_ROUNDS, len(runs)))
    for row in seconds:
        for index, run in enumerate(runs):
            start = time.perf_counter()
            run(images=images)
            row[index] = time.perf_counter() - start
    return seconds[WARM_UP_ROUNDS:]


if __name__ == "__main__":
    main()
