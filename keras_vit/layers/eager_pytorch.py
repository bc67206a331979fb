"""Less Python around each operation on PyTorch, which runs all of it at each step.

TensorFlow and JAX run Python once, for the program that they compile. On PyTorch the Python of
Keras takes longer than a small model's arithmetic, and on a GPU longer than a large one's. The
functions here are the ones of `keras.ops` on other backends.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_vit import keras_private


class CalledDirectly(keras.layers.Layer):
    """A layer that other layers call without the machinery of Keras, on PyTorch.

    Around `call`, Keras converts inputs, builds, opens scopes and looks for masks and losses:
    500 calls of Python functions for each sublayer of each block. Where none of it has an effect
    within the call of another layer, as `keras_private.needs_only_call` finds out, `call` is
    called at once. That is never so for a subclass or a replacement by a user, nor for a layer
    that is quantised or has hooks of PyTorch. The results are the same.
    """

    if keras.backend.backend() == "torch":

        def __call__(self, *args, **kwargs):
            is_ours = type(self).__module__.startswith("keras_vit.layers.")
            if is_ours and keras_private.needs_only_call(self, args, kwargs):
                return self.call(*args, **kwargs)
            return super().__call__(*args, **kwargs)


def on_pytorch() -> bool:
    """Returns whether PyTorch computes the operations of Keras."""
    return keras.backend.backend() == "torch"


def reshape(x, shape):
    """Returns a tensor in a shape, as `keras.ops.reshape`, which looks at each number of it."""
    return _tensor(x).reshape(shape) if on_pytorch() else ops.reshape(x, shape)


def product_with_bias(rows, kernel, bias):
    """Returns `rows kernel + bias`, `(N, units)`, of rows `(N, D)` and tensors or variables."""
    if not on_pytorch():
        return ops.add(ops.matmul(rows, kernel), bias)
    import torch

    return torch.addmm(_tensor(bias), rows, _tensor(kernel))


def layer_norm(tokens, gamma, beta, epsilon):
    """Returns tokens `(..., D)` normalised by one operation of PyTorch, in float32."""
    import torch

    tokens, gamma, beta = (_tensor(x).to(torch.float32) for x in (tokens, gamma, beta))
    return torch.layer_norm(tokens, gamma.shape, gamma, beta, epsilon)


def _tensor(x):
    """Returns a tensor as it is, or a variable's value in the precision of the current layer."""
    return x.value if isinstance(x, keras.Variable) else x
