"""A SavedModel that a server takes: float images or encoded ones in, names out."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

import keras
import tensorflow as tf

from keras_vit.classifier import CLASSES, PREPROCESSING, Classifier
from keras_vit.images import MAX_PIXELS, decode_or_mark
from keras_vit.models.rebuild import resized_model

from . import job, warmup
from .verify import Report


def saved_model(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    image_sizes=(),
    top: int = 5,
    max_pixels: int = MAX_PIXELS,
    jit_compile: bool = False,
    warm_up: bool = False,
    check_images=None,
    minimum_agreement: float = 0.99,
    overwrite: bool = False,
) -> Report:
    """Exports a classifier as a SavedModel, checked, or not at all.

    It loads with TensorFlow alone and has two signatures, for a batch of any size B:

    - `serve` takes `images` `(B, H, W, C)` float32, in the preprocessing's value range;
    - `serve_bytes` takes `images` `(B,)` string, files in JPEG, PNG, BMP, GIF or WebP, and
      decodes, orients, resizes and normalises them with the code of evaluation.

    Outputs, where K is the number of classes and k the lesser of `top` and K:

    - `probabilities` `(B, K)` float32, in the order of `assets/classes.txt`;
    - `classes` `(B, k)` string, names, the likeliest first;
    - `top_probabilities` `(B, k)` float32, those of `classes`;
    - `valid` `(B,)` bool, of `serve_bytes` only: whether the file could be decoded. Where it
      could not, the probabilities are 0 and the names empty; the others are not affected.

    `serving_default` is `serve`. Each of `image_sizes` adds two signatures, such as
    `serve_384x384` and `serve_bytes_384x384`, with the same weights and the position
    embeddings resized. The folder's `assets/` hold class names, preprocessing,
    origin and the check's figures.

    Args:
        classifier: A `Classifier`, or its folder.
        path: The folder to write; a server wants a number as its name: `pets/1`.
        image_sizes: More pixel sizes (height, width) to serve, besides the classifier's own.
        top: Classes that are named.
        max_pixels: Height times width of the largest image that `serve_bytes` decodes.
        jit_compile: Whether the model is compiled by XLA, anew for each batch size.
        warm_up: Whether to add requests that the server runs before it is ready, so that
            the first user does not wait. Needs the extra `export`.
        check_images: Real images to check on, files or a folder; the classifier's own
            samples by default.
        minimum_agreement: Least share of them with the Keras model's first class.
        overwrite: Whether a SavedModel that is there is replaced.

    Returns:
        A `Report`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, there is nothing to
            check on, or the check fails. Nothing is left behind.
    """
    classifier = job.resolve(classifier)
    job.check_agreement(minimum_agreement)
    job.check_output(path, "saved_model", overwrite=overwrite)
    if top < 1 or max_pixels < 1:
        raise ValueError(
            f"top and max_pixels must be at least 1. Received: top={top}, max_pixels={max_pixels}"
        )
    if classifier.model.input_shape[-1] != 3:
        raise ValueError(
            "Encoded images have 3 channels; so must the model. "
            f"Received: a model with inputs of shape {classifier.model.input_shape}"
        )
    variants = {"": classifier, **_variants(classifier, image_sizes)}
    files = job.check_files(classifier, check_images)
    if warm_up:
        job.needed("tensorflow_serving.apis.prediction_log_pb2")

    def write(folder):
        _write(variants, folder, top, max_pixels, jit_compile)
        if warm_up:
            warmup.write_requests(classifier, folder, files)

    def record(folder, report):
        _write_json(folder / "assets" / "check.json", report.figures())

    return job.run(
        classifier,
        path,
        "saved_model",
        write=write,
        record=record,
        files=files,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
        variants=variants,
    )


def _variants(classifier, image_sizes):
    """Returns the classifier at other image sizes, by the suffix of their signatures."""
    variants = {}
    for height, width in image_sizes:
        preprocessing = dataclasses.replace(classifier.preprocessing, image_size=(height, width))
        model = resized_model(classifier.model, (height, width))
        variants[f"_{height}x{width}"] = Classifier(model, classifier.class_names, preprocessing)
    return variants


def _write(variants, folder, top, max_pixels, jit_compile):
    archive = keras.export.ExportArchive()
    # Without `archive.track(model)`, which would write every variable twice: the archive
    # finds those that the signatures use.
    for suffix, variant in variants.items():
        _add_signatures(archive, variant, suffix, top, max_pixels, jit_compile)
    archive.write_out(str(folder), verbose=False)
    classifier = variants[""]
    assets = pathlib.Path(folder) / "assets"
    assets.mkdir(exist_ok=True)
    names_text = "".join(f"{name}\n" for name in classifier.class_names)
    (assets / CLASSES).write_text(names_text, encoding="utf-8")
    (assets / PREPROCESSING).write_text(classifier.preprocessing.to_json(), encoding="utf-8")
    _write_json(assets / "origin.json", job.origin(classifier))


def _add_signatures(archive, classifier, suffix, top, max_pixels, jit_compile):
    model, preprocessing = classifier.model, classifier.preprocessing
    shape = (*preprocessing.image_size, model.input_shape[-1])
    names = tf.constant(classifier.class_names)
    top = min(top, len(classifier.class_names))

    @tf.function(jit_compile=jit_compile)
    def probabilities_of(images):
        return tf.cast(model(images, training=False), "float32")

    def name(probabilities):
        top_probabilities, order = tf.math.top_k(probabilities, top)
        return {
            "probabilities": probabilities,
            "classes": tf.gather(names, order),
            "top_probabilities": top_probabilities,
        }

    def serve(images):
        return name(probabilities_of(images))

    def serve_bytes(images):
        pixels, valid = decode_or_mark(images, preprocessing, max_pixels)
        answer = name(probabilities_of(pixels))
        mask = valid[:, tf.newaxis]
        return {
            "probabilities": tf.where(mask, answer["probabilities"], 0.0),
            "classes": tf.where(mask, answer["classes"], ""),
            "top_probabilities": tf.where(mask, answer["top_probabilities"], 0.0),
            "valid": valid,
        }

    image_batch = tf.TensorSpec((None, *shape), "float32", "images")
    file_batch = tf.TensorSpec((None,), "string", "images")
    archive.add_endpoint(f"serve{suffix}", serve, input_signature=[image_batch])
    archive.add_endpoint(f"serve_bytes{suffix}", serve_bytes, input_signature=[file_batch])


def _write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
