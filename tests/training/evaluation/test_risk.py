import numpy as np
import pytest
import scipy.stats

from keras_vit.training.evaluation.risk import (
    enough_answers,
    find_threshold,
    is_bounded,
    least_answered,
    what_would_pass,
)


def drawn(rng, count):
    """Confidences, and answers that are right as often as their confidence says."""
    confidence = rng.uniform(0.5, 1, count)
    return confidence, rng.uniform(size=count) < confidence


def risk_above(threshold):
    """The share of wrong answers among all images of `drawn` above a threshold."""
    return 1 - (1 + max(threshold, 0.5)) / 2


@pytest.mark.parametrize(("max_error", "needed"), [(0.02, 200), (0.05, 80), (0.01, 400)])
def test_the_least_number_of_answers_is_the_first_within_the_bound(max_error, needed):
    assert least_answered(max_error, 0.95) == needed
    assert is_bounded(0, needed, max_error, 0.95)
    assert not is_bounded(0, needed - 1, max_error, 0.95)


@pytest.mark.parametrize(("error", "max_error"), [(0.005, 0.02), (0.02, 0.05), (0.08, 0.1)])
def test_enough_answers_are_within_the_bound_in_four_of_five_draws(error, max_error):
    count = enough_answers(error, max_error, 0.95)
    wrong = np.random.default_rng(0).binomial(count, error, 1000)
    held = np.mean([is_bounded(int(number), count, max_error, 0.95) for number in wrong])
    assert held == pytest.approx(0.8, abs=0.05)  # 4 standard errors of 1,000 draws.


def test_no_answers_are_enough_where_more_are_wrong_than_the_bound():
    assert enough_answers(0.05, 0.05, 0.95) is None


def test_the_bound_is_the_exact_test_of_fisher():
    # 12 of 500 are wrong, and 26 of as many new ones would be above 5%.
    table = [[12, 488], [26, 474]]
    tail = scipy.stats.fisher_exact(table, alternative="less").pvalue
    assert is_bounded(12, 500, 0.05, 1 - tail - 1e-9)
    assert not is_bounded(12, 500, 0.05, 1 - tail + 1e-9)


def test_as_many_new_images_exceed_the_bound_in_no_more_draws_than_it_allows():
    exceeded, expected_exceeded = 0, 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        found = find_threshold(drawn(rng, 100), drawn(rng, 400), max_error=0.1, confidence=0.9)
        if found.holds:
            confidence, is_right = drawn(rng, 400)
            exceeded += (~is_right[confidence >= found.threshold]).mean() > 0.1
            expected_exceeded += risk_above(found.threshold) > 0.1
    # 40 on average at most; 56 is the 99.5% quantile of that.
    assert 5 < exceeded <= 56
    assert expected_exceeded <= exceeded


def test_the_threshold_is_nearly_as_low_as_with_endless_data():
    rng = np.random.default_rng(0)
    found = find_threshold(drawn(rng, 5_000), drawn(rng, 200_000), max_error=0.1, confidence=0.95)
    assert found.threshold == pytest.approx(0.8, abs=0.015)
    assert found.answered / found.images == pytest.approx(0.4, abs=0.03)


def test_a_bound_that_no_threshold_keeps_does_not_hold():
    rng = np.random.default_rng(2)
    part = rng.uniform(size=200), rng.uniform(size=200) < 0.5
    assert not find_threshold(part, part, max_error=0.05, confidence=0.95).holds


def in_steps(*steps):
    """Confidences and answers, from steps of confidence, right answers and wrong ones."""
    confidence = np.concatenate([np.full(right + wrong, c) for c, right, wrong in steps])
    return confidence, np.concatenate(
        [[True] * right + [False] * wrong for _, right, wrong in steps]
    )


def test_no_threshold_is_tested_after_one_that_fails():
    chosen = in_steps((0.9, 100, 0), (0.8, 10, 0), (0.7, 0, 60))
    tested = in_steps((0.9, 100, 0), (0.8, 0, 30), (0.7, 2_000, 0))
    found = find_threshold(chosen, tested, max_error=0.05, confidence=0.95)
    assert is_bounded(30, 2_130, 0.05, 0.95)
    assert (found.answered, found.wrong, found.holds) == (130, 30, False)


def test_what_would_pass_is_what_the_test_says():
    text = what_would_pass(7, 81, 0.15, 0.95)
    # SciPy's Fisher test of (wrong, right) in these and in as many new answers, one-sided.
    tests = [scipy.stats.fisher_exact([[w, 81 - w], [13, 68]], "less").pvalue for w in range(8)]
    assert [p <= 0.05 for p in tests] == [True] * 6 + [False] * 2
    assert "with at most 5 of 81 wrong, or with 14 of about 160, the same share" in text
    new = [scipy.stats.fisher_exact([[7, 74], [n, 81 - n]], "less").pvalue for n in range(7, 82)]
    most = next(n for n, p in enumerate(new, 7) if p <= 0.05) - 1
    assert f"That is 8.6%; of as many new answers up to {most / 81:.1%} may be wrong" in text
    assert "not hold with 0 of 10 wrong either" in what_would_pass(1, 10, 0.05, 0.95)
    assert "the same share" not in what_would_pass(20, 81, 0.15, 0.95)
