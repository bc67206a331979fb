import keras
import numpy as np
import pytest
import scipy.special

from keras_vit.layers import Leverage, UnknownClass
from keras_vit.layers.unknown_class import REFUSED_SHARE, familiarity


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 2, (40, 3)).astype("float32")


@pytest.fixture
def leverage():
    return np.random.default_rng(1).uniform(0, 1, (40, 1)).astype("float32")


def expected_rows(logits, leverage, temperature, threshold, largest, parents=(), least=None):
    """The layer's rows, computed one image at a time."""
    rows = []
    for z, h in zip(logits, leverage[:, 0], strict=True):
        p = scipy.special.softmax(z.astype("float64") / temperature)
        further = np.zeros(1 + (0 if least is None else max(parents) + 1))
        if h > largest:
            further[-1] = 1
        elif p.max() < threshold:
            sums = [p[np.array(parents) == k].sum() for k in range(len(further) - 1)]
            if sums and max(sums) >= least:
                further[int(np.argmax(sums))] = 1
            else:
                further[-1] = 1
        share = REFUSED_SHARE * further.sum()
        rows.append([*((1 - share) * p), *(REFUSED_SHARE * further)])
    return np.array(rows)


def test_rows_are_those_of_a_loop(logits, leverage):
    layer = UnknownClass(1.5, 0.6, 0.8)
    rows = keras.ops.convert_to_numpy(layer(logits, leverage))
    np.testing.assert_allclose(
        rows,
        expected_rows(logits, leverage, 1.5, 0.6, 0.8),
        atol=1e-6,  # float32
    )
    assert {0, 3} < set(rows.argmax(axis=1))
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)


def test_a_parent_is_the_answer_where_its_classes_are_certain_together(logits, leverage):
    layer = UnknownClass(1.0, 0.9, 0.8, (0, 0, 1), 0.85)
    rows = keras.ops.convert_to_numpy(layer(logits, leverage))
    expected = expected_rows(logits, leverage, 1.0, 0.9, 0.8, (0, 0, 1), 0.85)
    np.testing.assert_allclose(rows, expected, atol=1e-6)  # float32
    assert set(rows.argmax(axis=1)) == {0, 1, 2, 3, 4, 5}


def test_a_refused_class_of_probability_1_is_not_the_highest():
    rows = UnknownClass(0.01, 0.5, 0.5)(np.array([[9.0, 0.0]], "float32"), np.ones((1, 1)))
    np.testing.assert_allclose(rows, [[1 / 3, 0, 2 / 3]], atol=1e-6)


def test_multi_label_probabilities_stay_and_strange_images_are_unknown(logits, leverage):
    layer = UnknownClass(2.0, largest_leverage=0.5, multilabel=True)
    rows = keras.ops.convert_to_numpy(layer(logits, leverage))
    np.testing.assert_allclose(rows[:, :3], scipy.special.expit(logits / 2), atol=1e-6)
    np.testing.assert_array_equal(rows[:, 3], leverage[:, 0] > 0.5)


def test_without_a_limit_nothing_is_strange(logits):
    rows = keras.ops.convert_to_numpy(UnknownClass()(logits))
    np.testing.assert_allclose(rows[:, :3], scipy.special.softmax(logits, axis=1), atol=1e-6)
    assert not rows[:, 3].any()


def test_the_leverage_is_a_squared_length():
    features = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    center, factor = np.arange(4.0), np.random.default_rng(1).normal(size=(4, 4))
    layer = Leverage()
    layer.build(features.shape)
    layer.set_weights([center, factor])
    expected = np.square((features - center) @ factor).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(layer(features), expected, rtol=1e-5)  # float32


def test_familiarity_is_the_rank_among_known_images():
    values = keras.ops.convert_to_numpy(
        familiarity(np.array([[0.0], [0.25], [9.0]], "float32"), (0.1, 0.2, 0.3))
    )
    np.testing.assert_allclose(values, [1, 0.5, 0.25])


def test_layers_are_made_from_their_config(logits, leverage):
    layer = UnknownClass(1.5, 0.6, 0.8, (0, 0, 1), 0.7, name="unknown_class")
    copy = UnknownClass.from_config(layer.get_config())
    np.testing.assert_array_equal(copy(logits, leverage), layer(logits, leverage))
