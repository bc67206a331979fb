"""Names of layers, which users add their own layers to."""

import inspect

import keras
import numpy as np
import pytest
from keras import layers
from keras.src.utils.naming import to_snake_case

import keras_vit
from by_hand import array
from keras_vit.configs import MODELS, AxialConfig
from keras_vit.models.rebuild import with_unknown, without_unknown
from keras_vit.training.run.masked_patches import TARGETS, masked_patch_model

SIZES = {"patch_size": 8, "width": 16, "depth": 2, "mlp_dim": 16, "num_heads": 2}
# The name that Keras gives the first layer of each class.
MADE = {to_snake_case(kind.__name__) for _, kind in inspect.getmembers(layers, inspect.isclass)}


def small(name):
    """A model of the table with the fewest blocks, without its head."""
    config = MODELS[name]
    changes = {"num_blocks": (1, 1)} if not hasattr(config, "patch_size") else {"depth": 1}
    return keras_vit.build(name, include_top=False, input_shape=(64, 64, 3), **changes)


def built(kind=keras_vit.ViTConfig, include_top=True, **fields):
    options = {"classes": 3} if include_top else {"include_top": False, **fields.pop("options", {})}
    return keras_vit.build(kind(**{**SIZES, **fields}), input_shape=(32, 32, 3), **options)


VARIANTS = {
    "all layers": lambda: built(
        classifier="token+gap", num_registers=1, representation_size=8, embedding_norm=True
    ),
    "distilled": lambda: built(classifier="token+distillation"),
    "map": lambda: built(classifier="map"),
    "max": lambda: built(classifier="max"),
    "pooled norm": lambda: built(classifier="gap", final_norm="pooled"),
    "axial": lambda: built(AxialConfig),
    "positions in every block": lambda: built(position_embedding_at="every_block"),
    "average": lambda: built(include_top=False, options={"pooling": "avg"}),
    "largest": lambda: built(include_top=False, options={"pooling": "max"}),
    "unknown": lambda: with_unknown(built(), 1.0, 0.5),
    "masked patches": lambda: masked_patch_model(
        keras_vit.ViTConfig(**SIZES),
        image_size=(32, 32),
        target=next(iter(TARGETS)),
        corruption=0.5,
    ),
}


@pytest.mark.parametrize("name", [*VARIANTS, "ViT-Ti/16", "R50+ViT-B/16", "R7+ViT-Nano/8"])
def test_no_layer_has_a_name_that_keras_gives_the_first_of_a_class(name):
    model = VARIANTS[name]() if name in VARIANTS else small(name)
    assert not MADE & {layer.name for layer in model.layers}


@pytest.mark.parametrize("name", ["BiT-R50x1", "Axial-ResNet50"])
def test_no_layer_of_a_resnet_has_such_a_name(name):
    assert not MADE & {layer.name for layer in small(name).layers}


def test_a_head_with_dropout_goes_on_a_body():
    keras.backend.clear_session()
    body = built(include_top=False, options={"pooling": "token"})
    head = layers.Dense(3)(layers.Dropout(0.5)(layers.Dense(8)(layers.Flatten()(body.output))))
    assert keras.Model(body.input, head).output_shape == (None, 3)


def test_a_file_whose_layers_have_an_older_name_is_read():
    classifier = keras_vit.load_classifier("vit_mini4_cifar10")
    assert "dropout" in {layer.name for layer in classifier.model.layers}
    model = keras_vit.build(weights="vit_mini4_cifar10")
    assert "dropout" not in {layer.name for layer in model.layers}
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    expected = array(without_unknown(classifier.model)(images))
    np.testing.assert_allclose(array(model(images)), expected, atol=1e-6)
