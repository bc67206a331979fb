"""The default of `finetune` beside a linear probe, the paper's recipe, a sweep and a plain fit.

    python benchmarks/defaults.py OUTPUT [--weights KEY] [--sets NAME ...] [--data CIFAR10]

Each set has few images to train on, drawn by the seed, and all rows see the same images and as many
steps of 32:

    start    the rows of the weights' own head, where the weights know the classes
    probe    `--train head` from the linear probe, before its first step
    default  `finetune` without options
    paper    a row of Table 4: a head of zeros, rate 0.01, crops, the last step
    sweep    the best of twelve on the test images: four rates, all weights with and without the
             crops, and the head alone, from a head of zeros as in the paper
    keras    KerasHub's default from the same weights: `fit` with Adam(5e-5), a random head

`--data` is a folder with CIFAR-10's test images in classes, as the weights have seen the others.
The digits come with scikit-learn and OpenCV (Debian's `opencv-doc`), Fashion-MNIST with Debian's
`dataset-fashion-mnist`, the faces and the photographs, of which parts are cut out, with
scikit-image. Finished runs in OUTPUT are used again. Needs scikit-image and scikit-learn.
"""

import argparse
import gzip
import json
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit.images.listing import image_files
from keras_vit.reports.report import markdown_table
from keras_vit.training import FineTuning, finetune
from keras_vit.utils.intervals import wilson_interval

BATCH = 32
RATES = (0.001, 0.003, 0.01, 0.03)
CIFAR_10 = tuple(keras_vit.load_classifier("vit_mini4_cifar10").class_names)
SYSTEM = pathlib.Path("/usr/share")
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
ROWS = ("start", "probe", "default", "paper", "sweep", "keras")


def digits():
    """scikit-learn's handwritten digits of 8 x 8 pixels, and their numbers."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return (found.images * 255 / 16).astype("uint8"), found.target


def opencv_digits():
    """OpenCV's handwritten digits of 20 x 20 pixels: 500 of each in rows of one sheet."""
    sheet = Image.open(SYSTEM / "doc/opencv-doc/examples/data/digits.png").convert("L")
    cells = np.asarray(sheet).reshape(50, 20, 100, 20).transpose(0, 2, 1, 3)
    return cells.reshape(-1, 20, 20), np.repeat(np.arange(10), 500)


def fashion():
    """Fashion-MNIST's clothes of 28 x 28 pixels."""
    images, labels = (
        gzip.decompress((SYSTEM / f"datasets/fashion-mnist/train-{name}-ubyte.gz").read_bytes())
        for name in ("images-idx3", "labels-idx1")
    )
    pixels = np.frombuffer(images, "uint8", offset=16).reshape(-1, 28, 28)
    return pixels, np.frombuffer(labels, "uint8", offset=8).astype("int64")


def faces():
    """scikit-image's 100 faces and 100 other parts of photographs, 25 x 25 pixels."""
    from skimage.data import lfw_subset

    images = lfw_subset()
    return (255 * images / images.max()).astype("uint8"), np.repeat([1, 0], 100)


def photographs():
    """Squares of twelve photographs, 96 to 160 pixels wide; the left halves come first."""
    from skimage import data

    rng, images, labels = np.random.default_rng(0), [], []
    for half in (0, 1):
        for number, name in enumerate(PHOTOGRAPHS):
            photograph = Image.fromarray(getattr(data, name)()).convert("RGB")
            middle = photograph.width // 2
            for _ in range((20, 80)[half]):
                side = rng.integers(96, min(160, middle, photograph.height) + 1)
                x = half * middle + rng.integers(0, middle - side + 1)
                y = rng.integers(0, photograph.height - side + 1)
                images.append(
                    np.asarray(photograph.crop((x, y, x + side, y + side)).resize((96, 96)))
                )
                labels.append(number)
    return np.stack(images), np.array(labels)


def cifar(folder, names):
    """CIFAR-10's images of some classes in a folder."""
    files = [sorted(image_files(folder / name)) for name in names]
    pixels = [np.asarray(Image.open(file).convert("RGB")) for some in files for file in some]
    return np.stack(pixels), np.repeat(np.arange(len(names)), [len(some) for some in files])


def sets(data):
    """By name: the images and labels, training images of each class, and the classes' names."""
    found = {
        "digits, 10 x 30": (digits, 30, None),
        "OpenCV's digits, 10 x 20": (opencv_digits, 20, None),
        "Fashion-MNIST, 10 x 100": (fashion, 100, None),
        "faces, 2 x 40": (faces, 40, None),
        "photographs, 12 x 20": (photographs, 20, None),
    }
    if data is not None:
        three = ("cat", "frog", "ship")
        found["CIFAR-10, 3 x 80"] = (lambda: cifar(data, three), 80, three)
        found["CIFAR-10, 10 x 50"] = (lambda: cifar(data, CIFAR_10), 50, CIFAR_10)
    return found


