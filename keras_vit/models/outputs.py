"""Outputs of a model for a batch, on the devices where its weights are.

Neither TensorFlow nor Keras is imported before a Keras model needs them: an export runs alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_vit.utils.quiet_tensorflow import without_retracing_remarks

if TYPE_CHECKING:
    import keras


def array_of(value: np.ndarray | keras.KerasTensor | keras.Variable) -> np.ndarray:
    """Returns the array of a tensor or variable of Keras's backend; an array as it is."""
    if isinstance(value, np.ndarray):
        return value
    import keras

    if keras.backend.backend() == "tensorflow":
        return np.asarray(value)  # Keras's own function copies, of which NumPy 2 warns.
    return np.asarray(keras.ops.convert_to_numpy(value))


def predict_batch(model: keras.Model, images: np.ndarray, rows: int = 0) -> np.ndarray:
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
        with without_retracing_remarks():
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
