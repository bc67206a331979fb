import dataclasses
import itertools

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import configs
from keras_vit.configs.recognition import config_of
from makers import tiny_config

SMALL = tiny_config(width=8, mlp_dim=12)
SHAPE = (8, 13, 3)  # A grid of 2 x 3, and a rest that is cut off.


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def images(channels=3):
    return np.random.RandomState(1).standard_normal((2, *SHAPE[:2], channels)).astype("float32")


def built(config=SMALL, **arguments):
    arguments = {"input_shape": SHAPE, "classes": 5, **arguments}
    model = keras_vit.build(config, **arguments)
    rng = np.random.RandomState(0)
    for weight in model.weights:
        if "seed_generator" not in weight.path:
            weight.assign(0.5 * rng.standard_normal(weight.shape))
    return model


def tokens_of(model, x):
    return array(keras.Model(model.input, model.get_layer("encoder_norm").output)(x))


def dense(layer, x):
    return x @ array(layer.kernel) + array(layer.bias)


def representation(classifier, model, tokens, num_registers):
    """What the head reads."""
    if classifier == "token":
        return tokens[:, 0]
    patches = tokens[:, num_registers:]
    return patches.mean(1) if classifier == "gap" else array(model.get_layer("map_head")(patches))


@pytest.mark.parametrize("num_registers", [0, 3])
@pytest.mark.parametrize("classifier", ["token", "gap", "map"])
def test_the_head_reads_what_the_config_says_and_no_register(classifier, num_registers):
    model = built(
        classifier=classifier,
        num_registers=num_registers,
        representation_size=7,
        classifier_activation=None,
    )
    tokens = tokens_of(model, images())
    assert tokens.shape[1] == 6 + num_registers + (classifier == "token")
    hidden = representation(classifier, model, tokens, num_registers)
    hidden = np.tanh(dense(model.get_layer("pre_logits"), hidden))
    expected = dense(model.get_layer("predictions"), hidden)
    np.testing.assert_allclose(array(model(images())), expected, rtol=1e-4, atol=1e-5)


def test_registers_stand_between_the_class_token_and_the_patches():
    model = built(num_registers=3, position_embedding="none")
    before = array(keras.Model(model.input, model.get_layer("dropout").output)(images()))
    np.testing.assert_array_equal(before[0, :1], array(model.get_layer("class_token").token)[0])
    np.testing.assert_array_equal(before[0, 1:4], array(model.get_layer("registers").tokens)[0])
    patches = array(model.get_layer("patch_embedding")(images())).reshape(2, 6, 8)
    np.testing.assert_allclose(before[:, 4:], patches, atol=1e-6)


def test_features_are_those_of_the_patches_behind_the_registers():
    model = built(num_registers=3, include_top=False)
    tokens = tokens_of(model, images())
    np.testing.assert_array_equal(array(model(images())), tokens[:, 4:].reshape(2, 2, 3, 8))


def test_two_heads_predict_by_the_mean_of_their_logits():
    model = built(classifier="token+distillation", classifier_activation="softmax")
    tokens = tokens_of(model, images())
    logits = [
        dense(model.get_layer(f"{name}_head"), tokens[:, index])
        for index, name in enumerate(("class_token", "distillation_token"))
    ]
    exponentials = np.exp(np.mean(logits, axis=0))
    expected = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(array(model(images())), expected, atol=1e-5)
    assert model.layers[-1].name == "predictions"
    assert model.layers[-1].activation is keras.activations.softmax


def test_training_with_a_teacher_takes_the_logits_of_both_heads():
    model = built(classifier="token+distillation")
    names = tiny_config(width=8, mlp_dim=12, classifier="token+distillation").class_tokens
    student = keras.Model(model.input, [model.get_layer(f"{n}_head").output for n in names])
    one, other = student(images(), training=True)
    mean = keras.ops.softmax((one + other) / 2)
    trained = model(images(), training=True)  # One output in training too.
    np.testing.assert_allclose(array(trained), array(mean), atol=1e-6)


def test_two_heads_have_no_representation_layer():
    with pytest.raises(ValueError, match="no representation layer. Received.*=7"):
        dataclasses.replace(SMALL, classifier="token+distillation", representation_size=7)


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (SMALL, ["predictions"]),
        (
            dataclasses.replace(SMALL, classifier="token+distillation"),
            ["class_token_head", "distillation_token_head"],
        ),
        (keras_vit.BiTConfig((1,), 0.5), ["predictions"]),
    ],
)
def test_the_head_starts_at_zero_with_the_bias_that_is_asked_for(config, heads):
    model = keras_vit.build(config, input_shape=SHAPE, classes=5, head_bias=-10.0)
    for name in heads:
        np.testing.assert_array_equal(array(model.get_layer(name).kernel), 0)
        np.testing.assert_array_equal(array(model.get_layer(name).bias), -10)


def test_a_negative_number_of_registers_is_refused():
    with pytest.raises(ValueError, match="must be 0 or more. Received: num_registers=-1"):
        dataclasses.replace(SMALL, num_registers=-1)


def test_a_model_without_class_token_refuses_it_by_name():
    with pytest.raises(ValueError, match="needs a model with a class token"):
        keras_vit.build(SMALL, classifier="map", include_top=False, pooling="token")


