import collections
import json
import math
import random

import numpy as np
import pytest

from keras_vit.description.decision import Decision
from keras_vit.description.drift_reference import DriftReference
from keras_vit.monitoring.martingales import (
    BETS,
    JUMP_RATES,
    Martingales,
    bet,
    bets,
    first_shares,
)

SIGNALS = ("class", "brightness")


def reference(rng, images=300):
    values = {"class": rng.integers(0, 4, images), "brightness": rng.integers(-30, 30, images)}
    counts = {
        name: {int(n): int((v == n).sum()) for n in np.unique(v)} for name, v in values.items()
    }
    return DriftReference(counts)


def numbers(rng):
    return {"class": int(rng.integers(0, 4)), "brightness": int(rng.integers(-30, 30))}


def test_every_bet_keeps_its_capital_on_average():
    p_values = (np.arange(100_000) + 0.5) / 100_000
    found = bets(p_values)
    assert found.shape[1] == BETS
    assert found.min() >= 0
    np.testing.assert_allclose(found.mean(axis=0), 1, atol=1e-6)


def test_martingales_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    of = reference(rng)
    found = Martingales.of(of, SIGNALS, 4)
    stream = [numbers(rng) for _ in range(60)]
    draws = random.Random("0 0")
    bags = {name: list(collections.Counter(of.counts[name]).elements()) for name in SIGNALS}
    capital = {name: np.full((len(JUMP_RATES), BETS), 1 / 5 / BETS) for name in SIGNALS}
    for photo in stream:
        found.add(photo)
        for name in SIGNALS:
            bags[name].append(photo[name])
            less = sum(n < photo[name] for n in bags[name])
            equal = sum(n == photo[name] for n in bags[name])
            p = (less + draws.random() * equal) / len(bags[name])
            multiplied = capital[name] * bets(np.array([p]))
            capital[name] = np.array(
                [
                    [(1 - rate) * c + rate * sum(row) / BETS for c in row]
                    for rate, row in zip(JUMP_RATES, multiplied, strict=True)
                ]
            )
    expected = [math.log(capital[name].sum()) for name in SIGNALS]
    np.testing.assert_allclose(found.logs, expected, rtol=1e-9)


def test_false_alarms_ever_are_at_most_the_level():
    # 2,000 streams of 300 uniform p-values at the level 10%.
    rng = np.random.default_rng(1)
    shares, logs, highest = first_shares(2000), np.zeros(2000), np.zeros(2000)
    for _ in range(300):
        shares, gains = bet(shares, rng.random(2000))
        logs += gains
        highest = np.maximum(highest, logs)
    assert (highest >= math.log(10)).mean() <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 2000)


def test_a_class_that_is_doubled_raises_the_alarm_of_the_classes_alone():
    rng = np.random.default_rng(2)
    found = Martingales.of(reference(rng, 2000), SIGNALS, 4)
    for _ in range(1000):
        photo = numbers(rng)
        if rng.random() < 0.25:
            photo["class"] = 2
        found.add(photo)
    assert found.alarms(0.01) == ["class"]


def test_a_state_that_was_written_goes_on_as_the_original():
    rng = np.random.default_rng(3)
    first = Martingales.of(reference(rng), SIGNALS, 4)
    for _ in range(20):
        first.add(numbers(rng))
    second, third = (
        Martingales.from_json(json.loads(json.dumps(first.to_json()))) for _ in range(2)
    )
    np.testing.assert_array_equal(second.logs, first.logs)
    photo = numbers(rng)
    second.add(photo)
    third.add(photo)
    np.testing.assert_array_equal(second.logs, third.logs)
    assert second.photos == 21


def test_a_state_of_another_form_is_one_line():
    with pytest.raises(ValueError, match="state must be complete"):
        Martingales.from_json({"bags": {}})


def test_a_decision_keeps_its_reference_in_json():
    decision = Decision(reference=reference(np.random.default_rng(4)))
    assert Decision.from_json(json.loads(json.dumps(decision.to_json()))) == decision


def test_a_decision_of_an_earlier_version_has_no_reference():
    assert Decision.from_json({"temperature": 1.5}).reference is None


def test_a_reference_of_unequal_signals_is_refused():
    with pytest.raises(ValueError, match="same number of photos"):
        DriftReference({"class": {0: 3}, "brightness": {0: 4}})
