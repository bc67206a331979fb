import numpy as np
import pytest
import scipy.optimize
import scipy.special

from keras_vit.training.evaluation.temperature import fit_temperature, scaled_probabilities


def drawn(count, temperature, seed=0):
    """Logits, and labels drawn from their probabilities at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (count, 4))
    probabilities = scipy.special.softmax(logits / temperature, axis=1)
    labels = (probabilities.cumsum(axis=1) > rng.uniform(size=(count, 1))).argmax(axis=1)
    return logits, labels


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.5])
def test_the_temperature_of_the_labels_is_found(temperature):
    assert fit_temperature(*drawn(20_000, temperature)) == pytest.approx(temperature, rel=0.05)


def test_it_has_the_least_cross_entropy_of_smoothed_labels():
    logits, labels = drawn(50, 1.7)
    rest = 1 / 52
    targets = np.eye(4)[labels] * (1 - rest) + rest / 4

    def loss(temperature):
        logarithms = scipy.special.log_softmax(logits / temperature, axis=1)
        return -(targets * logarithms).sum()

    best = scipy.optimize.minimize_scalar(loss, bounds=(0.1, 10), method="bounded")
    assert fit_temperature(logits, labels) == pytest.approx(best.x, rel=1e-4)


def test_labels_of_a_multi_label_image_have_one_temperature():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (20_000, 3))
    labels = (rng.uniform(size=logits.shape) < scipy.special.expit(logits / 2)).astype("uint8")
    assert fit_temperature(logits, labels) == pytest.approx(2, rel=0.05)


def test_a_few_images_that_are_all_right_do_not_give_certainty():
    logits = np.array([[2.0, 0.0], [0.0, 3.0], [2.5, 0.0]])
    temperature = fit_temperature(logits, np.array([0, 1, 0]))
    assert scaled_probabilities(logits, temperature).max() < 0.99


def test_no_images_are_refused():
    with pytest.raises(ValueError, match="Received: none"):
        fit_temperature(np.zeros((0, 3)), np.zeros(0, int))
