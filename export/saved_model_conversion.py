"""Writing of a SavedModel with its signatures, and of its warm-up requests."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.classifier import Classifier
from keras_vit.images.decoding import decode_or_mark
from keras_vit.images.samples import encoded_png, synthetic_images
from keras_vit.models.rebuild import resized_model

from .exported_model import exported_model

# Path and name that TensorFlow Serving prescribes.
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"

# A batch size is compiled (with XLA) or planned at its first call.
WARM_UP_BATCH_SIZES = (1, 8)


def write_saved_model(
    path: pathlib.Path,
    classifier: Classifier,
    *,
    image_sizes: Iterable[Sequence[int]],
    top: int,
    max_pixels: int,
    jit_compile: bool,
    outputs: Sequence[str] = (),
) -> dict[str, Classifier]:
    """Writes a SavedModel without its texts.

    Args:
        path: An empty folder.
        classifier: The classifier.
        image_sizes: Further sizes (height, width).
        top: Classes that are named.
        max_pixels: Largest encoded image, height times width.
        jit_compile: Whether the model is compiled with XLA.
        outputs: Further outputs; see `exported_model`.

    Returns:
        The classifiers of the further sizes, by the suffix of their signatures.

    Raises:
        ValueError: If the model does not take 3 channels.
    """
    if classifier.model.input_shape[-1] != 3:
        raise ValueError(
            "A SavedModel decodes image files into 3 channels, so the model must take 3. "
            f"Received: a model with inputs of shape {classifier.model.input_shape}"
        )
    image_sizes = list(image_sizes)
    if image_sizes and classifier.description.labels.abstains:
        raise ValueError(
            '"unknown" is decided at the classifier\'s own image size; leave out the other sizes. '
            f"Received: image_sizes={image_sizes}"
        )
    variants = {
        f"_{height}x{width}": _resized(classifier, (height, width)) for height, width in image_sizes
    }
    archive = keras.export.ExportArchive()
    # Without `archive.track(model)`, which would write every variable twice: the archive
    # finds those that the signatures use.
    for suffix, variant in {"": classifier, **variants}.items():
        _add_signatures(
            archive,
            variant,
            suffix,
            top=top,
            max_pixels=max_pixels,
            jit_compile=jit_compile,
            outputs=outputs,
        )
    archive.write_out(str(path), verbose=False)
    return variants


def _resized(classifier, image_size):
    """Returns the classifier with the same weights for another image size."""
    return Classifier(
        resized_model(classifier.model, image_size),
        classifier.class_names,
        classifier.preprocessing.with_image_size(image_size),
        task=classifier.task,
        thresholds=classifier.thresholds,
    )


def _add_signatures(archive, classifier, suffix, *, top, max_pixels, jit_compile, outputs):
    """Adds the two signatures of a classifier to an archive.

    Args:
        archive: A `keras.export.ExportArchive`.
        classifier: The classifier, of one image size.
        suffix: The end of the names of its signatures.
        top: Classes that are named.
        max_pixels: Largest encoded image, height times width.
        jit_compile: Whether the model is compiled with XLA.
        outputs: Further outputs; see `exported_model`.
    """
    model, preprocessing = classifier.model, classifier.preprocessing
    shape = (*preprocessing.image_size, model.input_shape[-1])
    outputs_named = classifier.description.labels.output_names
    names, thresholds = tf.constant(outputs_named), classifier.thresholds
    top = min(top, len(outputs_named))

    answering = exported_model(model, preprocessing, outputs=outputs)

    @tf.function(jit_compile=jit_compile)
    def answers(images):
        return answering(images, training=False)

    def named(probabilities, valid, **further):
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
        return {**masked, "valid": valid, **further}

    def serve(images):
        # Servers do not compare shapes, and 3 x 2 patches are as many as 2 x 3.
        return named(**answers(tf.ensure_shape(images, (None, *shape))))

    def serve_bytes(images):
        pixels, decoded = decode_or_mark(images, preprocessing, max_pixels)
        answer = answers(pixels)
        return named(**{**answer, "valid": decoded & answer["valid"]})

    image_batch = tf.TensorSpec((None, *shape), "float32", "images")
    file_batch = tf.TensorSpec((None,), "string", "images")
    archive.add_endpoint(f"serve{suffix}", serve, input_signature=[image_batch])
    archive.add_endpoint(f"serve_bytes{suffix}", serve_bytes, input_signature=[file_batch])


def write_warm_up_requests(folder: pathlib.Path, classifier: Classifier, messages: Any) -> None:
    """Writes the requests that TensorFlow Serving runs before it is ready.

    They hold one synthetic image, repeated.

    Args:
        folder: The SavedModel's folder.
        classifier: The exported classifier.
        messages: TensorFlow Serving's module `prediction_log_pb2`.
    """
    path = folder / WARM_UP_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    image = synthetic_images()[0]
    encoded = np.array([encoded_png(image)], dtype=object)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for batch_size in WARM_UP_BATCH_SIZES:
            for signature, batch in (
                ("serve", classifier.preprocess(image)),
                ("serve_bytes", encoded),
            ):
                log = messages.PredictionLog()
                request = log.predict_log.request
                request.model_spec.signature_name = signature
                repeated = np.repeat(batch, batch_size, axis=0)
                request.inputs["images"].CopyFrom(tf.make_tensor_proto(repeated))
                writer.write(log.SerializeToString())
