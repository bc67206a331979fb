"""Accuracy of a classifier and of its exports on a labelled data set.

    python benchmarks/export_accuracy.py CLASSIFIER DATA [--data-dir DIR] [--split test] [PATH ...]

CLASSIFIER is a folder, DATA as for `keras-vit evaluate --data`. Without PATHs, it is exported first
to every format and precision, calibrated and checked on images of the train split (or of the only
split). Every image of the split counts once, with the preprocessing of the Keras evaluation.
Prints accuracy, points lost, the limits of this project, and the time of one call with one image.
"""

import argparse
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import PIL.Image
from export_speed import export_all

LIMITS = {
    "dynamic_int8": 0.3,
    "int8": 0.5,
}  # Points lost, by precision; 0 for others.
SAMPLES = 256  # Images to calibrate and to check on, half of them each.
TIMED = 320  # Images that are computed one by one, for the time.


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classifier")
    parser.add_argument("data")
    parser.add_argument("exports", nargs="*", metavar="PATH", help="exported before")
    parser.add_argument("--data-dir")
    parser.add_argument("--split", help="test by default, and all images of data without parts")
    parser.add_argument(
        "--decisions", action="store_true", help='with the class "unknown", which counts as wrong'
    )
    arguments = parser.parse_args()

    from keras_vit.export.check import size_of
    from keras_vit.export.formats.artefacts import load_artefact
    from keras_vit.opening import open_model
    from keras_vit.training.data import evaluation_batches, open_source

    opened = open_model(arguments.classifier)
    classifier = (opened if arguments.decisions else opened.without_unknown()).classifier()
    source = open_source(arguments.data, data_dir=arguments.data_dir, holdout=0.0)
    unknown = sorted(set(source.class_names) - set(classifier.class_names))
    if unknown:
        parser.error(f"the classifier must know the data's classes. Received: {unknown[:5]}")
    split = arguments.split or ("test" if "test" in source.splits else "train")
    numbers = np.array([classifier.class_names.index(name) for name in source.class_names])

    def batches(name):
        return evaluation_batches(
            source.splits[name], preprocessing=classifier.preprocessing, batch_size=32
        )

    with tempfile.TemporaryDirectory() as folder:
        paths = {pathlib.Path(path).name: path for path in arguments.exports}
        if not paths:
            samples = _samples(batches("train"), classifier, pathlib.Path(folder) / "samples")
            reports = export_all(classifier, samples, pathlib.Path(folder))
            paths = {name: report.path for name, report in reports.items()}
        runners = {name: load_artefact(path).model.predict_on_batch for name, path in paths.items()}
        correct = dict.fromkeys(("Keras", *runners), 0)
        seconds = dict.fromkeys(runners, 0.0)
        agreed = dict.fromkeys(runners, 0)
        count = timed = 0
        for images, labels in batches(split).as_numpy_iterator():
            labels = numbers[labels]
            expected = np.asarray(classifier.model.predict_on_batch(images)).argmax(axis=1)
            correct["Keras"] += int((expected == labels).sum())
            for name, run in runners.items():
                if count < TIMED:
                    start = time.perf_counter()
                    for image in images:
                        run(image[None])
                    seconds[name] += time.perf_counter() - start
                answers = run(images).argmax(axis=1)
                correct[name] += int((answers == labels).sum())
                agreed[name] += int((answers == expected).sum())
            timed += len(labels) if count < TIMED else 0
            count += len(labels)
        sizes = {name: size_of(path) for name, path in paths.items()}

    accuracy = {name: 100 * hits / count for name, hits in correct.items()}
    print(f"{arguments.classifier} on {count} images of {arguments.data} ({split})")
    print("| export | MB | accuracy | points lost | limit | agreement | ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(f"| Keras | | {accuracy['Keras']:.2f}% | | | | |")
    for name in runners:
        lost = accuracy["Keras"] - accuracy[name]
        cells = (
            f"{sizes[name] / 1e6:.2f}",
            f"{accuracy[name]:.2f}%",
            f"{lost:.2f}",
            f"{LIMITS.get(name.rpartition(' ')[2], 0.0):.1f}",
            f"{100 * agreed[name] / count:.2f}%",
            f"{1000 * seconds[name] / timed:.2f}",
        )
        print(f"| {name} | {' | '.join(cells)} |")


def _samples(batches, classifier, folder):
    """Writes the preprocessed images, which a second resize leaves unchanged."""
    folder.mkdir()
    low, high = (np.array(value, "float32") for value in classifier.preprocessing.value_range)
    index = 0
    for images, _ in batches.shuffle(SAMPLES, seed=0).as_numpy_iterator():
        for image in images:
            pixels = np.clip(np.round((image - low) / (high - low) * 255), 0, 255)
            PIL.Image.fromarray(pixels.astype("uint8")).save(folder / f"{index:04}.png")
            index += 1
            if index == SAMPLES:
                return folder
    return folder


if __name__ == "__main__":
    main()
