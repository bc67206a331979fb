"""Precision of single layers by the paths of a `DTypePolicyMap`, as Keras's own layers take it."""

import keras
import numpy as np
import pytest
from keras.dtype_policies import DTypePolicy, DTypePolicyMap

import keras_vit
from by_hand import array

SIZES = {"patch_size": 8, "width": 16, "depth": 1, "mlp_dim": 16, "num_heads": 2}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
KINDS = {
    "learned": keras_vit.ViTConfig(**SIZES, layer_scale=True, dropout_rate=0.1),
    "relative": keras_vit.ViTConfig(**SIZES, position_embedding="relative", classifier="map"),
    "ResNet": keras_vit.configs.BiTConfig((1,), 1),
}
PATHS = {
    "learned": (
        ".*encoder_block_0.*",
        "encoder_block_0",
        "encoder_block_0/attention",
        "encoder_block_0/attention/query",
        "encoder_block_0/mlp/dense_2",
        "encoder_block_0/norm_1",
    ),
    "relative": ("encoder_block_0/attention/query", "map_head", "map_head/key"),
    "ResNet": (".*block_1_unit_1.*", "block_1_unit_1", "block_1_unit_1/conv_3"),
}


def build(config, policy):
    keras.utils.set_random_seed(0)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = keras_vit.build(config, classes=3, input_shape=(32, 32, 3))
    finally:
        keras.config.set_dtype_policy(before)
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + generator.normal(0, 0.1, weight.shape))
    return model


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """A name of the table and its answers in float32."""
    return request.param, array(build(KINDS[request.param], "float32")(IMAGES))


def test_a_layer_of_a_block_computes_in_the_precision_of_its_path(kind):
    name, expected = kind
    for path in PATHS[name]:
        policies = DTypePolicyMap(default_policy="float32")
        policies[path] = DTypePolicy("mixed_bfloat16")
        model = build(KINDS[name], policies)
        np.testing.assert_allclose(array(model(IMAGES)), expected, atol=0.02, err_msg=path)
        model(IMAGES, training=True)


def test_all_parts_of_a_block_have_a_path_before_the_first_call():
    policies = DTypePolicyMap(default_policy="float32")
    policies[".*encoder_block_0.*"] = DTypePolicy("mixed_bfloat16")
    block = build(KINDS["learned"], policies).get_layer("encoder_block_0")
    parts = (block.dropout, block.stochastic_depth, block.attention.dropout, block.mlp.dropout_1)
    assert {part.compute_dtype for part in parts} == {"bfloat16"}
