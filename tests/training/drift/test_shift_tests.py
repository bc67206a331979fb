import math

import numpy as np
import pytest
import scipy.stats

from keras_vit.training.drift.shift_tests import chi_square, label_shift, shift_tests


def test_the_test_of_a_signal_is_the_largest_difference_of_the_distributions():
    rng = np.random.default_rng(0)
    known, photos = rng.integers(-20, 20, 500), rng.integers(-15, 25, 300)
    counts = {int(n): int((known == n).sum()) for n in np.unique(known)}
    (found,) = shift_tests({"brightness": counts}, {"brightness": photos})
    largest = max(abs((known <= n).mean() - (photos <= n).mean()) for n in range(-21, 26))
    assert found.statistic == pytest.approx(largest, abs=1e-12)
    scale = np.sqrt(500 * 300 / 800)
    expected = scipy.stats.kstwo.sf(largest, round(scale**2))
    assert found.p_value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("photos", [1, 2])
def test_few_photos_beyond_the_reference_have_their_exact_probability(photos):
    counts = {n: 1 for n in range(80)}
    (found,) = shift_tests({"brightness": counts}, {"brightness": np.full(photos, 90)})
    assert found.p_value == pytest.approx(2 / math.comb(80 + photos, photos))


def test_chi_square_is_the_sum_over_the_table():
    first, second = {0: 30, 1: 50, 2: 20}, {0: 60, 1: 50, 2: 40}
    table = np.array([[30, 50, 20], [60, 50, 40]])
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic, p_value = chi_square(first, second)
    assert statistic == pytest.approx((((table - expected) ** 2) / expected).sum())
    assert p_value == pytest.approx(scipy.stats.chi2.sf(statistic, 2))


def test_rare_classes_are_taken_together():
    first, second = {0: 500, 1: 500, 2: 1, 3: 2}, {0: 490, 1: 510, 4: 3}
    table = np.array([[500, 500, 3], [490, 510, 3]])
    expected = scipy.stats.chi2_contingency(table, correction=False).statistic
    assert chi_square(first, second)[0] == pytest.approx(expected)


def test_label_shift_finds_the_shares_of_a_known_confusion():
    # 80% of each class is answered right, the others evenly wrong.
    confusion = [(j, i, 160 if i == j else 20) for i in range(3) for j in range(3)]
    true = np.array([0.6, 0.3, 0.1])
    answers = np.repeat(range(3), np.rint(1000 * (0.1 + 0.7 * true)).astype(int))
    np.testing.assert_allclose(label_shift(confusion, answers, 3), true, atol=1e-9)


def test_label_shift_of_classes_that_look_alike_is_not_estimated():
    confusion = [(j, i, 50) for i in range(2) for j in range(2)]
    assert label_shift(confusion, np.array([0, 1, 1]), 2) is None


def test_false_alarms_of_the_tests_are_at_most_the_level():
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(300):
        samples = [
            {"brightness": rng.integers(-9, 9, n), "class": rng.integers(0, 5, n)}
            for n in (400, 200)
        ]
        known = {
            name: {int(n): int((values == n).sum()) for n in np.unique(values)}
            for name, values in samples[0].items()
        }
        alarms += any(test.corrected <= 0.05 for test in shift_tests(known, samples[1]))
    assert alarms / 300 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
