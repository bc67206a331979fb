"""Size, agreement and speed of all exports of a model, in one process by turns.

    python benchmarks/export_speed.py [MODEL] [--batch-sizes 1 8] [--images 32] [--rounds 15]

Prints a table for each batch size. The weights are random, with the official initialisation and a
random head: speed does not depend on them. The images are scikit-learn's digits, at the model's
size. In a turn each export computes the batch twice and the second call is timed, as threads of the
one before may still wait for work. OpenVINO's rows in bfloat16 are its default where the CPU has
it. Stop other work on the machine first.
"""

import argparse
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import PIL.Image
from machine import describe
from sklearn.datasets import load_digits

COMPARED = ("saved_model", "tflite", "onnx", "openvino")  # The web pages hold the ONNX file.
WARM_UP_ROUNDS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="ViT-B/16")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8], help="images a call")
    parser.add_argument("--images", type=int, default=32, help="checked on")
    parser.add_argument("--rounds", type=int, default=15, help="timed calls of each export")
    arguments = parser.parse_args()

    import keras

    import keras_vit
    from keras_vit.export.formats.artefacts import open_export
    from keras_vit.predictor import Predictor
    from keras_vit.preprocessing import Preprocessing

    keras.utils.set_random_seed(0)
    model = keras_vit.build(arguments.model)
    head = model.get_layer("predictions").kernel
    head.assign(np.random.default_rng(0).normal(size=head.shape) * head.shape[0] ** -0.5)
    size = model.input_shape[1:3]
    classifier = Predictor(model, [str(label) for label in range(1000)], Preprocessing(size))
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder) / "samples"
        samples.mkdir()
        for index, digit in enumerate(load_digits().images[: arguments.images]):
            picture = PIL.Image.fromarray((digit * 255 / 16).astype("uint8"))
            picture.resize(size[::-1], PIL.Image.BICUBIC).save(samples / f"{index}.png")
        packages = ("ai-edge-litert", "onnxruntime", "openvino")
        print(describe("tensorflow", "keras", *packages))
        reports = export_all(classifier, samples, pathlib.Path(folder))
        for batch_size in arguments.batch_sizes:
            calls = {"Keras": classifier.model.predict_on_batch}
            for name, report in reports.items():
                if report.format == "tflite" and batch_size > 1:
                    continue  # It takes one image a call.
                calls[name] = open_export(report.path).signatures()["serve"].call
                if report.format == "openvino":
                    calls[f"{name}, bfloat16"] = in_bfloat16(report.path)
            seconds = interleaved(calls, arguments.rounds, (batch_size, *size, 3))
            print(f"\n{arguments.model}, batch {batch_size}\n")
            print_table(reports, seconds, batch_size)


def print_table(reports, seconds, batch_size):
    """Prints sizes, agreements and times by name, in Markdown."""
    print("| export | MB | agreement | mean difference | ms an image | times as fast as Keras |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, times in seconds.items():
        report = reports.get(name)
        facts = ["", "", ""]
        if report:
            (check, *_) = report.checks
            facts = [
                f"{report.size / 1e6:.1f}",
                f"{report.agreement:.0%}",
                f"{check.mean_difference:.1e}",
            ]
        milliseconds = 1000 * np.median(times) / batch_size
        faster = np.median(seconds["Keras"] / times)
        print(f"| {name} | {' | '.join(facts)} | {milliseconds:.1f} | {faster:.2f} |")


def export_all(classifier, samples, folder):
    """Exports a classifier to the formats in every precision; returns the reports by name.

    Args:
        classifier: The classifier.
        samples: Images to calibrate and to check on.
        folder: A folder for the exports.
    """
    import keras_vit.export
    from keras_vit.export.formats.table import FORMATS

    reports = {}
    for format_name in COMPARED:
        for precision in FORMATS[format_name].precisions:
            name, options = format_name, {}
            if format_name != "saved_model":
                name, options = f"{name} {precision}", {"precision": precision, "input": "float"}
            suffix = FORMATS[format_name].suffix
            reports[name] = getattr(keras_vit.export, format_name)(
                classifier,
                folder / f"{format_name}_{precision}{suffix}",
                check_images=samples,
                minimum_agreement=0,
                overwrite=True,
                **options,
            )
            print(f"exported {name}", flush=True)
    return reports


def in_bfloat16(path):
    """Returns an OpenVINO model as a function, in bfloat16."""
    from keras_vit.export.formats.openvino import openvino_core

    precision = {"INFERENCE_PRECISION_HINT": "bf16"}
    model = openvino_core().compile_model(os.path.join(path, "model.xml"), "CPU", precision)
    return lambda images: model({"images": images})["probabilities"]


def interleaved(calls, rounds, shape):
    """Returns seconds `(rounds,)` of the calls by name, the calls taking turns."""
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    seconds = {name: np.zeros(rounds + WARM_UP_ROUNDS) for name in calls}
    for index in range(rounds + WARM_UP_ROUNDS):
        for name, call in calls.items():
            call(images)
            start = time.perf_counter()
            call(images)
            seconds[name][index] = time.perf_counter() - start
    return {name: times[WARM_UP_ROUNDS:] for name, times in seconds.items()}


if __name__ == "__main__":
    main()
