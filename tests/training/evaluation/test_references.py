import numpy as np
import pytest

from keras_vit.configs import MODELS
from keras_vit.description.run_record import Reference
from keras_vit.training.evaluation.references import (
    ALARM,
    MAX_TIMES,
    beside_references,
    describe_seen,
    larger_size,
    most_frequent,
)

CONFIG = MODELS["ViT-B/16"]


def test_the_most_frequent_class_is_named_with_its_share():
    found = most_frequent(np.array([1, 1, 0, 2, 1]), ("ant", "bee", "crow"))
    assert found == ("always bee, the most frequent class", 0.6, 0)


@pytest.mark.parametrize(
    ("low", "images", "expected"),
    [
        (0.61, 0, "better than a: 60.0%"),
        (0.6, 0, "not shown to be better than a: 60.0%, of too few images to tell"),
        (0.65, 480, "better than a: 60.0% (55.6 to 64.3)"),
        (
            0.65,
            48,
            "not shown to be better than a: 60.0% (45.9 to 72.6), of too few images to tell",
        ),
    ],
)
def test_an_accuracy_must_be_above_by_the_intervals_of_both(low, images, expected):
    assert beside_references(0.7, low, [Reference("a", 0.6, images)]) == expected


def test_references_that_are_not_exceeded_come_first():
    found = beside_references(0.6, 0.5, [Reference("a", 0.4), Reference("b", 0.7)])
    assert found == "not shown to be better than b: 70.0%; better than a: 40.0%"


def test_simple_numbers_far_above_the_features_are_an_alarm():
    found = beside_references(0.6, 0.5, [Reference("a", 0.71, 400)])
    assert found == f"far worse than a: 71.0% (66.4 to 75.2): {ALARM}"
    assert ALARM not in beside_references(0.6, 0.5, [Reference("a", 0.69, 400)])


def test_the_most_frequent_class_is_no_alarm():
    assert ALARM not in beside_references(0.6, 0.5, [Reference("always a", 0.9)])


def test_a_larger_size_shows_the_pixels_of_the_photo():
    side, times = larger_size(CONFIG, (96, 96), (250, 330))
    assert side == 256
    assert times == pytest.approx((256 / 96) ** 2, rel=0.1)


def test_a_larger_size_takes_at_most_eight_times_as_long():
    side, times = larger_size(CONFIG, (96, 96), (3000, 4000))
    assert side == 256
    assert times <= MAX_TIMES


@pytest.mark.parametrize(
    ("seen", "photo"), [((96, 96), (140, 140)), ((384, 384), (3000, 3000)), ((96, 64), (300, 300))]
)
def test_nothing_larger_is_tried(seen, photo):
    assert larger_size(CONFIG, seen, photo) is None


def test_the_line_of_what_is_seen_names_lost_details_and_a_larger_size():
    assert describe_seen(CONFIG, (96, 96), (250, 250)) == (
        "seen at 96x96: details below 3 pixels are lost; --image-size 256 takes 7 times as long"
    )
    assert describe_seen(CONFIG, (96, 96), (90, 80)) == "seen at 96x96"
