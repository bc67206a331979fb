"""Readers of files from strangers: for each a small good folder, and how it is read.

Imported by the process that reads, as it needs TensorFlow. A reader raises ValueError or OSError
for what it refuses.
"""

import contextlib
import functools
import itertools
import pathlib
import shutil
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import PIL.Image
import tensorflow as tf

import keras_vit
from keras_vit import export
from keras_vit.checkpoints.formats import read_values
from keras_vit.classifier import save_classifier
from keras_vit.images.decoding import reading_error
from keras_vit.images.transcoding import read_image
from keras_vit.opening import open_model, open_predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import open_source
from keras_vit.training.data.tfrecords import write_records

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
SIZE = (12, 8)
NAMES = ("red fox", "blå hval", "grey owl")


class Reader(NamedTuple):
    """A reader of files.

    Args:
        make: Writes the good files into a new folder.
        read: Reads a folder.
    """

    make: Callable[[pathlib.Path], object]
    read: Callable[[pathlib.Path], Any]


@functools.cache
def model():
    """A Vision Transformer with all that its size allows."""
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(patch_size=4, width=8, depth=1, mlp_dim=16, num_heads=2)
    built = keras_vit.build(config, input_shape=(*SIZE, 3), classes=3)
    head = built.get_layer("predictions")
    head.kernel.assign(np.random.default_rng(0).normal(size=head.kernel.shape))
    return built


def image(number=0):
    pixels = np.random.default_rng(number).integers(256, size=(13, 10, 3), dtype="uint8")
    return PIL.Image.fromarray(pixels)


def classifier(folder):
    recipe = {"model": "ViT-Ti/16", "settings": {"steps": 3}, "data": {"data": "x"}}
    save_classifier(folder, model(), NAMES, Preprocessing(SIZE), recipe=recipe)
    (folder / "samples").mkdir()
    for number in range(4):
        image(number).save(folder / "samples" / f"{number}.png")


# Weights


def read_weights(path, **known):
    """Opens weights with the facts about them, reads the values, and builds the model."""
    opened = open_model(path, **known)
    if opened.arrays is not None:
        assert list(read_values(opened.arrays().arrays.values()))
    if (config := opened.description.config) is not None:
        assert config.width <= 4096, "a model of this size in a small file"
    with contextlib.suppress(ValueError):
        keras_vit.load_checkpoint(model(), path)
    assert opened.description.facts
    return opened.model()


def converted(name="", to=None):
    """A reader of what `convert` writes, a file or a folder."""

    def make(folder):
        source = folder.with_name("source")
        classifier(source)
        if name:
            folder.mkdir()
        export.convert(source, folder / name, to=to)
        shutil.rmtree(source)

    return Reader(make, lambda folder: read_weights(folder / name))


def bare_safetensors(folder):
    """The arrays of a Hugging Face folder without its config."""
    converted(to="huggingface").make(folder.with_name("whole"))
    folder.mkdir()
    (folder.with_name("whole") / "model.safetensors").rename(folder / "a.safetensors")
    shutil.rmtree(folder.with_name("whole"))


def keras_file(folder):
    folder.mkdir()
    model().save(folder / "a.keras")


def keras_hub_folder(folder):
    """KerasHub's folder is the archive's weights and the config of its backbone."""
    folder.mkdir()
    with zipfile.ZipFile(GOLDEN / "keras_hub" / "classifier.keras") as archive:
        for name in ("config.json", "model.weights.h5", "metadata.json"):
            (folder / name).write_bytes(archive.read(name))


# Images and data


def _image_files(folder):
    folder.mkdir()
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    for suffix in ("jpg", "png", "bmp", "gif", "webp", "tiff", "avif"):
        image().save(folder / f"a.{suffix}")
    image().save(folder / "turned.jpg", exif=exif)
    for mode, name in (("P", "palette.png"), ("CMYK", "cmyk.jpg"), ("I;16", "deep.png")):
        image().convert(mode).save(folder / name)
    image().save(folder / "many.gif", save_all=True, append_images=[image(1)])
    image().save(folder / "packed.tiff", compression="tiff_lzw")


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


def _read_source(path):
    try:
        source = open_source(path)
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


READERS = {
    "npz": converted("a.npz"),
    "keras": Reader(keras_file, lambda folder: read_weights(folder / "a.keras")),
    "keras_hub_folder": Reader(keras_hub_folder, read_weights),
    "safetensors": Reader(bare_safetensors, lambda folder: read_weights(folder / "a.safetensors")),
    "hugging_face": converted(to="huggingface"),
    "classifier": Reader(classifier, lambda folder: open_predictor(folder).predict(
        folder / "samples")),
    "classifier_weights": Reader(classifier, read_weights),
    "images": Reader(_image_files, _read_images),
    "csv": Reader(_csv, lambda folder: _read_source(folder / "data.csv")),
    "tfrecords": Reader(_tfrecords, lambda folder: _read_source(folder / "records")),
}  # fmt: skip
