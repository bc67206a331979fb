"""Readers of files from strangers: for each a small good folder, and how it is read.

Imported by the process that reads, as it needs TensorFlow. A reader raises ValueError or OSError
for what it refuses; readers of exports also raise the errors of their runtimes. The result shows
whether the file was read as something else than the good one.
"""

import contextlib
import functools
import importlib.util
import itertools
import os
import pathlib
import resource
import shutil
import sys

import keras
import numpy as np
import PIL.Image
import tensorflow as tf
from good_files import NAMES, SIZE, Reader, classifier, image, model
from weight_readers import (
    converted,
    copied,
    keras_hub_folder,
    read_weights,
    saved,
    sharded,
    torch_folder,
)

from keras_vit import export
from keras_vit.classifier_folder import load_classifier
from keras_vit.export.html import _runtime_files
from keras_vit.images.decoding import reading_error
from keras_vit.images.transcoding import read_image
from keras_vit.training import SGD, Checkpoints, FineTuning, SoftmaxCrossentropy, Trainer
from keras_vit.training.data.spec import DataSpec, open_source
from keras_vit.training.data.tfrecords import write_records
from keras_vit.training.run.folder import RunFolder
from keras_vit.training.run.job import Job
from keras_vit.training.run.run_options import RunOptions

VERIFY_SECONDS = 100.0  # For an export to answer; less than fuzz.py has for a file.


# Images and data


def _image_files(folder):
    folder.mkdir()
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    for suffix, options in _IMAGES.items():
        image().save(folder / f"a.{suffix}", **options)
    image().save(folder / "turned.jpg", exif=exif)
    image().save(folder / "progressive.jpg", progressive=True)
    image().convert("P").save(folder / "palette.png")
    image().convert("P").save(folder / "palette.bmp")
    image().convert("CMYK").save(folder / "cmyk.jpg")
    image().convert("I;16").save(folder / "deep.png")
    image().save(folder / "lossless.webp", lossless=True)
    image().save(folder / "many.gif", save_all=True, append_images=[image(1)])
    image().save(folder / "packed.tiff", compression="tiff_lzw")


_IMAGES: dict[str, dict] = {
    suffix: {} for suffix in ("jpg", "png", "bmp", "gif", "webp", "tiff", "avif")
}
if importlib.util.find_spec("pillow_heif"):
    import pillow_heif

    pillow_heif.register_heif_opener()
    _IMAGES["heic"] = {}


def _read_images(folder):
    """Reads each image by itself: one that is bad must not harm another."""
    for path in sorted(folder.rglob("*")):
        if not path.is_dir():
            with contextlib.suppress(ValueError, OSError):
                pixels = read_image(path)
                assert pixels.dtype == "uint8", pixels.dtype
                assert pixels.shape[2:] == (3,), pixels.shape


def _class_folder(folder):
    for part, name, number in itertools.product(("train", "test"), NAMES, range(2)):
        (folder / part / name).mkdir(parents=True, exist_ok=True)
        image(number).save(folder / part / name / f"{number}.png")


def _csv(folder):
    _class_folder(folder / "images")
    rows = ["path,label,split"]
    for path in sorted((folder / "images").rglob("*.png")):
        part, label, _ = path.parts[-3:]
        rows.append(f"{path.relative_to(folder)},{label},{part}")
    (folder / "data.csv").write_text("\n".join(rows) + "\n")


def _read_csv(folder):
    _read_source(folder / "data.csv")


def _read_source(path):
    source = open_source(path)
    try:
        for examples in source.splits.values():
            for encoded, label in itertools.islice(examples.encoded(), 20):
                assert 0 <= label < len(source.class_names)
                assert isinstance(encoded, bytes)
    except tf.errors.OpError as error:  # As the commands do.
        if reason := reading_error(error):
            raise ValueError(reason) from error
        raise


def _tfrecords(folder):
    _class_folder(folder / "images")
    write_records(open_source(folder / "images"), folder / "records", shard_mebibytes=0.001)
    shutil.rmtree(folder / "images")


