import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import decode_predictions, preprocess_input
from keras_vit.images.decoding import apply_preprocessing
from keras_vit.preprocessing import Preprocessing

PIXELS = np.array([[[[0, 51, 255]]]], "uint8")
SCALED = np.array([[[[-1, -0.6, 1]]]], "float32")


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_arrays_and_tensors_are_scaled_to_minus_one_to_one_and_stay_as_they_were(dtype):
    array = PIXELS.astype(dtype)
    for images in (array, array.tolist(), keras.ops.convert_to_tensor(array)):
        scaled = preprocess_input(images)
        assert keras.backend.standardize_dtype(scaled.dtype) in ("float32", "float64")
        np.testing.assert_allclose(keras.ops.convert_to_numpy(scaled), SCALED, atol=1e-6)
    np.testing.assert_array_equal(array, PIXELS)


def test_integers_become_float32_and_floats_keep_their_type():
    assert preprocess_input(PIXELS).dtype == np.float32
    assert preprocess_input(PIXELS.astype("float64")).dtype == np.float64
    half = keras.ops.cast(PIXELS, "bfloat16")
    assert keras.backend.standardize_dtype(preprocess_input(half).dtype) == "bfloat16"


def test_it_is_a_layer_of_a_functional_model():
    inputs = keras.Input((1, 1, 3), dtype="uint8")
    model = keras.Model(inputs, preprocess_input(inputs))
    np.testing.assert_allclose(model(PIXELS), SCALED, atol=1e-6)


@pytest.mark.parametrize("mode", ["tf", "torch", "caffe"])
def test_it_agrees_with_keras(mode):
    images = np.random.RandomState(0).uniform(0, 255, (2, 5, 7, 3)).astype("float32")
    expected = keras.applications.imagenet_utils.preprocess_input(images.copy(), mode=mode)
    before = images.copy()
    for given in (images, keras.ops.convert_to_tensor(images)):
        np.testing.assert_allclose(preprocess_input(given, mode=mode), expected, atol=1e-4)
    np.testing.assert_array_equal(images, before)
    pixels = images.astype("uint8")
    expected = keras.applications.imagenet_utils.preprocess_input(pixels.copy(), mode=mode)
    np.testing.assert_allclose(
        preprocess_input(keras.ops.convert_to_tensor(pixels), mode=mode), expected, atol=1e-4
    )


@pytest.mark.parametrize("wrong", [{"mode": "clip"}, {"data_format": "NHWC"}])
def test_another_mode_or_format_is_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        preprocess_input(PIXELS, **wrong)


def test_predictions_are_named_in_order_of_score():
    scores = np.zeros((2, 1000), "float32")
    scores[0, [2, 0, 999]] = 0.5, 0.3, 0.2
    scores[1, 1] = 1
    first, second = decode_predictions(scores, top=3)
    assert first == [
        ("n01484850", "great_white_shark", np.float32(0.5)),
        ("n01440764", "tench", np.float32(0.3)),
        ("n15075141", "toilet_tissue", np.float32(0.2)),
    ]
    assert second[0] == ("n01443537", "goldfish", 1)
    assert len(decode_predictions(keras.ops.convert_to_tensor(scores))[0]) == 5


@pytest.mark.parametrize("shape", [(1000,), (1, 999), (1, 1, 1000)])
def test_predictions_of_another_shape_are_refused_as_by_keras(shape):
    with pytest.raises(ValueError, match=r"\(samples, 1000\)"):
        decode_predictions(np.zeros(shape))


@pytest.mark.parametrize(
    "fields",
    [
        {"evaluation": "resize_small_central_crop", "value_range": (0, 1)},
        {"value_range": ((0, -1, 0), (1, 1, 255))},
        *(
            {"evaluation": "huggingface", "interpolation": "bicubic", "resize_size": size}
            for size in (None, 256, (256, 248))
        ),
    ],
)
def test_a_preprocessing_is_read_back_from_json(fields):
    preprocessing = Preprocessing((224, 192), **fields)
    assert Preprocessing.from_fields(preprocessing.to_fields()) == preprocessing
    if "evaluation" not in fields:
        image = np.full((224, 192, 3), 51, "uint8")
        found = apply_preprocessing(image, preprocessing)[0, 0]
        np.testing.assert_allclose(found, [0.2, -0.6, 51], rtol=1e-6)


