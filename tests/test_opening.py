"""Facts about weights of any origin: the same wherever they are opened."""

import dataclasses
import json
import warnings

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit import classifier_folder, configs
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.hugging_face import HUGGING_FACE
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.checkpoints.code_bases.torchvision import TORCHVISION
from keras_vit.checkpoints.file_descriptions import read_images
from keras_vit.checkpoints.formats import write_safetensors
from keras_vit.checkpoints.save import stored_arrays
from keras_vit.classifier import save_classifier
from keras_vit.description import Description, Labels
from keras_vit.opening import open_model
from keras_vit.preprocessing import NORMALIZATIONS, Preprocessing, value_range
from keras_vit.training.evaluation.predictions import build_evaluated
from keras_vit.training.run.start_weights import describe_model, find_start
from keras_vit.training.settings import FineTuning
from makers import copy_weights, tiny_config

safetensors_numpy = pytest.importorskip("safetensors.numpy")

IMAGENET = value_range(*NORMALIZATIONS["imagenet"])
CONFIG = tiny_config(mlp_dim=32, gelu="exact")
TIMM_CONFIG = {
    "architecture": "deit_tiny_patch16_224",
    "num_classes": 3,
    "model_args": {"num_heads": 2},
    "label_names": ["cat", "dog", "fox"],
    "pretrained_cfg": {
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "interpolation": "bilinear",
        "crop_pct": 1.0,
        "crop_mode": "squash",
    },
}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    built = keras_vit.build(CONFIG, input_shape=(8, 8, 3), classes=3)
    built.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    return built


def written(folder, model, layout, config=None, prefix=""):
    """A folder of another code base with a model's weights."""
    folder.mkdir()
    arrays = {f"{prefix}{name}": value for name, value in stored_arrays(model, layout).items()}
    write_safetensors(folder / "model.safetensors", arrays)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def opened_timm(model, tmp_path):
    return open_model(written(tmp_path / "timm", model, TIMM, TIMM_CONFIG))


def test_a_folder_of_timm_says_everything(opened_timm):
    description = opened_timm.description
    assert description.preprocessing.value_range == IMAGENET
    assert description.preprocessing.evaluation == "torchvision"
    assert description.labels.names == ("cat", "dog", "fox")
    facts = description.image_size, description.channels, description.classes
    assert facts == ((8, 8), 3, 3)
    assert description.config == dataclasses.replace(CONFIG, position_resize="bicubic")
    assert description.origins["pixels"] == description.origins["gelu"] == "config.json"


def test_a_folder_of_timm_is_its_model(model, opened_timm):
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    ours = opened_timm.model()
    np.testing.assert_allclose(array(ours(images)), array(model(images)), atol=1e-6)


def test_a_folder_of_timm_is_opened_for_another_size(opened_timm):
    larger = opened_timm.model((12, 8))
    assert larger.input_shape == (None, 12, 8, 3)
    described = keras_vit.describe(larger)
    assert (described.position_grid, described.preprocessing.image_size) == ((3, 2), (12, 8))
    assert described.labels.names == ("cat", "dog", "fox")


def test_a_file_alone_is_asked_for_its_range_its_heads_and_its_gelu(model, tmp_path):
    path = written(tmp_path / "timm", model, TIMM) / "model.safetensors"
    facts = {"num_heads": 2, "gelu": "exact"}
    opened = open_model(path, **facts)
    assert opened.description.preprocessing is None
    with pytest.raises(ValueError, match="--normalization half .*config.json"):
        opened.preprocessing_for()
    given = open_model(path, **facts, normalization="imagenet")
    assert given.preprocessing_for() == Preprocessing((8, 8), value_range=IMAGENET)
    assert open_model(path, model=tiny_config(mlp_dim=32), gelu="exact").description.config == (
        opened.description.config
    )


def test_official_weights_are_known_without_a_download():
    known = open_model("imagenet21k", model="ViT-B/16", image_size=(224, 224)).description
    assert (known.preprocessing, known.config) == (
        Preprocessing((224, 224)), configs.MODELS["ViT-B/16"]
    )  # fmt: skip
    key = open_model("vit_b16_augreg_imagenet21k").description
    assert (key.name, key.origins["pixels"]) == ("ViT-B/16", "the official code")


