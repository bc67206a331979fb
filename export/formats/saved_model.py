"""SavedModel with signatures for float images and for encoded image files."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING

from keras_vit.description.description_texts import read_texts
from keras_vit.images import MAX_PIXELS
from keras_vit.utils.fields import AT_LEAST_1, documented, setting

from .export_format import NAMES, CheckImages, ExportFormat, OpenedExport, Signature, write_texts

if TYPE_CHECKING:
    import keras

    from keras_vit.predictor import Predictor

TOP = 5  # Classes that are named.


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModel(ExportFormat):
    """A classifier as a SavedModel.

    It needs only TensorFlow. For TensorFlow Serving the name of its folder is a number:
    `pets/1`. It has two signatures, for a batch of any size B:

    - `serve` takes `images` `(B, H, W, C)` float32, in the preprocessing's value range;
    - `serve_bytes` takes `images` `(B,)` string, the bytes of JPEG and PNG files, and decodes,
      orients, resizes and normalises them as evaluation does.

    Outputs, where K is the number of classes and k the smaller of 5 and K:

    - `probabilities` `(B, K)` float32, in the order of `assets/classes.txt`;
    - `classes` `(B, k)` string, class names, the most probable first;
    - `top_probabilities` `(B, k)` float32, the probabilities of `classes`;
    - `predicted` `(B, K)` bool, only of a multi-label classifier: whether the probability is
      above the class's threshold;
    - `valid` `(B,)` bool: whether the file could be decoded, and whether all pixels and
      probabilities are finite. If not, its probabilities are 0 and its class names empty; other
      images are not affected.

    `serving_default` is `serve`. The folder `assets/` has the class names, the preprocessing, the
    origin and the report of the check.
    """

    name = "saved_model"
    marker = "saved_model.pb"
    runs_in_tensorflow = True
    max_bytes = None

    max_pixels: int = setting(
        MAX_PIXELS, "largest encoded image, height times width", unit="N", limits=AT_LEAST_1
    )

    def write(
        self, path: pathlib.Path, classifier: Predictor, images: CheckImages
    ) -> tuple[str, ...]:
        """Writes the SavedModel; see `ExportFormat.write`."""
        import keras

        archive = keras.export.ExportArchive()
        # Without `archive.track(model)`, which would write every variable twice: the archive
        # finds those that the signatures use.
        add_signatures(archive, classifier, self)
        archive.write_out(str(path), verbose=False)
        return ()

    @staticmethod
    def add_texts(path, texts):
        """Writes the texts as assets."""
        assets = path / "assets"
        assets.mkdir(exist_ok=True)
        write_texts(assets, texts)

    @staticmethod
    def open(path):
        """Returns the content of a SavedModel; see `ExportFormat.open`."""
        files = [path / SavedModel.marker, *sorted((path / "variables").glob("variables.data-*"))]
        return OpenedExport(read_texts(path / "assets", NAMES), files, lambda: _signatures(path))


def add_signatures(
    archive: keras.export.ExportArchive, classifier: Predictor, options: SavedModel
) -> None:
    """Adds the two signatures of a classifier to an archive.

    Args:
        archive: A `keras.export.ExportArchive`.
        classifier: The classifier.
        options: The options of the export.
    """
    import tensorflow as tf

    from keras_vit.images.decoding import decode_or_mark

    from .exported_model import exported_model

    model, preprocessing = classifier.model, classifier.preprocessing
    shape = (*preprocessing.image_size, model.input_shape[-1])
    outputs_named = classifier.description.labels.output_names
    names, thresholds = tf.constant(outputs_named), classifier.thresholds
    top = min(TOP, len(outputs_named))

    answering = exported_model(model, preprocessing)

    @tf.function(autograph=False)
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
        pixels, decoded = decode_or_mark(images, preprocessing, options.max_pixels)
        answer = answers(pixels)
        return named(answer["probabilities"], decoded & answer["valid"])

    image_batch = tf.TensorSpec((None, *shape), "float32", "images")
    file_batch = tf.TensorSpec((None,), "string", "images")
    archive.add_endpoint("serve", serve, input_signature=[image_batch])
    archive.add_endpoint("serve_bytes", serve_bytes, input_signature=[file_batch])


def _signatures(path):
    """Returns the signatures of a SavedModel by name."""
    import tensorflow as tf

    loaded = tf.saved_model.load(os.fspath(path))

    def call(name):
        # Keeps a reference to `loaded`: a signature alone does not keep its variables alive.
        function = loaded.signatures[name]
        (argument,) = function.structured_input_signature[1]
        return lambda batch: function(**{argument: tf.constant(batch)})["probabilities"].numpy()

    return {
        name: Signature(call(name), takes_files=name == "serve_bytes") for name in loaded.signatures
    }