def _read_records(folder):
    _read_source(folder / "records")


# Unfinished runs


@functools.cache
def trainer():
    built = Trainer(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]), averaging=0.9)
    built.compile(SGD(0.1), SoftmaxCrossentropy())
    return built


def _run(folder):
    """A run that was killed after its first state."""
    run = RunFolder(folder / "out")
    settings = FineTuning(steps=4)
    data = DataSpec("photos")
    recipe = {
        "job": FineTuning.command,
        "command": "keras-vit finetune",
        "data": data.to_json(),
        "settings": settings.to_json(),
        "facts": {"gelu": "tanh", "normalization": "half"},
    }
    run.start(recipe)
    run.save_best(trainer().model, 1, 0.5, 1.0)
    run.checkpoints.save(trainer())
    run.checkpoints.save(trainer())
    run.lock.release(force=True)


def _read_run(folder):
    Job(DataSpec(None), RunOptions(folder / "out", resume=True, log=str), FineTuning())
    Checkpoints(folder / "out.partial" / ".states").restore(trainer())
    run = RunFolder(folder / "out", resume=True)
    if run.best_score():
        run.load_best(trainer().model)


# Exports


def _inputs(folder):
    """What is sent to an export: pixels, and files."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    np.save(folder / "images.npy", rng.uniform(-1, 1, (2, *SIZE, 3)).astype("float32"))


def _files(folder):
    _image_files(folder)
    for path in folder.iterdir():
        if path.suffix in (".tiff", ".avif", ".heic"):
            path.unlink()


@functools.cache
def _work():
    """A folder with the exports of a classifier, made once in the folder of this process."""
    folder = pathlib.Path("exports").absolute()
    if not folder.exists():
        classifier(folder / "classifier")
    return folder


@functools.cache
def _saved_model():
    path = _work() / "saved_model"
    if not path.exists():
        export.saved_model(_work() / "classifier", path)
    return tf.saved_model.load(str(path))


@functools.cache
def _tflite(batch_size):
    from ai_edge_litert.interpreter import Interpreter

    path = _work() / f"{batch_size}.tflite"
    if not path.exists():
        export.tflite(_work() / "classifier", path, input="float", batch_size=batch_size)
    return Interpreter(str(path)).get_signature_runner("serve")


@functools.cache
def _onnx():
    import onnxruntime

    path = _work() / "a.onnx"
    if not path.exists():
        export.onnx(_work() / "classifier", path, input="float")
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _pixels(folder):
    try:
        array = np.load(folder / "images.npy", allow_pickle=False)
    except Exception as error:  # NumPy's parser of headers raises any kind.
        raise ValueError("This is no array.") from error
    if array.size > 10**6 or array.dtype.kind not in "fiub":
        raise ValueError("These are no images.")
    with np.errstate(over="ignore"):
        return array.astype("float32")


def check_answer(images, answer):
    """Each row is a distribution, or marked as not valid."""
    rows = np.asarray(answer["probabilities"])
    assert rows.shape == (len(images), 3), rows.shape
    valid = np.asarray(answer["valid"])
    assert valid.shape == (len(images),), valid.shape
    finite = np.isfinite(images).reshape(len(images), -1).all(axis=1)
    assert not np.any(valid & ~finite), "not finite and valid"
    assert np.isfinite(rows).all() or not valid.all(), rows
    np.testing.assert_allclose(rows[valid].sum(axis=-1), 1, atol=1e-3)
    np.testing.assert_array_equal(rows[~valid], 0)


def _serve(folder):
    images = _pixels(folder)
    check_answer(images, _saved_model().signatures["serve"](images=tf.constant(images)))


def _serve_bytes(folder):
    files = [path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()]
    answer = _saved_model().signatures["serve_bytes"](images=tf.constant(files, tf.string))
    check_answer(np.zeros(len(files)), answer)


def _run_tflite(batch_size, folder):
    images = _pixels(folder)
    if images.ndim and len(images):
        images = images[:batch_size]
    rows = _tflite(batch_size)(images=images)["probabilities"]
    if images.shape[1:] == (*SIZE, 3):  # LiteRT computes on input of any shape.
        check_answer(images, {"probabilities": rows, "valid": rows.any(axis=-1)})


def _run_onnx(folder):
    images = _pixels(folder)
    names = [output.name for output in _onnx().get_outputs()]
    check_answer(images, dict(zip(names, _onnx().run(names, {"images": images}), strict=True)))


def _runtime_errors():
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (state.InvalidArgument, state.RuntimeException, state.Fail)


# Verification of exports


@contextlib.contextmanager
def without_limit():
    """Lifts the limit of memory, which Chromium would inherit and crash at."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


