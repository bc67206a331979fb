"""Verbs for a user's own training script: features, with_new_head, and preprocessing of images."""

import io

import keras
import numpy as np
import pytest
from keras import ops
from PIL import Image

import keras_vit
from keras_vit.layers import LayerNorm
from keras_vit.models.rebuild import with_unknown
from keras_vit.opening import open_predictor
from keras_vit.predictor import Predictor

SIZES = {"patch_size": 8, "width": 16, "depth": 2, "mlp_dim": 16, "num_heads": 2}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
PHOTOS = np.random.default_rng(0).integers(0, 256, (3, 20, 31, 3), "uint8")


def build(**options):
    """Returns a tiny model, by default with a head that is not zero."""
    keras.utils.set_random_seed(0)
    fields = {name: options.pop(name) for name in list(options) if name in FIELDS}
    config = keras_vit.ViTConfig(**SIZES, **fields)
    model = keras_vit.build(config, input_shape=(16, 16, 3), **{"classes": 3, **options})
    for layer in model.layers:
        if layer.name == "predictions" and layer.weights:
            layer.kernel.assign(np.random.default_rng(0).normal(size=layer.kernel.shape))
    return model


FIELDS = keras_vit.ViTConfig.__dataclass_fields__


def answer(model, images=IMAGES):
    return ops.convert_to_numpy(model(images, training=False))


@pytest.mark.any_backend
def test_features_are_what_the_head_reads():
    model = build(classifier_activation=None)
    features = answer(keras_vit.features(model))
    kernel, bias = map(ops.convert_to_numpy, model.get_layer("predictions").weights)
    np.testing.assert_allclose(features @ kernel + bias, answer(model), atol=1e-5)


@pytest.mark.any_backend
def test_features_of_the_class_token_are_the_first_token():
    model = build(classifier="gap", unread_class_token=True)
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)
    np.testing.assert_array_equal(answer(keras_vit.features(model, "token")), answer(tokens)[:, 0])


def test_features_come_from_a_name_a_classifier_and_its_model_alike():
    classifier = keras_vit.load_classifier("vit_mini4_cifar10")
    images = np.zeros((1, 32, 32, 3), "float32")
    expected = answer(keras_vit.features(classifier.model), images)
    np.testing.assert_array_equal(answer(keras_vit.features(classifier), images), expected)
    named = keras_vit.features("ViT-Mini/4", weights="vit_mini4_cifar10")
    np.testing.assert_allclose(answer(named, images), expected, atol=1e-6)


def test_features_of_a_name_need_weights():
    with pytest.raises(ValueError, match="needs weights"):
        keras_vit.features("ViT-B/16")


@pytest.mark.any_backend
def test_a_new_head_is_zero_and_float32():
    changed = keras_vit.with_new_head(build(), 5)
    np.testing.assert_allclose(answer(changed), np.full((2, 5), 0.2), atol=1e-7)
    assert changed.get_layer("predictions").compute_dtype == "float32"


@pytest.mark.any_backend
def test_a_new_head_shares_the_body_and_what_is_frozen():
    model = build()
    model.get_layer("encoder_block_0").trainable = False
    changed = keras_vit.with_new_head(model, 5)
    shared = {id(weight) for weight in model.weights} & {id(weight) for weight in changed.weights}
    assert len(shared) == len(model.weights) - 2
    assert not changed.get_layer("encoder_block_0").trainable


def test_a_new_head_leaves_the_first_model_and_its_description():
    model = open_predictor("vit_mini4_cifar10").model
    held = keras_vit.describe(model)
    changed = keras_vit.with_new_head(model, 4)
    assert keras_vit.describe(model) == held
    described = keras_vit.describe(changed)
    assert (described.classes, described.labels.names) == (4, None)
    assert described.preprocessing == held.preprocessing


def test_a_new_head_takes_the_place_of_the_hidden_layer_too():
    model = build(representation_size=8)
    changed = keras_vit.with_new_head(model, 5)
    assert "pre_logits" not in {layer.name for layer in changed.layers}
    assert keras_vit.describe(changed).config.representation_size is None


@pytest.mark.parametrize(
    "options",
    [
        {"classifier": "token+distillation"},
        {"classifier": "map"},
        {"include_top": False, "pooling": "avg"},
        {"classifier_activation": "sigmoid"},
    ],
    ids=lambda options: next(iter(options.values())),
)
def test_a_new_head_goes_on_every_kind_of_model(options):
    changed = keras_vit.with_new_head(build(**options), 5)
    np.testing.assert_allclose(answer(changed), np.full((2, 5), 0.2), atol=1e-7)
    assert keras_vit.describe(changed).parameters == changed.count_params()


def test_a_new_head_of_a_resnet():
    model = keras_vit.build("BiT-R50x1", classes=3, input_shape=(32, 32, 3), num_blocks=(1, 1))
    changed = keras_vit.with_new_head(model, 5, classifier_activation=None)
    np.testing.assert_array_equal(answer(changed, np.zeros((1, 32, 32, 3))), np.zeros((1, 5)))


