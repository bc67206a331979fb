import math

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from keras_vit.training.data import randaugment as ops


@pytest.fixture(scope="module")
def arrays(golden):
    found = golden("tensorflow_addons").load()
    return {name[len("image/") :]: found[name][0] for name in found if name.startswith("image/")}


@pytest.fixture(scope="module")
def image(arrays):
    return arrays["input"]


TENSORFLOW_ADDONS = {
    "rotate_15deg_bilinear": lambda image: ops.rotate(image, 15.0, "BILINEAR"),
    "rotate_15deg_nearest": lambda image: ops.rotate(image, 15.0),
    "translate_3_-5": lambda image: ops.translate_y(ops.translate_x(image, -3.0), 5.0),
    "shear_x_0.3": lambda image: ops.shear_x(image, 0.3),
    "shear_y_0.3": lambda image: ops.shear_y(image, 0.3),
    "equalize": ops.equalize,
    "sharpness_1.7": lambda image: ops.sharpness(image, 1.7),
}


@pytest.mark.parametrize("name", TENSORFLOW_ADDONS)
def test_results_equal_tensorflow_addons(arrays, image, name):
    ours = TENSORFLOW_ADDONS[name](tf.constant(image))
    assert ours.dtype == tf.uint8
    np.testing.assert_array_equal(ours, arrays[name])


PILLOW = {
    "autocontrast": (ops.autocontrast, ImageOps.autocontrast),
    "invert": (ops.invert, ImageOps.invert),
    "posterize": (lambda x: ops.posterize(x, 3), lambda x: ImageOps.posterize(x, 3)),
    "solarize": (lambda x: ops.solarize(x, 100), lambda x: ImageOps.solarize(x, 100)),
    "color": (lambda x: ops.color(x, 1.6), lambda x: ImageEnhance.Color(x).enhance(1.6)),
    "brightness": (
        lambda x: ops.brightness(x, 1.3),
        lambda x: ImageEnhance.Brightness(x).enhance(1.3),
    ),
}


@pytest.mark.parametrize("name", PILLOW)
def test_results_equal_pillow_to_rounding(image, name):
    ours, pillow = PILLOW[name]
    expected = np.asarray(pillow(Image.fromarray(image)), "int32")
    # Pillow rounds where the official code cuts off, and once more in the grey image.
    np.testing.assert_allclose(np.asarray(ours(tf.constant(image)), "int32"), expected, atol=2)


def test_contrast_blends_with_the_official_grey():
    image = np.random.RandomState(0).randint(0, 256, (224, 224, 3)).astype("uint8")
    expected = np.clip(196 + 1.9 * (image.astype("float32") - 196), 0, 255).astype("uint8")
    np.testing.assert_array_equal(ops.contrast(tf.constant(image), 1.9), expected)


@pytest.mark.parametrize("middle", [(0.5, 0.5), (0.0, 0.99)])
def test_cutout_is_a_grey_square(middle):
    image = np.zeros((20, 30, 3), "uint8")
    expected = image.copy()
    y, x = int(middle[0] * 20), int(middle[1] * 30)
    expected[max(0, y - 4) : y + 4, max(0, x - 4) : x + 4] = 128
    np.testing.assert_array_equal(ops.cutout(tf.constant(image), tf.constant(middle), 4), expected)


def test_amounts_equal_the_official_table():
    amounts = {
        name: operation.amount(15 / 10)
        for name, operation in ops.OPERATIONS.items()
        if operation.amount
    }
    expected = {
        "Rotate": 45,
        "Posterize": 6,
        "Solarize": 128,  # 384 in 8 bits.
        "Color": 2.8,
        "Contrast": 2.8,
        "Brightness": 2.8,
        "Sharpness": 2.8,
        "ShearX": 0.45,
        "ShearY": 0.45,
        "TranslateX": 150,
        "TranslateY": 150,
        "Cutout": 60,
        "SolarizeAdd": 165,
    }
    assert amounts == pytest.approx(expected)
    assert len(ops.OPERATIONS) == 16


@pytest.mark.parametrize("magnitude", [0, 5, 10, 15, 20])
def test_solarize_keeps_its_threshold_in_eight_bits_as_the_official_code_ran(magnitude):
    """NumPy's bytes wrap as TensorFlow's did."""
    values = np.arange(256, dtype="uint8").reshape(16, 16, 1).repeat(3, -1)
    threshold = np.array(magnitude / 10 * 256).astype("int64").astype("uint8")
    row = ops.OPERATIONS["Solarize"]
    np.testing.assert_array_equal(
        row.apply(tf.constant(values), row.amount(magnitude / 10)),
        np.where(values < threshold, values, 255 - values),
    )
    row = ops.OPERATIONS["SolarizeAdd"]  # Its addition was computed in 64 bits.
    added = (values.astype("int64") + int(magnitude / 10 * 110)).clip(0, 255)
    np.testing.assert_array_equal(
        row.apply(tf.constant(values), row.amount(magnitude / 10)),
        np.where(values < 128, added, values),
    )


def test_operations_are_drawn_evenly_and_in_both_directions(image):
    """Recognises each operation by its result on one image."""
    augment = tf.function(lambda image, key: ops.randaugment(image, key, 1, 10.0))
    known = {}
    for name, operation in ops.OPERATIONS.items():
        if name == "Cutout":
            continue
        amounts = [()] if operation.amount is None else [(operation.amount(1.0),)]
        if operation.both_ways:
            amounts.append((-amounts[0][0],))
        for number, amount in enumerate(amounts):
            known[np.asarray(operation.apply(tf.constant(image), *amount)).tobytes()] = name, number
    counts = {}
    for number in range(800):
        result = np.asarray(augment(image, tf.constant([5, number], tf.int64))).tobytes()
        counts[known.get(result)] = counts.get(known.get(result), 0) + 1
    names = {name for name, _ in filter(None, counts)}
    # At 10 Solarize inverts, as Invert does, and a translation of a 32 x 32 image by 100 is all
    # grey in every direction: their results are equal.
    assert names >= {"AutoContrast", "Equalize", "Solarize", "Rotate", "Posterize", "ShearX"}
    for name in ("Rotate", "ShearX", "ShearY"):
        both = [counts[name, 0], counts[name, 1]]
        assert min(both) > 10
        assert math.isclose(sum(both), 50, abs_tol=25)  # 800 / 16, four standard deviations.
    assert math.isclose(counts["Solarize", 0], 100, abs_tol=35)  # And Invert.
    for name in ("AutoContrast", "Equalize", "Posterize", "Color"):
        assert math.isclose(counts[name, 0], 50, abs_tol=25)