# A folder with the files of onnxruntime-web, as in the tests; they are downloaded by default.
RUNTIME = os.environ.get("ONNXRUNTIME_WEB")


def _verified(kind, name, **options):
    """A reader of exports of a kind, as `keras-vit verify`."""

    def make(folder):
        folder.mkdir()
        getattr(export, kind)(_work() / "classifier", folder / name, **options)

    return Reader(make, lambda folder: _verify(folder / name))


def _verified_page(kind, name):
    """A reader of pages, which run in Chromium."""
    reader = _verified(kind, name, runtime=RUNTIME)
    return Reader(without_limit()(reader.make), without_limit()(reader.read))


def _verify(path):
    """Verifies an export; every refusal is a line with its path."""
    try:
        return export.verify(path, time_limit=VERIFY_SECONDS)
    except ValueError as error:
        _check_refusal(str(error), str(path))
        raise


def _check_refusal(error, path):
    assert path in error, f"no path in {error}"
    assert "\n" not in error, f"several lines: {error}"


READERS = {
    "npz": converted("a.npz"),
    "keras": saved("a.keras", lambda path: model().save(path)),
    "keras_hub": copied("keras_hub", "classifier.keras"),
    "keras_hub_folder": Reader(keras_hub_folder, read_weights),
    "safetensors": converted("a.safetensors"),
    "hugging_face": converted("x", "huggingface"),
    "shards": Reader(sharded, read_weights),
    "timm": converted("x", "timm"),
    "torch": Reader(torch_folder, read_weights),
    "classifier": Reader(classifier, lambda folder: load_classifier(folder).predict(
        folder / "samples")),
    "classifier_weights": Reader(classifier, read_weights),
    "images": Reader(_image_files, _read_images),
    "class_folder": Reader(_class_folder, _read_source),
    "csv": Reader(_csv, _read_csv),
    "tfrecords": Reader(_tfrecords, _read_records),
    "run": Reader(_run, _read_run),
    "serve": Reader(_inputs, _serve, (tf.errors.OpError, TypeError)),
    "serve_bytes": Reader(_files, _serve_bytes, (tf.errors.OpError,)),
    "tflite": Reader(_inputs, functools.partial(_run_tflite, 1), (RuntimeError,)),
    "tflite_free": Reader(_inputs, functools.partial(_run_tflite, None), (RuntimeError,)),
    "onnx": Reader(_inputs, _run_onnx, _runtime_errors()),
    "verify_tflite": _verified("tflite", "a.tflite"),
    "verify_onnx": _verified("onnx", "a.onnx"),
    "verify_openvino": _verified("openvino", "a"),
    "verify_saved_model": _verified("saved_model", "a"),
    "verify_html": _verified_page("html", "a.html"),
}  # fmt: skip


# Packages that are not everywhere.
_NEEDED = {"torch": "torch", "verify_html": "playwright"}


def usable():
    """Returns the names of the readers whose packages and files are here."""
    found = {package: importlib.util.find_spec(package) for package in set(_NEEDED.values())}
    try:
        _runtime_files(RUNTIME)
    except ValueError as error:  # Without a network.
        print(f"No html exports are read. {error}", file=sys.stderr)
        found["playwright"] = None
    return [name for name in READERS if name not in _NEEDED or found[_NEEDED[name]]]
