"""SavedModel with signatures for float images and for encoded image files."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence

import keras
import numpy as np
import tensorflow as tf

from keras_vit.classifier import Classifier
from keras_vit.images.decoding import MAX_PIXELS, decode_or_mark
from keras_vit.images.transcoding import transcoded
from keras_vit.models.rebuild import resized_model

from . import publish
from .comparison import CHECK, ExportReport, load_images
from .exported_model import exported_model
from .options import MINIMUM_AGREEMENT, TOP

# Path and name that TensorFlow Serving prescribes.
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"

# A batch size is compiled (with XLA) or planned at its first call.
WARM_UP_BATCH_SIZES = (1, 8)

_SERVING_MESSAGES = "tensorflow_serving.apis.prediction_log_pb2"


def saved_model(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    image_sizes: Iterable[Sequence[int]] = (),
    top: int = TOP,
    max_pixels: int = MAX_PIXELS,
    jit_compile: bool = False,
    warm_up: bool = False,
    check_images: str | os.PathLike | Iterable | None = None,
    minimum_agreement: float = MINIMUM_AGREEMENT,
    overwrite: bool = False,
) -> ExportReport:
    """Exports a classifier as a SavedModel and checks it in TensorFlow.

    The SavedModel needs only TensorFlow. It has two signatures, for a batch of any size B:

    - `serve` takes `images` `(B, H, W, C)` float32, in the preprocessing's value range;
    - `serve_bytes` takes `images` `(B,)` string, the bytes of JPEG, PNG, BMP, GIF or WebP
      files, and decodes, orients, resizes and normalises them as evaluation does.

    Outputs, where K is the number of classes and k the smaller of `top` and K:

    - `probabilities` `(B, K)` float32, in the order of `assets/classes.txt`;
    - `classes` `(B, k)` string, class names, the most likely first;
    - `top_probabilities` `(B, k)` float32, the probabilities of `classes`;
    - `predicted` `(B, K)` bool, only of several labels an image: whether the probability is
      above the class's threshold;
    - `valid` `(B,)` bool: whether the file could be decoded, and whether all pixels and
      probabilities are finite. If not, its probabilities are 0 and its class names empty; other
      images are not affected.

    `serving_default` is `serve`. Each of `image_sizes` adds two signatures, such as
    `serve_384x384` and `serve_bytes_384x384`, with the same weights and resized position
    embeddings. The folder `assets/` has the class names, the preprocessing, the origin and
    the report of the check.

    Args:
        classifier: A `Classifier`, or its folder.
        path: The folder to write; for TensorFlow Serving its name is a number: `pets/1`.
        image_sizes: Further pixel sizes (height, width), besides the classifier's.
        top: Number of class names that are returned.
        max_pixels: Height times width of the largest image that `serve_bytes` decodes.
        jit_compile: Whether XLA compiles the model, once for each batch size.
        warm_up: Whether to add requests that TensorFlow Serving runs before it is ready, so
            that the first request is fast. Needs the extra `export`.
        check_images: Real images for the check, files or a folder; by default the
            classifier's samples.
        minimum_agreement: Least share of check images with the Keras model's first class.
        overwrite: Whether an older SavedModel is replaced.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, there are no check
            images, or the check fails. Nothing is written then.
    """
    if top < 1 or max_pixels < 1:
        raise ValueError(
            f"top and max_pixels must be at least 1. Received: top={top}, max_pixels={max_pixels}"
        )
    classifier, files = publish.prepare(
        classifier,
        path,
        "saved_model",
        packages=[_SERVING_MESSAGES] if warm_up else [],
        check_images=check_images,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
    )
    if classifier.model.input_shape[-1] != 3:
        raise ValueError(
            "A SavedModel decodes image files into 3 channels, so the model must take 3. "
            f"Received: a model with inputs of shape {classifier.model.input_shape}"
        )
    classifiers = {"": classifier}  # By the suffix of their signatures.
    for height, width in image_sizes:
        classifiers[f"_{height}x{width}"] = _resized(classifier, (height, width))
    with publish.new_output(path, "saved_model", overwrite=overwrite) as folder:
        archive = keras.export.ExportArchive()
        # Without `archive.track(model)`, which would write every variable twice: the archive
        # finds those that the signatures use.
        for suffix, variant in classifiers.items():
            _add_signatures(archive, variant, suffix, top, max_pixels, jit_compile)
        archive.write_out(str(folder), verbose=False)
        assets = folder / "assets"
        assets.mkdir(exist_ok=True)
        publish.write_texts(assets, publish.texts_of(classifier, files))
        if warm_up:
            _write_warm_up_requests(classifier, folder, files)
        report = publish.check_export(
            folder, path, classifiers, files, minimum_agreement=minimum_agreement
        )
        publish.write_texts(assets, {CHECK: report.to_text()})
    return report


def _resized(classifier, image_size):
    """Returns the classifier with the same weights for another image size."""
    return Classifier(
        resized_model(classifier.model, image_size),
        classifier.class_names,
        classifier.preprocessing.with_image_size(image_size),
        task=classifier.task,
        thresholds=classifier.thresholds,
    )


def _add_signatures(archive, classifier, suffix, top, max_pixels, jit_compile):
    model, preprocessing = classifier.model, classifier.preprocessing
    shape = (*preprocessing.image_size, model.input_shape[-1])
    names, thresholds = tf.constant(classifier.class_names), classifier.thresholds
    top = min(top, len(classifier.class_names))

    answering = exported_model(model, preprocessing)

    @tf.function(jit_compile=jit_compile)
    def answers(images):
        return answering(images, training=False)

    def named(probabilities, valid):
        top_probabilities, order = tf.math.top_k(probabilities, top)
        answer = {
            "probabilities": probabilities,
            "classes": tf.gather(names, order),
            "top_probabilities": top_probabilities,
        }
        if thresholds is not None:
            limits = tf.constant(thresholds, tf.float64)
            answer["predicted"] = tf.cast(probabilities, tf.float64) > limits
        mask = valid[:, tf.newaxis]
        # 0, "" and False.
        masked = {key: tf.where(mask, part, tf.zeros_like(part)) for key, part in answer.items()}
        return {**masked, "valid": valid}

    def serve(images):
        # Servers do not compare shapes, and 3 x 2 patches are as many as 2 x 3.
        return named(**answers(tf.ensure_shape(images, (None, *shape))))

    def serve_bytes(images):
        pixels, decoded = decode_or_mark(images, preprocessing, max_pixels)
        answer = answers(pixels)
        return named(answer["probabilities"], decoded & answer["valid"])

    image_batch = tf.TensorSpec((None, *shape), "float32", "images")
    file_batch = tf.TensorSpec((None,), "string", "images")
    archive.add_endpoint(f"serve{suffix}", serve, input_signature=[image_batch])
    archive.add_endpoint(f"serve_bytes{suffix}", serve_bytes, input_signature=[file_batch])


def _write_warm_up_requests(classifier, folder, files):
    """Writes the requests that TensorFlow Serving runs before it is ready.

    Args:
        classifier: The exported classifier.
        folder: The SavedModel's folder.
        files: Real images, repeated if they are fewer than the largest batch.
    """
    path = folder / WARM_UP_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [files[index % len(files)] for index in range(max(WARM_UP_BATCH_SIZES))]
    images = load_images(classifier, files)
    contents = (pathlib.Path(file).read_bytes() for file in files)
    encoded = np.array([transcoded(content, "PNG") for content in contents], dtype=object)
    messages = publish.import_export_package(_SERVING_MESSAGES)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for batch_size in WARM_UP_BATCH_SIZES:
            for signature, batch in (("serve", images), ("serve_bytes", encoded)):
                log = messages.PredictionLog()
                request = log.predict_log.request
                request.model_spec.signature_name = signature
                request.inputs["images"].CopyFrom(tf.make_tensor_proto(batch[:batch_size]))
                writer.write(log.SerializeToString())
