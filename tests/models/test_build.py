"""The contract of a Keras application, on the plain Vision Transformer."""

import inspect

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit import applications
from makers import tiny_config

TINY = tiny_config(depth=2, mlp_dim=32)


def tiny(**arguments):
    return keras_vit.build(TINY, **{"input_shape": (12, 12, 3), "classes": 5, **arguments})


def images(*shape):
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def randomise(model, seed=0):
    """Gives every weight a random value, so that zeros of the start hide nothing."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    return model


def test_functions_have_the_signature_of_keras_applications():
    ours = inspect.signature(keras_vit.ViTB16).parameters
    theirs = inspect.signature(keras.applications.ResNet50).parameters
    assert list(ours) == [*theirs, "include_preprocessing"]
    assert {name: ours[name].default for name in ours} == {
        **{name: theirs[name].default for name in theirs},
        "name": "vit_b16",
        "include_preprocessing": False,
    }


def test_every_listed_model_has_a_function_with_a_docstring():
    half_width = {"ViT-b/16", "ViT-b/32"}  # One letter's case is 22 and 87 million parameters.
    for model in {*keras_vit.list_models()} - half_width:
        function = getattr(applications, applications.function_name(model))
        assert function.__name__ == applications.function_name(model)
        assert model in function.__doc__


def test_another_activation_with_weights_is_refused_as_by_keras(tmp_path):
    for application in (keras_vit.ViTTi16, keras.applications.MobileNet):
        with pytest.raises(ValueError, match="`classifier_activation`"):
            application(weights="imagenet", classifier_activation="sigmoid")
    # Without weights; also with classes as a number of NumPy.
    tiny(classifier_activation="sigmoid", classes=np.int64(5)).save_weights(
        tmp_path / "a.weights.h5"
    )
    for activation in ("softmax", None, "linear", keras.activations.softmax):
        tiny(weights=tmp_path / "a.weights.h5", classifier_activation=activation)


def test_layer_names_are_those_of_the_format():
    model = tiny(representation_size=7)
    assert {layer.name for layer in model.layers} >= {
        "patch_embedding", "class_token", "position_embedding", "encoder_block_0",
        "encoder_block_1", "encoder_norm", "pre_logits", "predictions",
    }  # fmt: skip
    assert model.get_layer("encoder_norm").output.shape == (None, 10, 16)


def test_without_pooling_the_patch_tokens_are_a_map():
    model = randomise(tiny(include_top=False, input_shape=(8, 16, 3)))
    assert model.output_shape == (None, 2, 4, 16)
    inside = keras.Model(model.input, model.get_layer("encoder_norm").output)
    batch = images(2, 8, 16, 3)
    np.testing.assert_array_equal(
        array(model(batch)).reshape(2, 8, 16), array(inside(batch))[:, 1:]
    )


def test_a_size_that_the_patch_does_not_divide_is_floored_as_a_valid_convolution_does():
    with pytest.warns(UserWarning, match=r"\(14, 15\) .*\(12, 12\)") as warned:
        whole, rest = randomise(tiny()), randomise(tiny(input_shape=(14, 15, 3)))
    assert len(warned) == 1
    batch = images(2, 14, 15, 3)
    np.testing.assert_allclose(array(rest(batch)), array(whole(batch[:, :12, :12])), atol=1e-6)


def test_input_tensor_keeps_the_layers_before_it():
    inputs = keras.Input((24, 24, 4))
    reduced = keras.layers.Conv2D(3, 2, 2)(inputs)
    model = tiny(input_tensor=reduced, input_shape=None)
    assert model.input_shape == (None, 24, 24, 4)
    assert any(isinstance(layer, keras.layers.Conv2D) for layer in model.layers[:2])
    assert model(images(1, 24, 24, 4)).shape == (1, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_shape": (2, 12, 3)}, "4x4 pixels"),
        ({"input_shape": (None, None, 3)}, "`include_top` .*image size"),
        ({"input_shape": (12, 12)}, r"input_shape .*: \(12, 12\)"),
        ({"classes": 0}, "classes=0"),
        ({"classes": 3.9}, "classes=3.9"),
        ({"classes": "10"}, "classes='10'"),
        ({"classifier": "gap", "include_top": False, "pooling": "token"}, "pooling='token'"),
        ({"pooling": "mean"}, "pooling='mean'"),
        ({"pooling": "avg"}, "include_top=True, pooling='avg'"),
        ({"weights": "imagenet"}, "`classes` should be 1000"),
        ({"weights": "hf:owner"}, "must be hf:OWNER/NAME"),
        ({"input_shape": 224}, r"\(height, width, channels\), .*224$"),
        ({"wings": 3}, "ViTConfig.*: wings"),
        ({"num_classes": 3}, "num_classes is called classes"),
        ({"num_heads": 3}, "heads .*num_heads=3"),
        ({"dropout_rate": 1.5}, "dropout_rate=1.5"),
        ({"gelu": "erf"}, "gelu='erf'"),
    ],
)
def test_wrong_arguments_are_refused_with_what_would_be_right(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny(**arguments)


def test_channels_first_is_refused():
    keras.config.set_image_data_format("channels_first")
    try:
        with pytest.raises(ValueError, match="channels_last"):
            tiny()
    finally:
        keras.config.set_image_data_format("channels_last")


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_keeps_softmax_and_norm_statistics_in_float32(policy):
    full = randomise(tiny())
    keras.config.set_dtype_policy(policy)
    try:
        model = randomise(tiny())
    finally:
        keras.config.set_dtype_policy("float32")
    tokens = keras.ops.cast(images(1, 10, 16) + 100, model.compute_dtype)
    _, attention = model.get_layer("encoder_block_0")(tokens, return_attention=True)
    assert keras.backend.standardize_dtype(attention.dtype) == "float32"
    np.testing.assert_allclose(array(attention).sum(axis=-1), 1, rtol=1e-6)
    norm = model.get_layer("encoder_norm")
    expected = full.get_layer("encoder_norm")(keras.ops.cast(tokens, "float32"))
    np.testing.assert_allclose(
        array(norm(tokens)).astype("float32"), array(expected), atol=0.02, rtol=0.01
    )


def test_weights_start_as_in_the_official_code():
    model = keras_vit.build(TINY, width=64, input_shape=(64, 64, 3), representation_size=256)
    weights = {variable.path: np.array(variable) for variable in model.weights}
    # LeCun normal: variance 1 / inputs; a patch of 4x4 pixels and 3 channels has 48.
    assert weights["patch_embedding/kernel"].std() == pytest.approx(1 / 48**0.5, rel=0.05)
    assert weights["pre_logits/kernel"].std() == pytest.approx(1 / 64**0.5, rel=0.05)
    positions = weights["position_embedding/embedding"]
    assert positions.shape == (1, 257, 64)
    assert positions.std() == pytest.approx(0.02, rel=0.05)
    for path in ("class_token/token", "predictions/kernel", "predictions/bias"):
        assert not weights[path].any()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"weigths": "cifar10"}, "weigths is called weights here"),
        ({"weights": "cifar10", "clases": 3}, "clases is called classes here"),
        ({"name_or_config": "ViT-Ti/16", "include_topp": False}, "called include_top here"),
        ({"name_or_config": "ViT-Ti/16", "depht": 3}, "depht is called depth here"),
        ({"name_or_config": "BiT-R50x1", "width_factors": 3}, "called width_factor here"),
    ],
)
def test_a_slip_in_an_argument_is_answered(wrong, right):
    with pytest.raises(ValueError, match=f"{right}.*Received"):
        keras_vit.build(**wrong)


@pytest.mark.filterwarnings("ignore:.*legacy:UserWarning")
@pytest.mark.parametrize("classifier", ["token", "token+gap", "token+distillation", "map"])
def test_an_older_file_of_keras_keeps_the_model(classifier, tmp_path):
    config = tiny_config(patch_size=8, classifier=classifier, num_registers=1)
    model = keras_vit.build(config, input_shape=(16, 16, 3), classes=3)
    for number, weight in enumerate(model.weights):
        weight.assign(weight + np.random.RandomState(number).normal(0, 0.3, weight.shape))
    model.save(tmp_path / "model.h5")
    images = np.random.RandomState(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    loaded = keras.saving.load_model(tmp_path / "model.h5")
    np.testing.assert_array_equal(array(loaded(images)), array(model(images)))


def test_a_model_is_built_within_kerass_remat_scope():
    with keras.RematScope(mode="full"):
        model = keras_vit.build(tiny_config(patch_size=8), input_shape=(16, 16, 3), classes=3)
    np.testing.assert_allclose(array(model(np.zeros((1, 16, 16, 3)))), np.full((1, 3), 1 / 3))
