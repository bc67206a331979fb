"""Elementwise functions that XLA compiles in training, with their gradients."""

import keras


def compiled_in_training(function):
    """Returns the function compiled by XLA with its gradient, on TensorFlow.

    TensorFlow runs a kernel for each step of the function and of the chain rule, and keeps all
    intermediate values of the forward pass. Compiled, each direction is one kernel, and only the
    inputs are kept: a GELU takes a third of the time in training on a CPU. On JAX, which
    compiles the whole step, the function is returned unchanged; it is also called without
    compilation if XLA cannot compile for the device, as in TensorFlow's build for TPUs on their
    host.

    For training only: in inference TensorFlow fuses the function with its neighbours, which it
    cannot do here.

    Args:
        function: Takes tensors or variables by position and returns a tensor; made of
            Keras's differentiable operations.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    @tf.function(autograph=False, jit_compile=True)
    def differentiate(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs)
        return tape.gradient(outputs, inputs, upstream)

    compiled = tf.function(function, autograph=False, jit_compile=True)

    @tf.custom_gradient
    def differentiable(*inputs):
        return compiled(*inputs), lambda upstream: differentiate(inputs, upstream)

    def trained(*inputs):
        # Not above: that module may be the first to import Keras, which imports the layers.
        from keras_vit.keras_private import xla_compiles

        if not xla_compiles():
            return function(*inputs)
        # Variables are read here; inside they would need a separate gradient function.
        return differentiable(*map(tf.convert_to_tensor, inputs))

    return trained
