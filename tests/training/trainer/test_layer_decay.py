"""Layer-wise decay: which layer a weight is of, and the steps that follow."""

import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import configs
from keras_vit.training import SGD, Adam
from keras_vit.training.trainer.optimizer import layer_numbers
from makers import tiny_config

VIT = tiny_config(width=8, depth=2, representation_size=8, num_registers=1)


def layers_of(config, size=8):
    """Returns the layer of each weight by the name of the Keras layer."""
    model = keras_vit.build(config, input_shape=(size, size, 3), classes=3)
    paths = [weight.path for weight in model.trainable_variables]
    names = [path.split("/")[0] for path in paths]
    return dict(zip(names, layer_numbers(paths), strict=True))


def test_a_vision_transformer_counts_from_the_patches_to_the_head():
    assert layers_of(VIT) == {
        "patch_embedding": 0,
        "registers": 0,
        "class_token": 0,
        "position_embedding": 0,
        "encoder_block_0": 1,
        "encoder_block_1": 2,
        "encoder_norm": 3,
        "pre_logits": 3,
        "predictions": 3,
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (configs.AxialConfig(4, 8, 2, 16, 2), {"row_block_1": 2, "column_block_1": 2}),
        (
            tiny_config(patch_size=1, width=8, resnet=configs.ResNetStem((1, 1), 0.5)),
            {"root_conv": 0, "block_2_unit_1": 0, "encoder_block_0": 1, "predictions": 2},
        ),
        (
            configs.BiTConfig((1, 1), 0.5),
            {"root_conv": 0, "block_1_unit_1": 1, "block_2_unit_1": 2, "final_norm": 3},
        ),
        (
            tiny_config(width=8, depth=2, position_embedding_at="every_block"),
            {"position_embedding_0": 0, "position_embedding_1": 1, "encoder_block_1": 2},
        ),
        (tiny_config(width=8, classifier="map"), {"map_head": 2}),
    ],
    ids=["axial", "hybrid", "resnet", "every block", "map"],
)
def test_every_architecture_has_its_layers(config, expected):
    found = layers_of(config, 16)
    assert {name: found[name] for name in expected} == expected
    assert found["predictions"] == max(found.values())


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.1, weight_decay=0.3, layer_decay=0.75, global_clipnorm=None),
        lambda: Adam(0.1, weight_decay=0.3, weight_decay_times="schedule", layer_decay=0.75),
    ],
    ids=["sgd", "adam"],
)
def test_steps_are_those_of_a_loop(make):
    keras.utils.set_random_seed(0)
    model = keras_vit.build(VIT, input_shape=(8, 8, 3), classes=3)
    optimizer = make()
    adam = isinstance(optimizer, Adam)
    rng = np.random.default_rng(0)
    expected, moments = {}, {}
    assert len(model.trainable_variables)
    for variable in model.trainable_variables:
        expected[variable.path] = np.array(variable).astype("float64")
        moments[variable.path] = [0.0, 0.0]
    for step in range(1, 4):
        gradients = [rng.normal(size=v.shape) for v in model.trainable_variables]
        optimizer.apply(
            [keras.ops.convert_to_tensor(g, "float32") for g in gradients],
            model.trainable_variables,
        )
        for path, gradient in zip(list(expected), gradients, strict=True):
            block = re.match(r"encoder_block_(\d+)/", path)
            is_head = path.startswith(("encoder_norm", "pre_logits", "predictions"))
            layer = int(block[1]) + 1 if block else 3 if is_head else 0
            first, second = moments[path]
            if adam:
                first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
                direction = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
                strength = 0.3
            else:
                first = direction = 0.9 * first + gradient
                strength = 0.1 * 0.3
            moments[path] = [first, second]
            decay = strength * expected[path] if path.endswith("kernel") else 0.0
            expected[path] = expected[path] - 0.75 ** (3 - layer) * (0.1 * direction + decay)
    for variable in model.trainable_variables:
        np.testing.assert_allclose(variable, expected[variable.path], atol=2e-5)