@pytest.mark.parametrize(
    ("resize_size", "image_size", "expected"),
    [
        (None, (384, 384), None),
        (248, (384, 384), 425),
        ((256, 256), (112, 448), (128, 512)),
        (224, (512, 512), 512),
    ],
)
def test_another_image_size_keeps_the_share_of_the_crop(resize_size, image_size, expected):
    old = Preprocessing((224, 224), "torchvision", (0, 1), "bicubic", resize_size)
    assert old.with_image_size(image_size) == Preprocessing(
        image_size, "torchvision", (0, 1), "bicubic", expected
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"value_range": ((0, 0), 1)},
        {"value_range": ((0, 0), (1, 0))},
        {"value_range": ((), ())},
        {"value_range": ("0", "1")},
        {"image_size": (224,)},
        {"image_size": (224, 0)},
        {"image_size": (224.0, 224)},
        {"evaluation": "squash"},
        {"interpolation": "nearest"},
        {"interpolation": "bicubic", "evaluation": "resize_central_crop"},
        {"resize_size": 256},
        {"resize_size": 200, "evaluation": "huggingface"},
        {"resize_size": (256, 200), "evaluation": "huggingface"},
        {"resize_size": 256.0, "evaluation": "torchvision"},
        {"value_range": (1, -1)},
        {"value_range": (0, float("inf"))},
    ],
)
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ValueError, match="(must|may) be .* Received: "):
        Preprocessing(**{"image_size": (224, 224), **wrong})


@pytest.mark.parametrize("fields", [None, [], {"image_size": [8]}, {"mean": 1}])
def test_wrong_fields_are_refused(fields):
    with pytest.raises(ValueError):
        Preprocessing.from_fields(fields)


UP_TO_ONE = np.linspace(0, 1, 48, dtype="float32").reshape(1, 4, 4, 3)
TAKE_PIXELS = [preprocess_input, Preprocessing((4, 4))]


@pytest.mark.parametrize("function", TAKE_PIXELS)
@pytest.mark.parametrize("kind", [np.float64, np.float16, tf.constant, keras.ops.array])
def test_floats_from_zero_to_one_get_a_warning(function, kind):
    with pytest.warns(UserWarning, match=r"\[0, 255\].* 0 to 1, .*by 255"):
        function(kind(UP_TO_ONE))


@pytest.mark.parametrize("function", TAKE_PIXELS)
def test_pixels_that_are_scaled_twice_get_a_warning(function):
    photos = np.arange(48, dtype="uint8").reshape(1, 4, 4, 3) * 5
    with pytest.warns(UserWarning, match=r"floats from -1 to 0.843, which were scaled before"):
        function(preprocess_input(photos))


def test_pixels_below_zero_by_a_resize_get_no_warning():
    pixels = np.linspace(-8, 250, 48, dtype="float32").reshape(1, 4, 4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preprocess_input(pixels)


def test_one_such_image_in_a_list_gets_it_too():
    with pytest.warns(UserWarning, match="nearly black"):
        Preprocessing((4, 4))([np.zeros((4, 4, 3), "uint8"), UP_TO_ONE[0]])


@pytest.mark.parametrize("function", TAKE_PIXELS)
@pytest.mark.parametrize(
    "pixels", [np.ones((1, 4, 4, 3), "uint8"), np.zeros((1, 4, 4, 3)), np.full((1, 4, 4, 3), 200.0)]
)
def test_other_pixels_get_none(function, pixels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(pixels)


@pytest.mark.parametrize("function", TAKE_PIXELS)
def test_pixels_within_a_graph_have_no_values_and_get_none(function):
    data = tf.data.Dataset.from_tensors(UP_TO_ONE * 255)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (pixels,) = data.map(function)
    np.testing.assert_allclose(pixels, UP_TO_ONE * 2 - 1, atol=1e-5)  # float32
