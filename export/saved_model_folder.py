"""SavedModel with signatures for float images and for encoded image files."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keras_vit.description.description_texts import read_texts
from keras_vit.preprocessing import MAX_PIXELS
from keras_vit.utils.fields import AT_LEAST_1, documented, image_size, setting

from .formats import (
    ExportFormat,
    OpenedExport,
    Signature,
    Written,
    further_outputs,
    import_export_package,
    output_names,
)
from .options import TOP
from .texts import NAMES, write_texts

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

_SERVING_MESSAGES = "tensorflow_serving.apis.prediction_log_pb2"


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModel(ExportFormat):
    """Exports a classifier as a SavedModel and checks it in TensorFlow.

    The SavedModel needs only TensorFlow. For TensorFlow Serving the name of its folder is a number:
    `pets/1`. It has two signatures, for a batch of any size B:

    - `serve` takes `images` `(B, H, W, C)` float32, in the preprocessing's value range;
    - `serve_bytes` takes `images` `(B,)` string, the bytes of JPEG and PNG files, and decodes,
      orients, resizes and normalises them as evaluation does.

    Outputs, where K is the number of classes and k the smaller of `top` and K:

    - `probabilities` `(B, K)` float32, in the order of `assets/classes.txt`;
    - `classes` `(B, k)` string, class names, the most probable first;
    - `top_probabilities` `(B, k)` float32, the probabilities of `classes`;
    - `predicted` `(B, K)` bool, only of a multi-label classifier: whether the probability is
      above the class's threshold;
    - `valid` `(B,)` bool: whether the file could be decoded, and whether all pixels and
      probabilities are finite. If not, its probabilities are 0 and its class names empty; other
      images are not affected.

    `serving_default` is `serve`. Each of `image_sizes` adds two signatures, such as
    `serve_384x384` and `serve_bytes_384x384`, with the same weights and resized position
    embeddings. The folder `assets/` has the class names, the preprocessing, the origin and
    the report of the check.
    """

    name = "saved_model"
    marker = "saved_model.pb"
    runs_in_tensorflow = True
    max_bytes = None

    image_sizes: Iterable[Sequence[int]] = setting(
        (),
        "further image sizes, such as 384 or 384x512, with resized position embeddings",
        unit="HxW",
        several=True,
        parse=image_size,
    )
    top: int = setting(TOP, "classes that are named", unit="K", limits=AT_LEAST_1)
    max_pixels: int = setting(
        MAX_PIXELS, "largest encoded image, height times width", unit="N", limits=AT_LEAST_1
    )
    jit_compile: bool = setting(False, "compile the model with XLA, once for each batch size")
    outputs: tuple[str, ...] = further_outputs()
    warm_up: bool = setting(False, "add requests that TensorFlow Serving runs before it is ready")

    @property
    def packages(self) -> tuple[str, ...]:
        """The package of the warm-up requests."""
        return (_SERVING_MESSAGES,) if self.warm_up else ()

    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the SavedModel; see `ExportFormat.write`."""
        from .saved_model import write_saved_model, write_warm_up_requests

        variants = write_saved_model(
            path,
            classifier,
            image_sizes=self.image_sizes,
            top=self.top,
            max_pixels=self.max_pixels,
            jit_compile=self.jit_compile,
            outputs=output_names(self.outputs),
        )
        if self.warm_up:
            messages = import_export_package(_SERVING_MESSAGES)
            write_warm_up_requests(path, classifier, messages)
        return Written(files, variants=variants)

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
        name: Signature(call(name), takes_files=name.startswith("serve_bytes"))
        for name in loaded.signatures
    }