def split(name, make, per_class, seed, most):
    """Returns `{"train": ..., "test": ...}` of images and labels, drawn by the seed."""
    images, labels = make()
    if images.ndim == 3:
        images = np.repeat(images[..., np.newaxis], 3, axis=-1)
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(labels == number) for number in range(labels.max() + 1)]
    if not name.startswith("photographs"):  # Whose left halves are for training.
        places = [rng.permutation(some) for some in places]
    train = rng.permutation(np.concatenate([some[:per_class] for some in places]))
    test = rng.permutation(np.concatenate([some[per_class:] for some in places]))[:most]
    return {
        part: (images[where], labels[where]) for part, where in (("train", train), ("test", test))
    }


def settings_of(row, **common):
    """Returns the settings of a row; of "sweep" all twelve."""
    paper = {"head_start": "zero", "keep": "last"}
    if row == "sweep":
        kinds = (
            {"augmentation": "inception_crop"},
            {"augmentation": "none"},
            {"augmentation": "none", "train": "head"},
        )
        return [
            FineTuning(**common, **paper, **kind, learning_rate=rate)
            for kind in kinds
            for rate in RATES
        ]
    options = {
        "start": {"head": "keep", "train": "head", "steps": 1, "learning_rate": 1e-12},
        "probe": {"head": "new", "train": "head", "steps": 1, "learning_rate": 1e-12},
        "default": {},
        "paper": {**paper, "augmentation": "inception_crop", "learning_rate": 0.01},
    }[row]
    return [FineTuning(**{**common, **options})]


def plain_fit(weights, data, classes, steps, seed):
    """Returns the test accuracy of Keras's own `fit` with Adam(5e-5), as KerasHub's task has it."""
    keras.utils.set_random_seed(seed)
    classifier = keras_vit.load_classifier(weights)
    features = keras_vit.models.rebuild.feature_model(classifier.model)
    model = keras.Sequential([features, keras.layers.Dense(classes, name="predictions")])
    model.compile(
        keras.optimizers.Adam(5e-5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    images, labels = data["train"]
    places = np.concatenate(
        [np.random.default_rng((seed, n)).permutation(len(labels)) for n in range(steps)]
    )[: steps * BATCH]
    model.fit(
        classifier.preprocess(images)[places], labels[places], BATCH, verbose=0, shuffle=False
    )
    return model.evaluate(classifier.preprocess(data["test"][0]), data["test"][1], verbose=0)[1]


def run(row, weights, data, names, steps, seed):
    """Returns the test accuracy of a row and the seconds that it took."""
    began = time.monotonic()
    if row == "keras":
        classes = int(data["train"][1].max()) + 1
        return plain_fit(weights, data, classes, steps, seed), time.monotonic() - began
    common = {"model": None, "weights": weights, "seed": seed, "samples": "none"}
    common |= {"steps": steps, "batch_size": BATCH}
    accuracies = []
    for settings in settings_of(row, **common):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "run"
            options = {"class_names": list(names)} if names else {}
            done = finetune(data, output, settings, log=lambda text: None, **options)
            accuracies.append(done.report.top_1)
    return max(accuracies), time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--weights", default="vit_mini4_cifar10")
    parser.add_argument("--data", type=pathlib.Path, help="a folder of CIFAR-10's test images")
    parser.add_argument("--sets", nargs="+", help="beginnings of their names; by default all")
    parser.add_argument("--rows", nargs="+", default=ROWS, choices=ROWS)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--test", type=int, default=1500, help="test images at most")
    arguments = parser.parse_args()

    table = [("set", *arguments.rows)]
    for name, (make, per_class, names) in sets(arguments.data).items():
        if arguments.sets and not name.startswith(tuple(arguments.sets)):
            continue
        cells = {row: [] for row in arguments.rows}
        for seed in range(arguments.seeds):
            data = split(name, make, per_class, seed, arguments.test)
            for row in arguments.rows:
                if row == "start" and names is None:
                    continue
                path = arguments.output / f"{arguments.weights}, {name}, {row}, {seed}.json"
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    found = run(row, arguments.weights, data, names, arguments.steps, seed)
                    path.write_text(json.dumps(found))
                    print(path.stem, found, flush=True)
                cells[row].append((json.loads(path.read_text())[0], len(data["test"][1])))
        table.append((name, *(cell(cells[row]) for row in arguments.rows)))
    print(markdown_table(table))


def cell(found):
    """Returns a mean accuracy with the 95% interval of all test images of the seeds."""
    if not found:
        return ""
    images = sum(count for _, count in found)
    right = round(sum(accuracy * count for accuracy, count in found))
    low, high = wilson_interval(right, images)
    return f"{right / images:.1%} ({100 * low:.1f} to {100 * high:.1f})"


if __name__ == "__main__":
    main()
