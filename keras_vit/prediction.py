"""Answers of a classifier: computing them in batches, and what they say of one image.

Neither TensorFlow nor Keras is imported before a Keras model needs them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from keras_vit.description.class_labels import UNKNOWN


class Prediction(NamedTuple):
    """A classifier's prediction for one image file.

    Args:
        path: The image file.
        top: `(class name, probability)`, the most likely first; empty if there is an error.
        error: Why the image could not be read or classified, or None.
        labels: The predicted classes, the most likely first: the first of `top`, or with a
            multi-label classifier each class whose probability is above its threshold;
            ("unknown",) if the classifier is not sure enough.
        may_be_unknown: Whether the classifier may answer "unknown".
        is_multilabel: Whether an image may have any number of labels.
    """

    path: str
    top: list[tuple[str, float]]
    error: str | None = None
    labels: tuple[str, ...] = ()
    may_be_unknown: bool = False
    is_multilabel: bool = False

    @property
    def label(self) -> str | None:
        """The answer: the most probable class, or "unknown" if the classifier is not sure enough.

        With a multi-label classifier the most probable of `labels`. None without a label, and for
        an image that could not be read.
        """
        return self.labels[0] if self.labels else None

    @property
    def probability(self) -> float | None:
        """The probability of the most probable class; None for an image that could not be read.

        It is the label's, except for "unknown": there it was too low for an answer.
        """
        return self.top[0][1] if self.top else None

    @property
    def is_unknown(self) -> bool:
        """Whether the answer is "unknown", and not the first of `top`."""
        return self.may_be_unknown and self.labels == (UNKNOWN,)

    @property
    def text(self) -> str | None:
        """The answer where it is not the most probable class: "unknown (0.61 beagle)"."""
        if not self.is_unknown:
            return None
        name, probability = self.top[0]
        return f"{UNKNOWN} ({probability:.2f} {name})"

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<{self.path}: {self.error}>"
        if self.is_unknown:
            return f"<{self.path}: {self.text}>"
        if self.label is None:
            return f"<{self.path}: no label>"
        answers = dict(self.top)
        named = [f"{name} {answers[name]:.2f}" if name in answers else name for name in self.labels]
        return f"<{self.path}: {', '.join(named)}>"

    def to_json(self) -> dict[str, Any]:
        """Returns the prediction as types of JSON, with labels where an image may have several."""
        entry: dict[str, Any] = {
            "path": self.path,
            "top": [{"class": name, "probability": value} for name, value in self.top],
        }
        if self.is_multilabel:
            entry["labels"] = list(self.labels)
        elif self.labels and self.may_be_unknown:
            entry["answer"] = self.label
        return entry if self.error is None else {**entry, "error": self.error}


def split_answers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the probabilities of the classes, and which images are unknown.

    Args:
        rows: Outputs of a calibrated model, `(N, K + 1)`.

    Returns:
        Calibrated probabilities `(N, K)`, and bool `(N,)`.
    """
    taken = rows[:, -1:]
    return rows[:, :-1] / np.where(taken < 1, 1 - taken, 1), rows[:, -1] > 0


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the places of the highest scores, the highest first.

    Ties go to the lower place.

    Args:
        scores: `(K,)`.
        count: At most so many are returned.
    """
    return np.argsort(-scores, kind="stable")[:count]


def array_of(value: object) -> np.ndarray:
    """Returns the array of a tensor or variable of Keras's backend; an array as it is."""
    if isinstance(value, np.ndarray):
        return value
    import keras

    if keras.backend.backend() == "tensorflow":
        return np.asarray(value)  # Keras's own function copies, of which NumPy 2 warns.
    return np.asarray(keras.ops.convert_to_numpy(value))


