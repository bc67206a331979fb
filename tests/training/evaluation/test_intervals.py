import pytest
from scipy import stats

from keras_vit.training.evaluation.intervals import (
    accuracy_text,
    exact_interval,
    mean_interval,
    wilson_interval,
)


def test_the_exact_interval_is_that_of_clopper_and_pearson():
    expected = stats.beta.ppf(0.025, 81, 20), stats.beta.ppf(0.975, 82, 19)
    assert exact_interval(81, 100) == pytest.approx(expected)
    assert exact_interval(7, 100_000) == pytest.approx(
        stats.binomtest(7, 100_000).proportion_ci(method="exact")[:], rel=1e-9
    )
    assert exact_interval(0, 10)[0] == 0
    assert exact_interval(10, 10)[1] == 1


def test_the_interval_of_a_share_is_that_of_wilson():
    right, count, z = 45, 50, 1.959964
    centre = (right + z * z / 2) / (count + z * z)
    reach = z / (count + z * z) * (right * (count - right) / count + z * z / 4) ** 0.5
    assert wilson_interval(right, count) == pytest.approx((centre - reach, centre + reach))


def test_the_interval_of_the_mean_is_that_of_student():
    values = (0.9, 0.92, 0.88, 0.95)
    expected = stats.t.interval(0.95, 3, loc=0.9125, scale=stats.sem(values))
    assert mean_interval(values) == pytest.approx(expected)
    assert mean_interval((1.0, 0.9)) == (pytest.approx(0.95 - 12.7062 * 0.05, abs=1e-4), 1.0)


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
