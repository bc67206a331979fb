"""Training images per second of the input pipeline and of bare JPEG decoding.

Images of ImageNet's usual size (500 x 375, about 110 kB) are made of scikit-learn's two
sample photographs. Bare decoding is `tf.io.read_file` and `tf.io.decode_jpeg` on all cores;
the pipeline reads, crops, flips, resizes to 224 pixels, scales and batches. Both are timed in
turns in one process, for each number of cores, and the table gives the median of the turns.

    python benchmarks/input_pipeline.py [--cores 1 2] [--images 256] [--turns 5]
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import statistics
import tempfile
import time

from machine import describe, peak_memory
from own_process import run_program

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BATCH = 32
SOURCES = ("files", "tfrecords", "tfds")
AUGMENTATIONS = ("inception_crop", "medium1")


def make_images(folder, count):
    """Writes JPEG files in two classes, each of another part of a photograph."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    photographs = [Image.fromarray(array) for array in load_sample_images().images]
    for number in range(count):
        photograph = photographs[number % 2]
        part = (number % 20, number % 13, 600 + number % 40, 400 + number % 27)
        path = folder / "files" / f"photograph {number % 2}" / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph.crop(part).resize((500, 375)).save(path, quality=96)


def make_records(folder):
    """Writes the same files as TFRecords and as a TensorFlow Datasets data set."""
    import tensorflow_datasets as tfds

    from keras_vit.training.data import open_source, write_records

    class Photographs(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            labels = tfds.features.ClassLabel(num_classes=2)
            features = tfds.features.FeaturesDict({"image": tfds.features.Image(), "label": labels})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, _):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for path in sorted((folder / "files").glob("*/*.jpg")):
                encoded = io.BytesIO(path.read_bytes())
                yield path.name, {"image": encoded, "label": int(path.parent.name[-1])}

    write_records(open_source(folder / "files", holdout=0), folder / "tfrecords")
    tfds.disable_progress_bar()
    with contextlib.redirect_stdout(io.StringIO()):  # It prints that it downloads; it does not.
        Photographs(data_dir=folder / "tfds").download_and_prepare()


def rate(dataset, count):
    """Returns elements per second of wall clock and of processor time, after a few to warm up."""
    iterator = iter(dataset.repeat())
    for _ in range(4):
        next(iterator)
    start = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(iterator)
    end = time.perf_counter(), time.process_time()
    return [count / (after - before) for before, after in zip(start, end, strict=True)]


def run_case(folder, cores, turns):
    """Prints, as JSON, the rates of every turn and the peak memory in MiB."""
    os.sched_setaffinity(0, range(cores))
    import tensorflow as tf

    from keras_vit.training.data import open_source, training_batches
    from keras_vit.training.data.examples import without_autotune

    paths = sorted(map(str, (folder / "files").glob("*/*.jpg")))

    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), channels=3)

    datasets = {"bare": tf.data.Dataset.from_tensor_slices(paths)}
    datasets["bare"] = datasets["bare"].map(decode, tf.data.AUTOTUNE).prefetch(2 * BATCH)
    datasets["bare"] = without_autotune(datasets["bare"])  # As fast as it can be.
    data = {
        "files": folder / "files",
        "tfrecords": folder / "tfrecords",
        "tfds": "tfds:photographs",
    }
    for name in SOURCES:
        options = {"data_dir": folder / "tfds"} if name == "tfds" else {}
        examples = open_source(data[name], holdout=0, **options).splits["train"]
        for augmentation in AUGMENTATIONS if name == "files" else AUGMENTATIONS[:1]:
            datasets[f"{name}, {augmentation}"] = training_batches(
                examples,
                image_size=(224, 224),
                batch_size=BATCH,
                seed=0,
                augmentation=augmentation,
                num_classes=2,
            )
    rates = {name: [] for name in datasets}
    for _ in range(turns):
        for name, dataset in datasets.items():
            found = rate(dataset, len(paths) if name == "bare" else len(paths) // BATCH)
            rates[name].append([value * (1 if name == "bare" else BATCH) for value in found])
    print(json.dumps([rates, peak_memory()]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, os.cpu_count()])
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        return run_case(arguments.folder, arguments.case, arguments.turns)
    print(describe("tensorflow"))
    print(
        f"{'cores':>5}  {'pipeline':<24}{'images/s':>9}  {'of bare':>7}  {'CPU ms':>6}  "
        f"{'of bare':>7}  {'peak MiB':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        make_images(pathlib.Path(folder), arguments.images)
        make_records(pathlib.Path(folder))
        for cores in sorted(set(arguments.cores)):
            options = ["--case", cores, "--folder", folder, "--turns", arguments.turns]
            rates, peak = run_program(__file__, *options)
            bare = rates["bare"]
            for name, found in rates.items():
                clock, processor = (
                    statistics.median(column) for column in zip(*found, strict=True)
                )
                # Turn by turn, so that a change of the machine's load cancels out.
                shares = [
                    statistics.median(a[kind] / b[kind] for a, b in zip(found, bare, strict=True))
                    for kind in (0, 1)
                ]
                print(
                    f"{cores:>5}  {name:<24}{clock:>9.0f}  {shares[0]:>7.2f}  "
                    f"{1000 / processor:>6.2f}  {shares[1]:>7.2f}  {peak:>8}"
                )


if __name__ == "__main__":
    main()
