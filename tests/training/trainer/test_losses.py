import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from keras_vit.training import SigmoidCrossentropy, SoftmaxCrossentropy

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 30, (6, 5)).astype("float32")
LABELS = RNG.integers(0, 5, 6)


def test_softmax_is_that_of_keras_for_either_kind_of_label():
    expected = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)(
        np.eye(5)[LABELS], LOGITS
    )
    loss = SoftmaxCrossentropy(label_smoothing=0.1)
    assert float(loss(LABELS, LOGITS)) == pytest.approx(float(expected), rel=1e-6)
    assert float(loss(np.eye(5)[LABELS], LOGITS)) == pytest.approx(float(expected), rel=1e-6)


def test_sigmoid_is_summed_over_classes():
    one_hot, logits = np.eye(5)[LABELS], LOGITS.astype("float64")
    expected = -np.where(one_hot, scipy.special.log_expit(logits), scipy.special.log_expit(-logits))
    loss = float(SigmoidCrossentropy()(LABELS, LOGITS))
    assert loss == pytest.approx(expected.sum(-1).mean(), rel=1e-6)
    assert np.isfinite(float(SigmoidCrossentropy()(LABELS, LOGITS * 1e4)))


WEIGHTS = [0.5, 2.0, 1.0, 3.0, 0.25]


def test_class_weights_are_factors_of_the_terms_of_softmax():
    weighted, plain = SoftmaxCrossentropy(class_weight=WEIGHTS), SoftmaxCrossentropy()
    each = [float(plain(LABELS[i : i + 1], LOGITS[i : i + 1])) for i in range(6)]
    expected = np.mean(np.array(WEIGHTS)[LABELS] * each)
    assert float(weighted(LABELS, LOGITS)) == pytest.approx(expected, rel=1e-6)
    shares = RNG.dirichlet(np.ones(5), 6)
    terms = WEIGHTS * (0.9 * shares + 0.02) * scipy.special.log_softmax(LOGITS, axis=-1)
    mixed = SoftmaxCrossentropy(0.1, class_weight=WEIGHTS)(shares, LOGITS)
    assert float(mixed) == pytest.approx(-terms.sum(-1).mean(), rel=1e-6)


def test_class_weights_are_factors_of_the_positive_terms_of_sigmoid():
    several = (RNG.random((6, 5)) > 0.5).astype("float32")
    expected = tf.nn.weighted_cross_entropy_with_logits(several, LOGITS, np.float32(WEIGHTS))
    loss = SigmoidCrossentropy(class_weight=WEIGHTS)(several, LOGITS)
    assert float(loss) == pytest.approx(float(np.sum(expected, -1).mean()), rel=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        SoftmaxCrossentropy(0.2),
        SigmoidCrossentropy(),
        SoftmaxCrossentropy(class_weight=(1.0, 2.0)),
    ],
)
def test_a_loss_survives_serialisation(loss):
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert copy.get_config() == loss.get_config()
