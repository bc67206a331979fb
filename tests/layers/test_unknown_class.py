import numpy as np
import pytest
import scipy.special

from by_hand import array
from keras_vit.layers import Leverage, UnknownClass
from keras_vit.layers.heads import REFUSED_SHARE

pytestmark = pytest.mark.any_backend


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 2, (40, 3)).astype("float32")


@pytest.fixture
def leverage():
    return np.random.default_rng(1).uniform(0, 1, (40, 1)).astype("float32")


def expected_rows(logits, leverage, temperature, threshold, largest):
    """The layer's rows, computed one image at a time."""
    rows = []
    for z, h in zip(logits, leverage[:, 0], strict=True):
        p = scipy.special.softmax(z.astype("float64") / temperature)
        share = REFUSED_SHARE * (h > largest or p.max() < threshold)
        rows.append([*((1 - share) * p), share])
    return np.array(rows)


def test_rows_are_those_of_a_loop(logits, leverage):
    layer = UnknownClass(1.5, 0.6, 0.8)
    rows = array(layer(logits, leverage))
    np.testing.assert_allclose(
        rows,
        expected_rows(logits, leverage, 1.5, 0.6, 0.8),
        atol=1e-6,  # float32
    )
    assert {0, 3} < set(rows.argmax(axis=1))
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)
    copy = UnknownClass.from_config(layer.get_config())
    np.testing.assert_array_equal(array(copy(logits, leverage)), rows)


def test_a_refused_class_of_probability_1_is_not_the_highest():
    rows = UnknownClass(0.01, 0.5, 0.5)(np.array([[9.0, 0.0]], "float32"), np.ones((1, 1)))
    np.testing.assert_allclose(array(rows), [[1 / 3, 0, 2 / 3]], atol=1e-6)


def test_a_probability_of_exactly_the_threshold_is_answered():
    logits = np.zeros((1, 2), "float32")  # 0.5 for both.
    assert array(UnknownClass(1.0, 0.5)(logits))[0, 2] == 0
    above = float(np.nextafter(np.float32(0.5), np.float32(1)))
    assert array(UnknownClass(1.0, above)(logits))[0, 2] == np.float32(REFUSED_SHARE)


def test_an_image_of_exactly_the_largest_leverage_is_not_strange():
    logits = np.array([[9.0, 0.0]], "float32")
    assert array(UnknownClass(1.0, 0.5, 0.25)(logits, np.full((1, 1), 0.25, "float32")))[0, 2] == 0


def test_without_a_limit_nothing_is_strange(logits):
    rows = array(UnknownClass()(logits))
    np.testing.assert_allclose(rows[:, :3], scipy.special.softmax(logits, axis=1), atol=1e-6)
    assert not rows[:, 3].any()


def test_the_leverage_is_a_squared_length():
    features = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    center, factor = np.arange(4.0), np.random.default_rng(1).normal(size=(4, 4))
    layer = Leverage()
    layer.build(features.shape)
    layer.set_weights([center, factor])
    expected = np.square((features - center) @ factor).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(array(layer(features)), expected, rtol=1e-5)  # float32
