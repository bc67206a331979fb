import contextlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training import Adam, Muon
from keras_vit.training.trainer.optimizer import matrix_shape

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape).astype("float32")


def stepped(optimizer, path, start, gradients):
    """Returns a weight after some steps."""
    *layers, name = path.split("/")
    with contextlib.ExitStack() as scopes:
        for layer in layers:
            scopes.enter_context(keras.name_scope(layer))
        variable = keras.Variable(start, name=name)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    return keras.ops.convert_to_numpy(variable)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_steps_of_a_matrix_are_those_of_keras(shape):
    start, gradients = numbers(*shape), [numbers(*shape) for _ in range(4)]
    theirs = keras.optimizers.Muon(0.1, weight_decay=None, adam_weight_decay=None)
    expected = stepped(theirs, "mlp/kernel", start, gradients)
    found = stepped(Muon(0.1), "mlp/kernel", start, gradients)
    np.testing.assert_allclose(found, expected, atol=1e-5)  # float32, 20 iterations.


@pytest.mark.parametrize(
    ("path", "shape", "expected"),
    [
        ("block_1_unit_1/conv_1/kernel", (3, 3, 5, 8), (45, 8)),
        ("encoder_block_0/attention/query/kernel", (12, 3, 4), (12, 12)),
        ("encoder_block_0/attention/out/kernel", (3, 4, 12), (12, 12)),
        ("encoder_block_0/mlp/dense_1/kernel", (12, 48), (12, 48)),
    ],
)
def test_a_kernel_is_a_matrix_of_its_inputs_and_outputs(path, shape, expected):
    assert matrix_shape(path, shape) == expected
    start, gradient = numbers(*shape), numbers(*shape)
    found = stepped(Muon(0.1), path, start, [gradient])
    flat = stepped(Muon(0.1), "dense/kernel", start.reshape(expected), [gradient.reshape(expected)])
    np.testing.assert_allclose(found.reshape(expected), flat, atol=1e-5)


def test_all_weights_of_a_model_but_hidden_kernels_take_steps_of_adam():
    config = keras_vit.ViTConfig(4, 8, 1, 16, 2)
    model = keras_vit.build(config, input_shape=(8, 8, 3), classes=3)
    optimizer = Muon(0.1)
    optimizer.build(model.trainable_variables)
    hidden = [
        v.path
        for v, matrix in zip(model.trainable_variables, optimizer.matrices, strict=True)
        if matrix
    ]
    kernels = [v.path for v in model.trainable_variables if v.path.endswith("kernel")]
    assert set(kernels) - set(hidden) == {"predictions/kernel"}
    assert set(hidden) < set(kernels)
    start, gradients = numbers(8, 3), [numbers(8, 3) for _ in range(3)]
    np.testing.assert_array_equal(
        stepped(Muon(0.1, weight_decay=0.1), "predictions/kernel", start, gradients),
        stepped(Adam(0.1, weight_decay=0.1), "predictions/kernel", start, gradients),
    )