# Each option at least once, and with others.
VARIANTS = {
    "learned_2d, every_block, gap": SMALL.__class__(
        4, 8, 2, 12, 2, classifier="gap", position_embedding="learned_2d",
        position_embedding_at="every_block", representation_size=6, dropout_rate=0.1,
    ),
    "relative, registers": dataclasses.replace(
        SMALL, depth=2, position_embedding="relative", num_registers=2, attention_dropout_rate=0.1
    ),
    "learned_2d, shared, distillation, registers": keras_vit.ViTConfig(
        4, 8, 2, 12, 2, classifier="token+distillation", position_embedding="learned_2d",
        position_embedding_at="every_block_shared", num_registers=2,
    ),
    "hybrid, relative, map": dataclasses.replace(
        SMALL, patch_size=1, classifier="map", position_embedding="relative",
        resnet=keras_vit.ResNetStem((), 0.5),
    ),
    "axial, relative, token": keras_vit.AxialConfig(
        4, 8, 1, 12, 2, classifier="token", position_embedding="relative", num_registers=1
    ),
    "axial, none, map": keras_vit.AxialConfig(
        4, 8, 1, 12, 2, classifier="map", position_embedding="none", gelu="exact"
    ),
    "axial resnet": keras_vit.AxialResNetConfig((1, 1), 0.5, num_heads=4),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(VARIANTS))
def config(request):
    return VARIANTS[request.param]


@pytest.fixture(scope="module")
def model(config):
    return built(config)


def test_every_weight_of_a_variant_has_a_gradient(config, loss_and_gradients):
    model = built(config, classifier_activation=None)
    _, gradients = loss_and_gradients(model, images(), np.array([1, 3]))
    unseen = [path for path, gradient in gradients.items() if np.abs(gradient).max() == 0]
    if config.has_class_token and config.position_embedding == "relative":
        # Offsets are of patches, and of the last block the head reads the class token alone.
        last = {"vit": "encoder_block_1", "axial_vit": "column_block_0"}[config.architecture]
        assert unseen == [f"{last}/attention/offset_embedding"]
    else:
        assert unseen == []


def test_a_variant_is_the_same_after_saving_and_loading(model, config, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(loaded(images())), array(model(images())))
    assert config_of(loaded) == config


def test_a_variant_predicts_in_float32_with_half_precision_inside(config):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras_vit.build(config, input_shape=SHAPE, classes=5)
    finally:
        keras.config.set_dtype_policy("float32")
    scores = model(images())
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"
    np.testing.assert_allclose(array(scores), 0.2, atol=1e-6)  # The head starts at zero.
    last = model.get_layer("encoder_norm" if hasattr(config, "mlp_dim") else "final_norm")
    assert last.compute_dtype == "bfloat16"


def test_a_variant_has_every_pooling_at_any_size_and_number_of_channels(config):
    free = (None, None, 1)
    features = built(config, include_top=False, input_shape=free)
    expected = array(features(images(1)))
    assert expected.ndim == 4
    for pooling, reduce in (("avg", np.mean), ("max", np.max)):
        model = built(config, include_top=False, input_shape=free, pooling=pooling)
        model.set_weights(features.get_weights())
        pooled = reduce(expected, axis=(1, 2))
        np.testing.assert_allclose(array(model(images(1))), pooled, rtol=1e-4, atol=1e-5)
    if config.has_class_token:
        model = built(config, include_top=False, input_shape=free, pooling="token")
        np.testing.assert_array_equal(array(model(images(1))), tokens_of(model, images(1))[:, 0])


def test_vit_b_of_figure_4_halves_every_hidden_dimension():
    for patch in (16, 32):
        small, base = (configs.MODELS[f"ViT-{size}/{patch}"] for size in "bB")
        assert (2 * small.width, 2 * small.mlp_dim) == (base.width, base.mlp_dim)
        assert (small.depth, small.num_heads) == (base.depth, base.num_heads)
        name = f"ViTb{patch}"
        assert getattr(keras_vit, name).__name__ == name
        assert configs.layer_name(f"ViT-b/{patch}") == f"vit_half_b{patch}"


def test_a_misspelt_name_gets_both_of_those_that_differ_in_case():
    with pytest.raises(ValueError, match=r"Nearest: .*ViT-b/16, ViT-B/16"):
        configs.resolve("vit-b/16")


def test_lines_of_the_shape_study_meet_at_the_base():
    study = keras_vit.shape_study()
    base = keras_vit.ViTConfig(32, 1024, 8, 2048, 16)
    assert set(study) == {"depth", "width", "mlp", "patch", "all"}
    assert all(line[1] == base for line in study.values())


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("depth", {"depth": 16}),
        ("width", {"width": 2048, "num_heads": 32}),
        ("mlp", {"mlp_dim": 4096}),
        ("patch", {"patch_size": 16}),
        (
            "all",
            {"depth": 16, "width": 2048, "num_heads": 32, "mlp_dim": 4096, "patch_size": 16},
        ),
    ],
)
def test_a_line_of_the_shape_study_scales_its_sizes_alone(line, changed):
    study = keras_vit.shape_study()
    assert study[line][2] == dataclasses.replace(configs.SHAPE_STUDY_BASE, **changed)
    costs = [keras_vit.describe(config).flops for _, config in sorted(study[line].items())]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(costs))


def test_a_factor_that_divides_a_layer_is_refused():
    with pytest.raises(ValueError, match="whole number. Received: factor=0.3"):
        keras_vit.shape_study([0.3])


def test_both_heads_start_at_the_bias_of_the_recipe():
    model = keras_vit.build(
        SMALL, classifier="token+distillation", input_shape=SHAPE, classes=5, head_bias=-10.0
    )
    for name in ("class_token_head", "distillation_token_head"):
        np.testing.assert_array_equal(array(model.get_layer(name).bias), -10)


def test_features_of_a_model_with_two_heads_are_those_of_its_class_token():
    from keras_vit.models.rebuild import feature_model

    model = built(classifier="token+distillation")
    features = array(feature_model(model)(images()))
    np.testing.assert_array_equal(features, tokens_of(model, images())[:, 0])
