"""Fast forms of the layers' computations: nothing here changes a result.

- TensorFlow runs a kernel for each operation. It fuses a product with its bias, its activation and
  a sum behind it if all of them are matrices, so blocks compute on rows; and XLA compiles the
  functions between the products, and their gradients, in training.
- JAX compiles the whole step, but keeps more for the backward pass than it needs.
- PyTorch runs all of Keras's Python at each step, which takes longer than a small model's
  arithmetic, and on a GPU longer than a large one's. `CalledDirectly` leaves most of it out.

Attention in one kernel of a GPU is in `fused_attention.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from keras_vit import keras_private
from keras_vit.layers.fused_attention import compute_capability

# Whether PyTorch computes the operations of Keras.
ON_PYTORCH = keras.backend.backend() == "torch"


class CalledDirectly(keras.layers.Layer):
    """A layer that other layers call without the machinery of Keras, on PyTorch.

    Around `call`, Keras converts inputs, builds, opens scopes and looks for masks and losses:
    500 calls of Python functions for each sublayer of each block. Where none of it has an effect
    within the call of another layer, as `keras_private.needs_only_call` finds out, `call` is
    called at once. That is never so for a subclass or a replacement by a user, nor for a layer
    that is quantised or has hooks of PyTorch. The results are the same.
    """

    if ON_PYTORCH:

        def __call__(self, *args, **kwargs):
            is_ours = type(self).__module__.startswith("keras_vit.layers.")
            if is_ours and keras_private.needs_only_call(self, args, kwargs):
                return self.call(*args, **kwargs)
            return super().__call__(*args, **kwargs)


def reshape(x, shape):
    """Returns a tensor in a shape, as `keras.ops.reshape`, which looks at each number of it."""
    return _tensor(x).reshape(shape) if ON_PYTORCH else ops.reshape(x, shape)


def add_branch(x, branch):
    """Returns x plus a residual branch, to which a `DTypePolicyMap` may give another precision."""
    return x + (branch if branch.dtype == x.dtype else ops.cast(branch, x.dtype))


def product_with_bias(rows, kernel, bias):
    """Returns `rows kernel + bias`, `(N, units)`, of rows `(N, D)` and tensors or variables."""
    if not ON_PYTORCH:
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


def as_rows(tokens):
    """Returns tokens `(B, N, D)` as the rows of a matrix, `(B N, D)`."""
    return reshape(tokens, (-1, tokens.shape[-1]))


class BlockCall(NamedTuple):
    """What the parts of a block share in one call.

    Args:
        training: Whether to drop.
        seed_of: Function from the name of a use of randomness to its seed, or None.
        shape: The shape of the tokens, `(B, N, D)`; its items may be scalar tensors.
        patches: The map `(B, down, across, D)` that the patches were made of, or None.
        return_attention: Whether the attention probabilities are asked for.
    """

    training: bool
    seed_of: Callable[[str], keras.KerasTensor | None]
    shape: tuple
    patches: keras.KerasTensor | None
    return_attention: bool


def call_on_rows(equations: Callable) -> Callable:
    """Returns the `call` of a block from its equations, as a decorator of a method.

    The equations get the tokens as rows `(B N, D)` and a `BlockCall`; they return rows and the
    attention probabilities, or None for these. With the field `remat` training computes them again
    in the backward pass, which takes less memory.
    """

    def call(self, tokens, training=False, return_attention=False, patches=None):
        # Drawn once, outside of what is computed again, which must see the same masks.
        seed_of = self.draw_seeds(training and self.config.is_random)

        def encode(z):
            shape = ops.shape(z)
            block_call = BlockCall(training, seed_of, shape, patches, return_attention)
            rows, attention = equations(self, as_rows(z), block_call)
            return reshape(rows, shape), attention

        if self.config.remat and training and not return_attention:
            return keras.remat(lambda z: encode(z)[0])(tokens)
        outputs, attention = encode(tokens)
        return (outputs, attention) if return_attention else outputs

    return call


_QUANTIZATIONS = ("int8", "int4", "float8")


def check_quantization(mode: str) -> None:
    """Raises ValueError for a way of quantising that Keras has for the blocks of language models.

    Args:
        mode: Such as "int8".
    """
    if mode not in _QUANTIZATIONS:
        raise ValueError(
            f"A Vision Transformer is quantised by one of {_QUANTIZATIONS}; Keras's others need "
            f"the texts and the blocks of a language model. Received: {mode!r}"
        )


class QuantizedSubclass(keras.layers.Layer):
    """Lets a subclass of one of Keras's dense layers be quantised as its base.

    Keras refuses subclasses, as it does not know what they compute.
    """

    def quantize(self, mode=None, type_check=True, config=None):
        check_quantization(mode)
        super().quantize(mode, type_check=False, config=config)


class RowProjection(QuantizedSubclass, CalledDirectly, keras.layers.EinsumDense):
    """An `EinsumDense` from or to heads that is one product of matrices, with rows as outputs.

    TensorFlow fuses such a product with its bias; an einsum is several operations. The kernel,
    its quantisation and its low-rank additions are the same as in `keras.layers.EinsumDense`.

    Call arguments:
        inputs: `(B, N, D)`, or `(B, N, k, D_h)`.
        scale: A number that multiplies the outputs.

    Output shape:
        `(B N, D)`.
    """

    def call(self, inputs, scale=1.0):
        kernel, bias = reshape(self.kernel, self._matrix), reshape(self.bias, (-1,))
        if scale != 1:  # The smallest tensors that it can go into.
            kernel, bias = kernel * scale, bias * scale
        return product_with_bias(reshape(inputs, (-1, self._matrix[0])), kernel, bias)

    def quantized_call(self, inputs, scale=1.0):
        return ops.reshape(super().quantized_call(inputs) * scale, (-1, self._matrix[1]))

    def build(self, input_shape):
        super().build(input_shape)
        units = math.prod(self.bias.shape)
        self._matrix = (math.prod(self.kernel.shape) // units, units)


class RowDense(QuantizedSubclass, CalledDirectly, keras.layers.Dense):
    """A dense layer of rows, `(N, D)`, with a bias."""

    def call(self, inputs, training=False):
        return product_with_bias(inputs, self.kernel, self.bias)


class ActivatedDense(RowDense):
    """A dense layer followed by an activation.

    Both in one layer, and so under one name: TensorFlow's graph optimizer visits operations in
    the order of their names, and fuses the two in inference only if they are neighbours.

    Args:
        units: Units of the output.
        function: The activation.
        training_function: The same for training, as `fused_in_training` returns it.
        **kwargs: Passed to `keras.layers.Dense`.
    """

    def __init__(self, units, function, training_function, **kwargs):
        super().__init__(units, **kwargs)
        self.function, self.training_function = function, training_function

    def call(self, inputs, training=False):
        return self._activate(super().call(inputs), training)

    def quantized_call(self, inputs, training=False):
        return self._activate(super().quantized_call(inputs, training=training), training)

    def _activate(self, outputs, training):
        return self.training_function(outputs) if training else self.function(outputs)


def fused_in_training(function: Callable) -> Callable:
    """Returns an activation for training, one kernel that keeps its inputs alone."""
    return keeping_inputs(compiled_in_training(function))


def compiled_in_training(function):
    """Returns the function compiled by XLA with its gradient, on TensorFlow.

    TensorFlow runs a kernel for each step of the function and of the chain rule, and keeps all
    intermediate values of the forward pass. Compiled, each direction is one kernel, and only the
    inputs are kept: a GELU takes a third of the time in training on a CPU. On JAX, which
    compiles the whole step, the function is returned unchanged; it is also called without
    compilation if XLA cannot compile for the device, as in TensorFlow's build for TPUs on their
    host. Compiled, it computes in float32 at least: XLA would round each step of it to bfloat16,
    which takes as long as the step.

    For training only: in inference TensorFlow fuses the function with its neighbours, which it
    cannot do here.

    Args:
        function: Takes tensors or variables by position and returns a tensor; made of
            Keras's differentiable operations.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    def in_float32(*inputs):
        wide = (tf.cast(x, keras.backend.result_type(x.dtype.name, "float32")) for x in inputs)
        return tf.cast(function(*wide), inputs[0].dtype)

    @tf.function(autograph=False, jit_compile=True)
    def differentiate(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = in_float32(*inputs)
        return tape.gradient(outputs, inputs, upstream)

    compiled = tf.function(in_float32, autograph=False, jit_compile=True)

    @tf.custom_gradient
    def differentiable(*inputs):
        return compiled(*inputs), lambda upstream: differentiate(inputs, upstream)

    def trained(*inputs):
        if not keras_private.xla_compiles():
            return function(*inputs)
        # Variables are read here; inside they would need a separate gradient function.
        return differentiable(*map(tf.convert_to_tensor, inputs))

    return trained


def keeping_inputs(function):
    """Returns the function whose gradient computes it again from its inputs, on JAX on a GPU.

    XLA keeps several tensors of a GELU for the backward pass, a fifth of the memory of training
    ViT-B/16; this keeps one. Numbers and second derivatives are the same, but JAX's forward mode
    (`jax.jvp`) cannot go through it. On a CPU or a TPU the function is called as it is.

    Args:
        function: Takes tensors by position and returns a tensor; made of Keras's differentiable
            operations.
    """
    if keras.backend.backend() != "jax":
        return function
    import jax

    kept = jax.custom_vjp(lambda *inputs: function(*inputs))  # Without its default arguments.

    def differentiate(inputs, upstream):
        # Without the barrier XLA finds the same operations in the forward pass, and keeps those.
        inputs = jax.lax.optimization_barrier(inputs)
        return jax.vjp(function, *inputs)[1](upstream)

    kept.defvjp(lambda *inputs: (function(*inputs), inputs), differentiate)
    return lambda *inputs: (function if compute_capability() is None else kept)(*inputs)