def test_a_new_head_replaces_unknown():
    classifier = keras_vit.load_classifier("vit_mini4_cifar10")
    calibrated = with_unknown(classifier.model, 1.0, 0.5)
    changed = keras_vit.with_new_head(calibrated, 4)
    assert changed.output_shape == (None, 4)
    assert not keras_vit.describe(changed).labels.abstains


def test_a_new_head_without_a_place_is_refused():
    model = build(include_top=False, pooling=None)
    with pytest.raises(ValueError, match="pre_logits"):
        keras_vit.with_new_head(model, 5)
    with pytest.raises(ValueError, match="classes=0"):
        keras_vit.with_new_head(build(), 0)


def test_a_model_with_a_new_head_is_trained_saved_and_read(tmp_path):
    changed = keras_vit.with_new_head(build(), 5)
    changed.compile("sgd", "sparse_categorical_crossentropy")
    changed.fit(IMAGES, np.array([0, 4]), verbose=0)
    changed.save(tmp_path / "model.keras")
    read = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(answer(read), answer(changed), atol=1e-6)
    assert keras_vit.describe(read).classes == 5


@pytest.mark.any_backend
def test_a_new_head_on_another_librarys_model():
    images = keras.Input((16, 16, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(LayerNorm()(images))
    model = keras.Model(images, keras.layers.Dense(3, name="predictions")(pooled))
    assert keras_vit.with_new_head(model, 5).output_shape == (None, 5)


PREPROCESSINGS = [
    keras_vit.Preprocessing((16, 24)),
    keras_vit.Preprocessing((16, 16), "torchvision", (0.0, 1.0), "bicubic", resize_size=20),
    keras_vit.Preprocessing((16, 16), "resize_small_central_crop"),
]


@pytest.mark.parametrize("preprocessing", PREPROCESSINGS, ids=lambda each: each.evaluation)
def test_preprocessed_images_are_what_predict_computes(preprocessing):
    images = keras.Input((*preprocessing.image_size, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(images)
    model = keras.Model(images, keras.layers.Dense(2, activation="softmax")(pooled))
    classifier = Predictor(model, ("a", "b"), preprocessing)
    content = [Image.fromarray(photo) for photo in PHOTOS]
    expected = np.stack([classifier.input_of(png(image)) for image in content])
    for images in (PHOTOS, list(PHOTOS), content):
        np.testing.assert_array_equal(preprocessing(images), expected)
    np.testing.assert_array_equal(preprocessing(PHOTOS[0]), expected[0])


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("preprocessing", PREPROCESSINGS, ids=lambda each: each.evaluation)
def test_a_tf_data_pipeline_preprocesses_images_and_batches(preprocessing):
    tf = pytest.importorskip("tensorflow")
    photos = tf.data.Dataset.from_tensor_slices(PHOTOS)
    one_by_one = list(photos.map(preprocessing).as_numpy_iterator())
    (batch,) = photos.batch(3).map(preprocessing).as_numpy_iterator()
    np.testing.assert_array_equal(one_by_one, preprocessing(PHOTOS))
    np.testing.assert_array_equal(batch, preprocessing(PHOTOS))


def test_images_of_unknown_sizes_are_preprocessed_in_a_pipeline():
    tf = pytest.importorskip("tensorflow")
    preprocessing = PREPROCESSINGS[0]
    photos = [PHOTOS[0], PHOTOS[1, :12]]
    data = tf.data.Dataset.from_generator(
        lambda: iter(photos), output_signature=tf.TensorSpec((None, None, 3), tf.uint8)
    )
    results = list(data.map(preprocessing).as_numpy_iterator())
    np.testing.assert_array_equal(results, preprocessing(photos))


@pytest.mark.any_backend
def test_a_tensor_of_the_backend_gives_a_tensor():
    pytest.importorskip("tensorflow")
    preprocessing = PREPROCESSINGS[0]
    values = preprocessing(ops.convert_to_tensor(PHOTOS))
    assert ops.is_tensor(values)
    np.testing.assert_array_equal(ops.convert_to_numpy(values), preprocessing(PHOTOS))


def test_a_photo_is_turned_as_its_exif_says(tmp_path):
    image = Image.fromarray(PHOTOS[0])
    exif = image.getexif()
    exif[0x0112] = 6  # A quarter turn clockwise shows it upright.
    image.save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as turned:
        values = PREPROCESSINGS[0](turned)
    np.testing.assert_array_equal(values, PREPROCESSINGS[0](np.rot90(PHOTOS[0], -1)))


@pytest.mark.parametrize("shape", [(20, 31), (1, 2, 20, 31, 3), ()])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(ValueError, match=r"\(height, width, channels\).*shape="):
        PREPROCESSINGS[0](np.zeros(shape, "uint8"))


def test_a_range_by_channel_needs_its_channels():
    preprocessing = keras_vit.Preprocessing((8, 8), value_range=((0.0,) * 3, (1.0,) * 3))
    with pytest.raises(ValueError, match=r"\(height, width, 3\).*shape=\(9, 9, 1\)"):
        preprocessing(np.zeros((9, 9, 1), "uint8"))
