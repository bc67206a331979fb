"""The bound where the size of a group goes with its difficulty: it is for one photo of each."""

import math
import pathlib
import re

import numpy as np
import pytest

from keras_vit.description import Labels
from keras_vit.training.evaluation.measures import scaled_probabilities
from keras_vit.training.evaluation.risk import Bound
from keras_vit.training.evaluation.scores import Scores, distinct
from keras_vit.training.settings import DecisionSettings
from keras_vit.training.trust.calibration_bound import (
    Decision,
    about_size,
    enough_images,
    find_decision,
    largest_leverage,
    with_section,
)

# Classes, their shares, how far a class stands out in small and in large groups, the large
# groups' size and share, whether their photos are copies, and the bound.
POPULATIONS = {
    "harder bursts": (10, None, (2.5, 1.8), (5, 0.2), False, 0.12),
    "much harder bursts": (10, None, (2.5, 1.0), (20, 0.1), False, 0.15),
    "easier bursts": (10, None, (2.0, 3.0), (5, 0.2), False, 0.12),
    "hard copies": (10, None, (2.5, 1.8), (10, 0.1), True, 0.12),
    "97:3": (2, (0.97, 0.03), (3.0, 2.0), (5, 0.2), False, 0.02),
}

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"


def drawn(rng, groups, population):
    """Scores of an overconfident classifier, and the group of each photo."""
    classes, shares, hard, (size, share), is_copied, _ = population
    large = rng.random(groups) < share
    sizes = np.where(large, size, 1)
    group = np.repeat(np.arange(groups), sizes)
    of_group = rng.choice(classes, groups, p=shares)
    labels = of_group[group] if is_copied else rng.choice(classes, len(group), p=shares)
    logits = rng.normal(size=(groups if is_copied else len(group), classes))
    logits = logits[group] if is_copied else logits
    logits[np.arange(len(group)), labels] += np.where(large, hard[1], hard[0])[group]
    return Scores(np.zeros((len(group), 1), "float32"), 2.2 * logits, labels), group


def draws_above(population, draws):
    """How many draws have true risks above the bound: of one photo of each group, and of all."""
    classes, bound = population[0], population[-1]
    everything, group = drawn(np.random.default_rng(10**6), 20_000, population)
    weights = 1 / np.bincount(group)[group]
    labels, above = Labels(tuple(map(str, range(classes)))), np.zeros(2, int)
    for seed in range(draws):
        known, groups = drawn(np.random.default_rng(seed), 1_500, population)
        known = known.at(distinct(groups.tolist()))
        try:
            found = find_decision(
                labels, known, None, DecisionSettings(max_error=bound), grouped=True
            )
        except ValueError:
            continue
        rows = scaled_probabilities(everything.logits, found.temperature)
        answered, wrong = rows.max(1) >= found.bound.threshold, rows.argmax(1) != everything.labels
        risks = [np.average(wrong[answered], weights=w[answered]) for w in (weights, weights**0)]
        above += np.array(risks) > bound
    return above


@pytest.mark.slow
@pytest.mark.parametrize("name", POPULATIONS)
def test_300_draws_keep_the_bound_for_one_photo_of_each_group(name):
    above, _ = draws_above(POPULATIONS[name], 300)
    assert above <= 300 * 0.05 + 2 * math.sqrt(300 * 0.05 * 0.95)


def test_the_bound_is_for_one_photo_of_each_group_and_not_for_all():
    of_groups, of_all = draws_above(POPULATIONS["harder bursts"], 20)
    assert of_groups <= 3
    assert of_all >= 10


def passes(groups, population, seed):
    """Whether a bound is found on one photo of each of some groups."""
    known, group = drawn(np.random.default_rng(seed), groups, population)
    labels = Labels(tuple(map(str, range(population[0]))))
    settings = DecisionSettings(max_error=population[-1])
    try:
        find_decision(labels, known.at(distinct(group.tolist())), None, settings, grouped=True)
    except ValueError:
        return False
    return True


def test_readme_has_the_number_of_calibration_photos_for_its_bound():
    text = README.read_text(encoding="utf-8").replace("\n", " ")
    (numbers,) = re.findall(r"with 10% it needs (.*?);", text)
    pairs = re.findall(r"(\d+) (?:calibration photos )?if (\d+)%", numbers)
    assert len(pairs) == 3
    for count, percent in pairs:
        assert enough_images(int(percent) / 100, DecisionSettings(max_error=0.1)) == int(count)


@pytest.mark.parametrize("bound", [0.04, 0.06])
def test_the_stated_number_of_groups_is_enough_in_most_draws(bound):
    population = (10, None, (4.5, 3.5), (5, 0.1), False, bound)
    everything, group = drawn(np.random.default_rng(10**6), 20_000, population)
    right = everything.logits.argmax(axis=1) == everything.labels
    accuracy = np.average(right, weights=1 / np.bincount(group)[group])
    enough = enough_images(accuracy, DecisionSettings(max_error=bound))
    assert sum(passes(enough, population, seed) for seed in range(40)) >= 28  # 80% of 40 are 32.


def test_the_line_says_how_many_groups_would_do():
    settings = DecisionSettings(max_error=0.05)
    line = about_size(0.98, "on the test images", 40, settings, grouped=True)
    assert line == (
        "40 groups to calibrate; 98.0% right on the test images: 461 groups would do to answer all "
        "with at most 5.0% of errors, in 80% of draws"
    )


def test_no_number_of_groups_makes_up_for_more_errors_than_the_bound():
    settings = DecisionSettings(max_error=0.05)
    line = about_size(0.8, "on the test images", 40, settings, grouped=True)
    # 80 answers without an error of 100 tested groups, and a fifth to choose by.
    assert "it must refuse some to keep to at most 5.0% of errors, however many there are" in line
    assert "it needs at least 124 groups, and more unless" in line


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"grouped": True},
            "one photo of each group (copies are a group), like the 154 held-out ones",
        ),
        (
            {"recorded": False},
            "photos like these 154, if the model was not trained on any of them",
        ),
    ],
    ids=["groups", "without a record of training"],
)
def test_line_card_and_record_name_the_photos_that_the_bound_is_for(facts, words):
    bound = DecisionSettings(max_error=0.1)
    answers = Bound(threshold=0.0, images=154, answered=100, wrong=0, holds=True)
    decision = Decision(bound, 1.0, None, {}, answers, images=154, strange=0, **facts)
    assert decision.lines[0].endswith(f"of the answers are wrong, for {words}")
    assert f"The bound holds for {words}. No bound" in with_section("# Pets\n", decision)
    assert decision.to_json()["holds_for"] == words


@pytest.mark.parametrize(
    ("images", "limit"),
    # A new photo is above the k-th largest of n with a probability of k / (n + 1).
    [(99, 95.5), (98, 95.5), (100, 96.5), (20, 20 + 10.0), (19, 19 + 9.5), (18, None)],
)
def test_strange_is_above_the_kth_largest_of_one_photo_more(images, limit):
    leverages = np.arange(1.0, images + 1)
    assert largest_leverage(leverages, 0.05) == limit


@pytest.mark.parametrize(("threshold", "answers_all"), [(0.0, True), (0.4, False)])
def test_a_classifier_that_refuses_no_photo_says_so(threshold, answers_all):
    answers = Bound(threshold=threshold, images=154, answered=154, wrong=0, holds=True)
    decision = Decision(DecisionSettings(max_error=0.1), 1.0, None, {}, answers, 154, strange=0)
    assert ("it answers every photo" in decision.lines[1]) == answers_all