@pytest.mark.parametrize(
    ("weights", "facts", "message"),
    [
        ("timm", {"num_heads": 2, "gelu": "exact", "normalization": "clip"}, "one of .*'clip'"),
        ("timm", {"model": "ViT-B/16", "gelu": "exact"}, "given model"),
        ("pets", {"gelu": "tanh"}, "gelu='tanh' .*'exact'"),
        ("ViT-B/16", {}, "needs weights"),
        ("nowhere", {}, "No such .*: nowhere"),
    ],
)
def test_what_does_not_fit_is_refused(weights, facts, message, model, tmp_path):
    written(tmp_path / "timm", model, TIMM)
    save_classifier(tmp_path / "pets", model, "abc", Preprocessing((8, 8)))
    place = tmp_path / weights
    with pytest.raises(ValueError, match=message):
        open_model(place if place.exists() else weights, **facts)
    assert open_model(tmp_path / "pets", gelu="exact", num_heads=2).description.config == CONFIG


def test_numbers_that_convert_wrote_are_no_class_names(model, tmp_path):
    for recipe, expected in (({"converted": True}, None), ({}, ("0", "1", "2"))):
        save_classifier(
            tmp_path / "a", model, "012", Preprocessing((8, 8)), recipe=recipe, overwrite=True
        )
        assert open_model(tmp_path / "a").class_names == expected


