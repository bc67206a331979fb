import numpy as np
import pytest

from keras_vit.training.evaluation.intervals import holm
from keras_vit.training.trust.classifier_comparison import p_value_text
from keras_vit.training.trust.paired import Pairs, mcnemar, score, tango_interval


def test_pairs_are_counted_by_both_answers():
    old = np.array([True, True, True, False, False])
    new = np.array([True, False, False, True, False])
    assert Pairs.of(old, new) == Pairs(1, 2, 1, 1)
    assert Pairs.of(old, new).difference == pytest.approx(-1 / 5)


@pytest.mark.parametrize(
    "pairs", [Pairs(43, 1, 0, 0), Pairs(60, 20, 40, 40), Pairs(3, 0, 0, 2), Pairs(1, 7, 1, 12)]
)
def test_tango_interval_holds_the_differences_that_a_likelihood_search_accepts(pairs):
    low, high = tango_interval(pairs)
    accepted = []
    for difference in np.linspace(-0.999, 0.999, 1999):
        # The share of losses by brute force, without the closed form of the maximum.
        losses = np.linspace(max(0, -difference), (1 - difference) / 2, 100_001)
        gains = losses + difference
        with np.errstate(divide="ignore", invalid="ignore"):
            likelihood = (
                np.where(pairs.only_old, pairs.only_old * np.log(losses), 0)
                + np.where(pairs.only_new, pairs.only_new * np.log(gains), 0)
                + (pairs.both + pairs.neither) * np.log(1 - losses - gains)
            )
        likelihood = np.where(gains >= 0, likelihood, -np.inf)
        share = losses[np.nanargmax(likelihood)]
        variance = pairs.count * (2 * share + difference - difference**2)
        distance = pairs.only_new - pairs.only_old - pairs.count * difference
        if abs(distance) <= 1.959964 * np.sqrt(variance):
            accepted.append(difference)
    assert (low, high) == pytest.approx((min(accepted), max(accepted)), abs=1.1e-3)  # The grid.


def test_tango_interval_stays_within_one():
    assert tango_interval(Pairs(0, 0, 5, 0))[1] == 1
    assert tango_interval(Pairs(0, 5, 0, 0))[0] == -1


def test_equal_answers_have_an_interval_around_zero():
    low, high = tango_interval(Pairs(90, 0, 0, 10))
    z = 1.959964
    assert (low, high) == pytest.approx((-(z**2) / (100 + z**2), z**2 / (100 + z**2)), abs=1e-5)


def test_score_at_zero_is_the_statistic_of_mcnemar():
    assert score(Pairs(10, 4, 9, 5), 0.0) == pytest.approx((9 - 4) / np.sqrt(9 + 4))


def test_mcnemar_is_the_binomial_tail():
    # 2 (1 + 10) / 2^10.
    assert mcnemar(Pairs(50, 9, 1, 7)) == pytest.approx(22 / 1024)
    assert mcnemar(Pairs(50, 0, 0, 7)) == 1


def test_holm_multiplies_the_least_by_their_number_and_keeps_the_order():
    # statsmodels.stats.multitest.multipletests(..., method="holm").
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.5]), [0.09, 0.04, 0.09, 0.5])
    assert holm([]) == []


def test_a_small_p_value_is_not_printed_as_zero():
    assert [p_value_text(value) for value in (0.25, 0.00005, 0.00004, None)] == [
        *("0.2500", "0.0001", "<0.0001", ""),
    ]
