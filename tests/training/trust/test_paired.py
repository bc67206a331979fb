import types

import numpy as np
import pytest

from keras_vit.training.evaluation.measures import holm, independent_images
from keras_vit.training.trust.paired import (
    FAILS,
    HOLDS,
    UNCLEAR,
    Gate,
    Measure,
    Pairs,
    judge,
    mcnemar,
    measures_of,
    parse_gates,
    score,
    tango_interval,
)


def test_gates_are_parsed_with_their_units():
    text = "top_1 > -0.5, negative_flips < 1%,class_recall>-3"
    assert parse_gates(text) == (
        Gate("top_1", True, -0.5),
        Gate("negative_flips", False, 1.0),
        Gate("class_recall", True, -3.0),
    )
    assert [str(gate) for gate in parse_gates(text)] == [
        "top_1 > -0.5",
        "negative_flips < 1%",
        "class_recall > -3",
    ]
    assert parse_gates(None) == ()


@pytest.mark.parametrize(
    ("pairs", "outcome"),
    [
        (Pairs(9000, 40, 40, 920), HOLDS),  # -0.18 to 0.18.
        (Pairs(8900, 300, 100, 700), FAILS),  # About -2.4 to -1.6.
        (Pairs(900, 10, 8, 82), UNCLEAR),
    ],
)
def test_a_gate_is_judged_by_the_bound_and_not_by_the_value(pairs, outcome):
    assert judge(Gate("top_1", True, -0.5), [Measure("top_1", pairs)]).outcome == outcome


def test_one_bad_class_fails_and_all_must_be_good():
    good, bad = Pairs(900, 10, 10, 80), Pairs(800, 110, 10, 80)
    gate = Gate("class_recall", True, -3)
    names = [str(number) for number in range(10)]
    measures = [Measure("class_recall", good, name) for name in names]
    assert judge(gate, measures).outcome == HOLDS
    spoiled = [*measures[:9], Measure("class_recall", bad, "9")]
    verdict = judge(gate, spoiled)
    assert (verdict.outcome, verdict.measure.class_name) == (FAILS, "9")
    few = [*measures[:9], Measure("class_recall", Pairs(9, 0, 0, 1), "9")]
    verdict = judge(gate, few)
    assert (verdict.outcome, verdict.measure.class_name) == (UNCLEAR, "9")


def test_a_class_that_is_spoiled_by_a_tenth_is_caught_20_times_of_20():
    rng, gate = np.random.default_rng(0), Gate("class_recall", True, -3)
    equal = [Measure("class_recall", Pairs(540, 0, 0, 60), str(n)) for n in range(9)]
    for _ in range(20):
        lost = int(rng.binomial(540, 0.1))
        spoiled = Measure("class_recall", Pairs(540 - lost, lost, 0, 60), "9")
        verdict = judge(gate, [*equal, spoiled])
        assert (verdict.outcome, verdict.measure.class_name) == (FAILS, "9")


def test_holm_keeps_a_class_that_is_worse_by_chance_from_failing():
    # Alone it is outside at 2.5%, one of a hundred is not.
    pairs = Pairs(70, 20, 3, 7)
    gate = Gate("class_recall", True, -5)
    alone = Measure("class_recall", pairs, "a")
    others = [Measure("class_recall", Pairs(95, 0, 0, 5), f"b{n}") for n in range(99)]
    assert gate.excludes(alone.interval)
    assert judge(gate, [alone]).outcome == FAILS
    assert judge(gate, [alone, *others]).outcome == UNCLEAR


@pytest.mark.parametrize(("lost", "outcome"), [(21, UNCLEAR), (22, FAILS)])  # z is -1.79, -1.98.
def test_a_class_fails_at_a_one_sided_level_of_two_and_a_half_percent(lost, outcome):
    measure = Measure("class_recall", Pairs(900 - lost, lost, 3, 97), "a")
    assert judge(Gate("class_recall", True, -1), [measure]).outcome == outcome


def test_shares_have_exact_intervals():
    measure = Measure("negative_flips", (3, 100))
    assert measure.value == 3
    assert measure.interval == pytest.approx((0.6229972, 8.5176053))  # binom.test in R.


def test_all_metrics_are_measured():
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=500)
    old, new = (
        types.SimpleNamespace(answers=given, right=given == true, is_answered=None)
        for given in (np.where(rng.random(500) < share, true, 0) for share in (0.5, 0.8))
    )
    measures = measures_of(old, new, true, ("a", "b", "c", "d"))
    assert [measure.metric for measure in measures] == [
        "top_1",
        "negative_flips",
        "positive_flips",
        "agreement",
        *["class_recall"] * 3,  # The fourth has no images.
    ]
    top_1, worse, better = measures[:3]
    assert top_1.value == pytest.approx(better.value - worse.value)


def report_of(right):
    return types.SimpleNamespace(answers=right.astype(int), right=right, is_answered=None)


def test_intervals_of_photos_of_few_things_hold():
    rng, units = np.random.default_rng(0), np.repeat(np.arange(20), 6)
    held, single, true = [], [], np.zeros(len(units), int)
    for _ in range(100):
        # Photos of a thing change together: 10% of the things are lost, 20% are won.
        change = rng.choice([-1, 0, 1], 20, p=[0.1, 0.7, 0.2])[units]
        right = rng.random(len(units)) < 0.7
        old, new = (report_of(np.where(change == 0, right, change == sign)) for sign in (-1, 1))
        for counted, of in ((held, units), (single, None)):
            low, high = measures_of(old, new, true, ("a",), of)[0].interval
            counted.append(low <= 10 <= high)
    assert np.mean(held) > 0.88
    assert np.mean(single) < 0.65


def test_intervals_of_unequal_things_with_few_changes_hold():
    rng, held, truth = np.random.default_rng(0), np.zeros(2), 100 * 0.1 * (0.1 - 0.9)
    for _ in range(200):
        units = np.repeat(np.arange(30), rng.choice((1, 2, 20), 30))
        # Most photos answer like their thing: 90% are right before, and 10% change.
        follows = rng.random(len(units)) < 0.8
        before, change = (
            np.where(follows, (rng.random(30) < share)[units], rng.random(len(units)) < share)
            for share in (0.9, 0.1)
        )
        after = before ^ change
        worth = independent_images(after.astype(float) - before, units) / len(units)
        for place, share in enumerate((1.0, worth)):
            low, high = Measure("top_1", Pairs.of(before, after), worth=share).interval
            held[place] += low <= truth <= high
    of_photos, of_things = held / 200
    assert of_photos < 0.6
    assert of_things >= 0.86


def test_a_class_of_one_thing_shows_little():
    right = np.arange(12) < 6
    old, new = report_of(right), report_of(np.ones(12, bool))
    units = np.where(right, np.arange(12), 6)  # What was won is one thing.
    by_thing, by_photo = (
        measures_of(old, new, np.zeros(12, int), ("a",), of)[0] for of in (units, None)
    )
    assert by_photo.p_value < 0.05 < by_thing.p_value
    assert by_thing.interval[0] < by_photo.interval[0]


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