def test_hugging_face_needs_its_processor_and_torchvision_nothing(model, tmp_path):
    config = {"model_type": "vit", "image_size": 8, "patch_size": 4, "num_attention_heads": 2}
    folder = written(tmp_path / "hub", model, HUGGING_FACE, config)
    assert open_model(folder).description.preprocessing is None
    assert open_model(folder).description.config.norm_epsilon == 1e-12
    processor = {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    opened = open_model(folder)
    assert opened.description.preprocessing.value_range == (0, 1)
    vision = written(tmp_path / "vision", model, TORCHVISION) / "model.safetensors"
    assert open_model(vision, num_heads=2).description.preprocessing.value_range == IMAGENET
    first = read_images(open_checkpoint(vision), (224, 224), 2).preprocessing
    assert (first.interpolation, first.resize_size) == ("bilinear", 256)


def test_the_folder_of_a_classifier_and_its_file_say_the_same(model, tmp_path):
    names = ("cat", "dog", "fox")
    ours = Preprocessing((8, 8), "resize_small_central_crop", IMAGENET)
    save_classifier(tmp_path / "pets", model, names, ours)
    for path in (tmp_path / "pets", tmp_path / "pets" / "model.keras"):
        opened = open_model(path)
        assert opened.preprocessing_for() == ours
        assert (opened.description.labels.names, opened.description.config) == (names, CONFIG)
        assert opened.description.origins["pixels"] == "description.json"
        assert opened.model().output_shape == (None, 3)
    model.save(tmp_path / "alone.keras")
    with pytest.raises(ValueError, match=r"--normalization .*description\.json"):
        open_model(tmp_path / "alone.keras").preprocessing_for()


def warned(path, config=CONFIG):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        keras_vit.build(config, weights=path, input_shape=(8, 8, 3), classes=3)
    return " ".join(str(warning.message) for warning in caught)


def test_build_warns_of_the_range_with_the_keyword_that_mends_it(model, tmp_path):
    folder = written(tmp_path / "timm", model, TIMM, TIMM_CONFIG)
    assert 'mode="torch"' in warned(folder)
    assert "needs pixels of -2.118 to 2.249" in warned(folder)
    (folder / "config.json").unlink()
    assert "does not state the range of its pixels" in warned(folder)


def test_build_warns_of_gelu_with_the_keyword_that_mends_it(model, tmp_path):
    folder = written(tmp_path / "timm", model, TIMM, TIMM_CONFIG)
    assert "give keras_vit.build gelu='exact'" in warned(folder, tiny_config(mlp_dim=32))


def test_build_takes_the_weights_of_another_code_base_for_any_size(model, tmp_path):
    folder = written(tmp_path / "timm", model, TIMM)
    free = keras_vit.build(
        CONFIG, weights=folder, include_top=False, input_shape=(None, None, 3), pooling="token"
    )
    assert free.output_shape == (None, 16)


def test_build_is_silent_where_the_weights_are_in_its_own_range(model, tmp_path):
    keras_vit.save_checkpoint(model, tmp_path / "model.npz")
    assert warned(tmp_path / "model.npz") == ""
    save_classifier(tmp_path / "pets", model, "abc", Preprocessing((8, 8)))
    assert warned(tmp_path / "pets") == ""


def test_build_names_the_file_that_states_another_range(model, tmp_path):
    save_classifier(tmp_path / "vision", model, "abc", Preprocessing((8, 8), "resize", IMAGENET))
    assert "description.json" in warned(tmp_path / "vision")


@pytest.mark.parametrize("form", ["timm", "classifier", "classifier/model.keras", "a.weights.h5"])
def test_build_needs_no_name_where_the_weights_state_their_model(form, model, tmp_path):
    written(tmp_path / "timm", model, TIMM, TIMM_CONFIG)
    save_classifier(tmp_path / "classifier", model, ("cat", "dog", "fox"), Preprocessing((8, 8)))
    model.save_weights(tmp_path / "a.weights.h5")
    with warnings.catch_warnings(action="ignore"):
        built = keras_vit.build(weights=tmp_path / form)
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    np.testing.assert_allclose(array(built(images)), array(model(images)), atol=1e-6)


def test_build_without_a_name_takes_changes_of_a_transfer(model, tmp_path):
    folder = written(tmp_path / "timm", model, TIMM, TIMM_CONFIG)
    with warnings.catch_warnings(action="ignore"):
        built = keras_vit.build(weights=folder, classes=5, input_shape=(12, 8, 3), remat=True)
    assert built.output_shape == (None, 5)
    assert not np.any(built.get_layer("predictions").kernel)
    described = keras_vit.describe(built)
    assert (described.position_grid, described.preprocessing.value_range) == ((3, 2), IMAGENET)
    assert described.labels.names is None


def test_build_needs_a_name_or_weights_that_state_it(model, tmp_path):
    path = written(tmp_path / "timm", model, TIMM) / "model.safetensors"
    with pytest.raises(ValueError, match="attention heads .*GELU"):
        keras_vit.build(weights=path)
    with warnings.catch_warnings(action="ignore"):
        assert keras_vit.build(weights=path, num_heads=2, gelu="exact").output_shape == (None, 3)
    with pytest.raises(ValueError, match="name or config"):
        keras_vit.build()
    built = keras_vit.build(weights="cifar10")
    assert (built.name, built.output_shape) == ("r7_vit_nano8", (None, 10))
    assert keras_vit.describe(built).labels.names[0] == "airplane"


@pytest.mark.parametrize("name", [None, CONFIG])
def test_build_keeps_the_sigmoid_of_labels(name, tmp_path):
    sigmoid = keras_vit.build(
        CONFIG, input_shape=(8, 8, 3), classes=3, classifier_activation="sigmoid"
    )
    save_classifier(tmp_path / "a", sigmoid, "abc", Preprocessing((8, 8)), task="multilabel")
    built = keras_vit.build(name, weights=tmp_path / "a", input_shape=(8, 8, 3), classes=3)
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    np.testing.assert_allclose(array(built(images)), array(sigmoid(images)), atol=1e-6)


def test_an_image_size_that_is_no_multiple_of_the_patch_is_kept(model, tmp_path):
    config = {**TIMM_CONFIG, "model_args": {"num_heads": 2, "img_size": 11}}  # 2.75 patches.
    opened = open_model(written(tmp_path / "timm", model, TIMM, config))
    assert opened.description.image_size == (11, 11)
    assert opened.description.preprocessing.image_size == (11, 11)
    images = np.random.default_rng(0).normal(size=(2, 11, 11, 3)).astype("float32")
    ours = opened.model()
    np.testing.assert_allclose(array(ours(images)), array(model(images[:, :8, :8])), atol=1e-6)


@pytest.mark.parametrize(("classes", "problem"), [(1, None), (3, "regression")])
def test_the_head_of_a_regression_is_refused(classes, problem, tmp_path):
    built = keras_vit.build(CONFIG, input_shape=(8, 8, 3), classes=classes)
    config = {
        "model_type": "vit", "image_size": 8, "patch_size": 4, "num_attention_heads": 2,
        "problem_type": problem,
    }  # fmt: skip
    folder = written(tmp_path / "theirs", built, HUGGING_FACE, config)
    with pytest.raises(ValueError, match="two classes"):
        open_model(folder).model()


@pytest.fixture
def dinov2(tmp_path):
    """A folder of transformers' DINOv2: positions of 6x6 patches, a processor of 16 pixels."""
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(CONFIG, layer_scale=True)
    built = keras_vit.build(config, input_shape=(24, 24, 3), include_top=False, pooling="token")
    fields = {"model_type": "dinov2", "num_attention_heads": 2, "image_size": 24, "patch_size": 4}
    folder = written(tmp_path / "dinov2", built, HUGGING_FACE, fields)
    processor = {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 20},
        "crop_size": {"height": 16, "width": 16},
        "do_center_crop": True,
        "resample": 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def test_images_of_dinov2_have_the_size_of_its_processor(dinov2):
    opened = open_model(dinov2)
    assert (opened.description.image_size, opened.image_size) == ((24, 24), (16, 16))
    assert opened.description.notes == ()
    evaluated = build_evaluated(dinov2)
    assert evaluated.model.input_shape == (None, 16, 16, 3)
    assert (evaluated.preprocessing.image_size, evaluated.preprocessing.resize_size) == (
        (16, 16),
        20,
    )
    settings = FineTuning(weights=str(dinov2), image_size=None)
    labels = Labels(("cat", "dog"))
    _, preprocessing, _ = describe_model(find_start(settings), settings, labels)
    assert preprocessing.image_size == (16, 16)


def test_weights_of_any_origin_are_evaluated_at_another_image_size(dinov2, model, tmp_path):
    save_classifier(tmp_path / "pets", model, ("a", "b", "c"), Preprocessing((8, 8)))
    for weights in (dinov2, tmp_path / "pets"):
        evaluated = build_evaluated(weights, image_size=12)
        assert evaluated.model.input_shape == (None, 12, 12, 3)
        assert evaluated.preprocessing.image_size == (12, 12)
    classifier = open_model(tmp_path / "pets").classifier((12, 12))
    assert classifier.model.input_shape == (None, 12, 12, 3)
    expected = keras_vit.build(CONFIG, input_shape=(12, 12, 3), classes=3)
    copy_weights(model, expected)
    np.testing.assert_array_equal(
        evaluated.model.get_layer("position_embedding").embedding,
        expected.get_layer("position_embedding").embedding,
    )


# Models with other layers, and heads without an activation


def described_model(**options):
    """A model with random weights that knows its images and its classes, as of a classifier."""
    keras.utils.set_random_seed(0)
    built = keras_vit.build(CONFIG, classes=3, **options)
    built.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    labels = Labels(("cat", "dog", "fox"))
    layer = built.get_layer("description")
    known = {"preprocessing": {"image_size": [8, 8]}, "labels": {"names": list(labels.names)}}
    layer.content = {**layer.content, **known}
    return built


FRONTS = {
    "scaling": lambda images: keras.layers.Rescaling(1 / 127.5, -1)(images),
    "normalisation": lambda images: keras.layers.Normalization(mean=127.0, variance=3e3)(images),
    "augmentation": lambda images: keras.layers.RandomFlip()(images),
    "crop": lambda images: keras.layers.CenterCrop(8, 8)(images),
    "channels": lambda images: keras.ops.flip(images, axis=-1),
}


@pytest.mark.parametrize("front", FRONTS)
def test_layers_in_front_of_a_model_leave_its_images_unknown(front, tmp_path):
    size = 12 if front == "crop" else 8
    built = described_model(input_tensor=FRONTS[front](keras.Input((size, size, 3))))
    built.save(tmp_path / "m.keras")
    opened = open_model(tmp_path / "m.keras")
    for use in (opened.classifier, opened.preprocessing_for):
        with pytest.raises(ValueError, match="range of the pixels.*in front"):
            use()
    with pytest.raises(ValueError, match="range of pixels"):
        save_classifier(tmp_path / "saved", built, ("cat", "dog", "fox"))


def test_weights_behind_other_layers_are_those_of_the_model_alone(tmp_path):
    scaled = keras.layers.Rescaling(1 / 127.5, -1)(keras.Input((8, 8, 3)))
    built = described_model(input_tensor=scaled)
    preprocessing = Preprocessing((8, 8), value_range=(0.0, 255.0))
    save_classifier(tmp_path / "saved", built, ("cat", "dog", "fox"), preprocessing)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3)).astype("float32")
    alone = keras_vit.build(weights=tmp_path / "saved")
    np.testing.assert_allclose(array(alone(pixels / 127.5 - 1)), array(built(pixels)), atol=1e-6)
    assert Description.of_model(alone).preprocessing.value_range == (-1.0, 1.0)
    opened = open_model(tmp_path / "saved")
    assert opened.classifier().preprocessing == preprocessing
    with pytest.raises(ValueError, match="layers in front"):
        opened.model((16, 16))


