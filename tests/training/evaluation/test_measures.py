import numpy as np
import pytest
import scipy.optimize
import scipy.special
from scipy import stats

from keras_vit.training.evaluation.measures import (
    accuracy_text,
    calibration_of,
    fit_temperature,
    independent_images,
)
from keras_vit.utils.intervals import exact_interval, wilson_interval


def test_the_error_is_the_weighted_gap_between_confidence_and_accuracy():
    confidence, is_right = [0.95, 0.95, 0.95, 0.55], [True, True, False, False]
    result = calibration_of(np.array(confidence), np.array(is_right), num_bins=10)
    # Bin (0.9, 1]: 3 of 4 images, accuracy 2/3; bin (0.5, 0.6]: 1 of 4, accuracy 0.
    assert result.expected_error == pytest.approx(3 / 4 * (0.95 - 2 / 3) + 1 / 4 * 0.55)
    assert result.count == 4


def test_a_confidence_on_an_edge_belongs_below_it():
    result = calibration_of(np.array([0.6, 0.75, 1.0]), np.ones(3, bool), num_bins=4)
    np.testing.assert_array_equal(result.counts, [0, 0, 2, 1])


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


def test_the_exact_interval_is_that_of_clopper_and_pearson():
    expected = stats.beta.ppf(0.025, 81, 20), stats.beta.ppf(0.975, 82, 19)
    assert exact_interval(81, 100) == pytest.approx(expected)
    assert exact_interval(7, 100_000) == pytest.approx(
        stats.binomtest(7, 100_000).proportion_ci(method="exact")[:], rel=1e-9
    )
    assert exact_interval(0, 10)[0] == 0
    assert exact_interval(10, 10)[1] == 1


def test_the_interval_is_of_the_printed_accuracy_where_images_depend_on_each_other():
    assert accuracy_text(61 / 86, 84) == "70.9% (60.5 to 79.6)"  # No whole number of 84.


def test_the_interval_of_a_share_is_that_of_wilson():
    right, count, z = 45, 50, 1.959964
    centre = (right + z * z / 2) / (count + z * z)
    reach = z / (count + z * z) * (right * (count - right) / count + z * z / 4) ** 0.5
    assert wilson_interval(right, count) == pytest.approx((centre - reach, centre + reach))


@pytest.mark.parametrize(
    ("accuracy", "images", "text"),
    [
        (0.864, 1000, "86.4% (84.1 to 88.4)"),
        (1.0, 12, "100.0% (75.8 to 100.0)"),
        (0.84152, 50_000, "84.15% (83.83 to 84.47)"),
    ],
)
def test_an_accuracy_is_printed_with_its_interval(accuracy, images, text):
    assert accuracy_text(accuracy, images) == text


@pytest.mark.parametrize("sizes", ["equal", "one of half"])
@pytest.mark.parametrize("agreement", [1.0, 0.5])
def test_an_interval_of_photos_of_things_holds(sizes, agreement):
    """Beta-binomial answers: the accuracy is 80%, photos of one thing are often right together."""
    random, holds, holds_by_photos, drawn = np.random.default_rng(0), 0, 0, 600
    counts = np.full(30, 6) if sizes == "equal" else np.append(np.ones(29, int), 29)
    things = np.repeat(np.arange(30), counts)
    for _ in range(drawn):
        shares = random.random(30) < 0.8
        if agreement < 1:
            strength = (1 - agreement) / agreement
            shares = random.beta(0.8 * strength, 0.2 * strength, 30)
        right = random.random(len(things)) < shares[things]
        count = independent_images(right, things)
        low, high = wilson_interval(round(right.mean() * count), count)
        holds += low <= 0.8 <= high
        low, high = wilson_interval(int(right.sum()), len(right))
        holds_by_photos += low <= 0.8 <= high
    assert holds / drawn > 0.88
    assert holds_by_photos / drawn < 0.75


def test_photos_of_one_thing_each_are_as_many_as_they_are():
    right = np.random.default_rng(0).random(50) < 0.7
    assert independent_images(right, np.arange(50)) == 50


@pytest.mark.parametrize(
    ("right", "count"), [([1, 1, 1, 1], 2), ([1, 1, 0, 0], 2), ([1, 0, 1, 0], 4)]
)
def test_two_things_are_worth_two_photos_where_their_photos_agree(right, count):
    assert independent_images(np.array(right), np.array([0, 0, 1, 1])) == count
