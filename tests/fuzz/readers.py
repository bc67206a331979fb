"""Readers of files from strangers: for each a small good folder, and how it is read.

Imported by the process that reads, as it needs TensorFlow. A reader raises ValueError or OSError
for what it refuses.
"""

import contextlib
import functools
import importlib.util
import itertools
import pathlib
import shutil

import keras
import PIL.Image
import tensorflow as tf
from good_files import NAMES, Reader, classifier, image, model
from weight_readers import (
    converted,
    copied,
    keras_hub_folder,
    read_weights,
    saved,
    torch_folder,
)

from keras_vit import export
from keras_vit.classifier_folder import load_classifier
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


@functools.cache
def _work():
    """A folder with a classifier, made once in the folder of this process."""
    folder = pathlib.Path("exports").absolute()
    if not folder.exists():
        classifier(folder / "classifier")
    return folder


# Verification of exports


def _verified(kind, name, **options):
    """A reader of exports of a kind, as `keras-vit verify`."""

    def make(folder):
        folder.mkdir()
        getattr(export, kind)(_work() / "classifier", folder / name, **options)

    return Reader(make, lambda folder: _verify(folder / name))


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
    "torch": Reader(torch_folder, read_weights),
    "classifier": Reader(classifier, lambda folder: load_classifier(folder).predict(
        folder / "samples")),
    "classifier_weights": Reader(classifier, read_weights),
    "images": Reader(_image_files, _read_images),
    "class_folder": Reader(_class_folder, _read_source),
    "csv": Reader(_csv, _read_csv),
    "tfrecords": Reader(_tfrecords, _read_records),
    "run": Reader(_run, _read_run),
    "verify_tflite": _verified("tflite", "a.tflite"),
    "verify_onnx": _verified("onnx", "a.onnx"),
    "verify_openvino": _verified("openvino", "a"),
    "verify_saved_model": _verified("saved_model", "a"),
}  # fmt: skip


def usable():
    """Returns the names of the readers whose packages are here."""
    has_torch = importlib.util.find_spec("torch") is not None
    return [name for name in READERS if name != "torch" or has_torch]
