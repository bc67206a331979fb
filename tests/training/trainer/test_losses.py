import keras
import numpy as np
import pytest
import scipy.special

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


@pytest.mark.parametrize("loss", [SoftmaxCrossentropy(0.2), SigmoidCrossentropy()])
def test_a_loss_survives_serialisation(loss):
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert copy.get_config() == loss.get_config()


def test_smoothing_everything_is_refused():
    with pytest.raises(ValueError, match="label_smoothing"):
        SoftmaxCrossentropy(label_smoothing=1.0)