def predict_batch(model: Any, images: Any, rows: int = 0) -> np.ndarray:
    """Returns a model's outputs for a batch, compiled by XLA only where XLA works.

    Keras chooses XLA as soon as TensorFlow lists a device that is not a CPU. It then fails
    where TensorFlow has no XLA for the device that computes, as on the host of the TPU build.

    Args:
        model: A Keras model, another object with `predict_on_batch`, or an export in its own
            runtime, for which neither Keras nor TensorFlow is imported.
        images: `(B, H, W, C)`, preprocessed.
        rows: The size to which a smaller batch is filled up on JAX, which compiles for each size.
    """
    if hasattr(model, "takes_pixels"):
        return model.predict_on_batch(np.asarray(images))
    import keras

    from keras_vit.description.description import input_dtype
    from keras_vit.keras_private import xla_compiles

    count = len(images)
    if keras.backend.backend() != "tensorflow":
        if not hasattr(images, "sharding"):  # One of JAX may lie on the GPU already.
            images = np.asarray(images)  # Other backends take no tensors of tf.data.
        if rows > count and keras.backend.backend() == "jax":
            images = np.concatenate([images, np.repeat(images[-1:], rows - count, axis=0)])
    mesh = mesh_of(model) if keras.backend.backend() == "jax" else None
    if mesh is not None:
        return _predict_on_all(model, np.asarray(images), mesh)[:count]
    if is_sent():
        images = send(images, input_dtype(model))
    is_in_vain = getattr(model, "jit_compile", False) and not xla_compiles()
    if is_in_vain:
        model.jit_compile = False
    try:
        outputs = model.predict_on_batch(images)
    finally:
        if is_in_vain:
            model.jit_compile = True
    return array_of(outputs)[:count]


def is_sent() -> bool:
    """Returns whether images cross a bus to the GPU of JAX."""
    import keras

    from keras_vit.layers.fused_attention import compute_capability

    return keras.backend.backend() == "jax" and compute_capability() is not None


def send(array, compute_dtype: str):
    """Begins the transfer of an array to the devices; with several processes Keras does it."""
    import keras

    from keras_vit.layers.fused_attention import HALF_PRECISION

    if hasattr(array, "sharding"):  # JAX has it already.
        return array
    array = np.asarray(array)
    if compute_dtype in HALF_PRECISION and array.dtype == "float32":
        import tensorflow as tf

        array = tf.cast(array, compute_dtype).numpy()  # On all cores; NumPy casts on one.
    distribution = keras.distribution.distribution()
    if distribution is None:
        import jax

        return jax.device_put(array)
    if distribution.num_processes > 1:
        return array
    return keras.distribution.distribute_tensor(array, distribution.get_data_layout(array.shape))


def mesh_of(model):
    """Returns the mesh of JAX's devices, if the weights of a model lie on several; else None."""
    for variable in getattr(model, "variables", ()):
        sharding = getattr(variable.value, "sharding", None)
        if sharding is not None and sharding.num_devices > 1:
            return sharding.mesh
    return None


def _predict_on_all(model, images, mesh):
    """Each device computes some of the rows; every process has the images and gets all outputs.

    Keras's `predict_on_batch` computes the whole batch on every device, and cannot read the
    outputs of other processes.
    """
    import jax

    by_row = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(mesh.axis_names))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    padded = pad_rows(images, mesh.size)
    inputs = jax.make_array_from_callback(padded.shape, by_row, padded.__getitem__)
    if not hasattr(model, "predict_on_all"):
        model.predict_on_all = jax.jit(
            lambda trainable, others, inputs: model.stateless_call(
                trainable, others, inputs, training=False
            )[0],
            out_shardings=whole,
        )
    variables = model.trainable_variables, model.non_trainable_variables
    outputs = model.predict_on_all(*([v.value for v in part] for part in variables), inputs)
    return np.asarray(outputs)


def pad_rows(array: np.ndarray, multiple: int) -> np.ndarray:
    """Returns an array whose last row is repeated until a number divides its rows."""
    missing = -len(array) % multiple
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array