def test_a_model_within_another_leaves_its_images_unknown(tmp_path):
    inner = described_model(input_shape=(8, 8, 3))
    images = keras.Input((8, 8, 3))
    keras.Model(images, inner(keras.layers.Rescaling(1 / 255)(images))).save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="range of the pixels"):
        open_model(tmp_path / "m.keras").preprocessing_for()


@pytest.mark.parametrize("classifier", ["token", "token+distillation"])
def test_a_head_of_logits_gives_probabilities(classifier, tmp_path):
    config = dataclasses.replace(CONFIG, classifier=classifier)
    built = keras_vit.build(config, input_shape=(8, 8, 3), classes=3, classifier_activation=None)
    for number, weight in enumerate(built.weights):
        weight.assign(weight + np.random.RandomState(number).normal(0, 0.3, weight.shape))
    built.save(tmp_path / "m.keras")
    opened = open_model(tmp_path / "m.keras").model()
    images = np.random.RandomState(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    expected = array(keras.ops.softmax(built(images)))
    np.testing.assert_allclose(array(opened(images)), expected, atol=1e-6)


def test_a_classifier_whose_activation_was_taken_off_gives_its_probabilities(tmp_path):
    built = described_model(input_shape=(8, 8, 3))
    built.save(tmp_path / "m.keras")
    photo = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    before = open_model(tmp_path / "m.keras").classifier().predict([photo])[0].top
    built.layers[-1].activation = keras.activations.linear
    built.save(tmp_path / "logits.keras")
    after = open_model(tmp_path / "logits.keras").classifier().predict([photo])[0].top
    assert [name for name, _ in after] == [name for name, _ in before]
    np.testing.assert_allclose([p for _, p in after], [p for _, p in before], atol=1e-6)


@pytest.mark.parametrize("file", ["m.keras", "m.weights.h5", "m.npz"])
def test_a_sigmoid_head_is_one_in_every_file(file, tmp_path):
    built = keras_vit.build(
        CONFIG, input_shape=(8, 8, 3), classes=3, classifier_activation="sigmoid"
    )
    built.get_layer("predictions").kernel.assign(np.random.RandomState(0).randn(16, 3))
    built.save(tmp_path / "m.keras")
    built.save_weights(tmp_path / "m.weights.h5")
    keras_vit.save_checkpoint(built, tmp_path / "m.npz")
    images = np.random.RandomState(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    read = keras_vit.build(weights=tmp_path / file)
    np.testing.assert_allclose(array(read(images)), array(built(images)), atol=1e-6)


def test_a_sigmoid_head_is_multi_label_at_hugging_face(tmp_path):
    built = keras_vit.build(
        CONFIG, input_shape=(8, 8, 3), classes=3, classifier_activation="sigmoid"
    )
    built.save(tmp_path / "m.keras")
    keras_vit.export.convert(
        tmp_path / "m.keras", tmp_path / "hf", to="huggingface", normalization="half"
    )
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"


@pytest.mark.parametrize("file", ["", "model.keras"])
def test_a_classifier_is_described_without_its_model(file, model, tmp_path, monkeypatch):
    save_classifier(tmp_path / "pets", model, ("cat", "dog", "fox"), Preprocessing((8, 8)))
    described = open_model(tmp_path / "pets" / file).classifier().description
    monkeypatch.setattr(classifier_folder, "load_keras_model", None)
    weights = open_model(tmp_path / "pets" / file)
    assert weights.description == described
    other = keras_vit.build(CONFIG, input_shape=(12, 12, 3), classes=2)
    weights.load_into(other, (None, 1))
    kernel = model.get_layer("predictions").kernel
    np.testing.assert_array_equal(other.get_layer("predictions").kernel[:, 1], kernel[:, 1])
