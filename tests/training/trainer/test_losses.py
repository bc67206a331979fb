import keras
import numpy as np
import pytest
import scipy.special

import keras_vit
from keras_vit.training import SigmoidCrossentropy, SoftmaxCrossentropy
from keras_vit.training.trainer.losses import initialise_head_bias

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


def test_the_head_starts_at_the_given_logit():
    model = keras_vit.build(
        keras_vit.ViTConfig(4, 16, 1, 32, 2),
        input_shape=(8, 8, 3),
        classes=7,
        classifier_activation=None,
    )
    initialise_head_bias(model, -10.0)
    np.testing.assert_allclose(model(RNG.standard_normal((2, 8, 8, 3))), -10.0)


def test_smoothing_everything_is_refused():
    with pytest.raises(ValueError, match="label_smoothing"):
        SoftmaxCrossentropy(label_smoothing=1.0)
