"""Accuracy of a classifier and of its TFLite files on a labelled data set.

    python benchmarks/tflite_accuracy.py CLASSIFIER DATA [--data-dir DIR] [--split test] [FILE ...]

CLASSIFIER is a folder, DATA as for `keras-vit evaluate --data`. Without FILEs, one file of each
precision is exported first, calibrated and checked on images of the train split (or of the only
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
from ai_edge_litert.interpreter import Interpreter

PRECISIONS = ("float32", "float16", "dynamic_int8", "int8")
LIMITS = {"float32": 0.0, "float16": 0.0, "dynamic_int8": 0.3, "int8": 1.0}  # Points lost.
SAMPLES = 256  # Images to calibrate and to check on, half of them each.


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classifier")
    parser.add_argument("data")
    parser.add_argument("files", nargs="*", metavar="FILE", help="exported before")
    parser.add_argument("--data-dir")
    parser.add_argument("--split", help="test by default, and all images of data without parts")
    arguments = parser.parse_args()

    from keras_vit.classifier import load_classifier
    from keras_vit.training.data import evaluation_batches, open_source

    classifier = load_classifier(arguments.classifier)
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
        files = dict(zip(map(_name, arguments.files), arguments.files, strict=True))
        if not files:
            samples = _samples(batches("train"), classifier, pathlib.Path(folder) / "samples")
            files = dict(_exports(classifier, samples, pathlib.Path(folder)))
        runners = {name: _runner(path) for name, path in files.items()}
        correct = dict.fromkeys(("Keras", *runners), 0)
        seconds = dict.fromkeys(runners, 0.0)
        agreed = dict.fromkeys(runners, 0)
        count = 0
        for images, labels in batches(split).as_numpy_iterator():
            labels = numbers[labels]
            expected = np.asarray(classifier.model.predict_on_batch(images)).argmax(axis=1)
            correct["Keras"] += int((expected == labels).sum())
            for name, run in runners.items():
                start = time.perf_counter()
                answers = np.array([run(image[None])[0].argmax() for image in images])
                seconds[name] += time.perf_counter() - start
                correct[name] += int((answers == labels).sum())
                agreed[name] += int((answers == expected).sum())
            count += len(labels)
        sizes = {name: os.path.getsize(path) for name, path in files.items()}

    accuracy = {name: 100 * hits / count for name, hits in correct.items()}
    print(f"{arguments.classifier} on {count} images of {arguments.data} ({split})")
    print(
        f"{'':16}{'MB':>8}{'accuracy':>10}{'points lost':>13}{'limit':>7}{'agreement':>11}{'ms':>8}"
    )
    print(f"{'Keras':16}{'':8}{accuracy['Keras']:>9.2f}%")
    for name in runners:
        lost = accuracy["Keras"] - accuracy[name]
        limit = f"{LIMITS[name]:>7.1f}" if name in LIMITS else f"{'':7}"
        print(
            f"{name:16}{sizes[name] / 1e6:>8.2f}{accuracy[name]:>9.2f}%{lost:>13.2f}{limit}"
            f"{100 * agreed[name] / count:>10.2f}%{1000 * seconds[name] / count:>8.2f}"
        )


def _name(path):
    return pathlib.Path(path).stem


def _samples(batches, classifier, folder):
    """Writes images as they are after preprocessing, of which a resize then changes nothing."""
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


def _exports(classifier, samples, folder):
    import keras_vit.export

    for precision in PRECISIONS:
        path = folder / f"{precision}.tflite"
        keras_vit.export.tflite(
            classifier, path, precision=precision, check_images=samples, minimum_agreement=0.5
        )
        yield precision, path


def _runner(path):
    interpreter = Interpreter(str(path), num_threads=os.cpu_count())
    run = interpreter.get_signature_runner("serve")
    return lambda batch: run(images=batch)["probabilities"]


if __name__ == "__main__":
    main()
