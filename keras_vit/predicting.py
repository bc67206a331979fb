"""A model's outputs for a batch, on every build of TensorFlow."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit.layers.compiled_gradient import xla_compiles


def predict_batch(model: Any, images: Any) -> np.ndarray:
    """Returns a model's outputs for a batch, without XLA where it does not compile.

    Keras compiles of its own accord as soon as TensorFlow lists a device that is not a CPU,
    also where it has no XLA for the one that computes, as TensorFlow's build for TPUs on
    their host, and then fails.

    Args:
        model: A Keras model, or another object with `predict_on_batch`.
        images: `(B, H, W, C)`, prepared as the model takes them.
    """
    if getattr(model, "jit_compile", False) and not xla_compiles():
        model.jit_compile = False
    return np.asarray(keras.ops.convert_to_numpy(model.predict_on_batch(images)))
