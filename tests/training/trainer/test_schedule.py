import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training import warmup_schedule


def values(schedule, steps):
    return np.array([float(schedule(step)) for step in steps])


def test_cosine_is_that_of_the_official_fine_tuning(golden):
    recipe = golden("vit_token").json("finetune_trajectory.json")
    expected = golden("vit_token").load("finetune_trajectory.npz")["learning_rates"]
    schedule = warmup_schedule(
        recipe["base_lr"], steps=recipe["steps"], warmup_steps=recipe["warmup_steps"]
    )
    np.testing.assert_allclose(values(schedule, range(8)), expected, rtol=1e-6, atol=1e-9)


def test_linear_ends_at_a_hundred_thousandth_and_warms_up_from_zero():
    schedule = warmup_schedule(1e-3, steps=100, warmup_steps=10, decay="linear")
    # The warm-up multiplies a decay that has not begun.
    expected = [0.0, 5e-4, 1e-3, 1e-5 + (1e-3 - 1e-5) * 0.5, 1e-5, 1e-5]
    np.testing.assert_allclose(values(schedule, [0, 5, 10, 55, 100, 130]), expected, rtol=1e-5)


def test_reciprocal_square_root_is_half_after_three_times_ten_thousand_steps():
    schedule = warmup_schedule(0.1, steps=100_000, warmup_steps=100, decay="rsqrt")
    expected = [0.05, 0.1, 0.1 / np.sqrt(2), 0.1 / 2]
    found = values(schedule, [50, 100, 10_100, 30_100])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("decay", ["cosine", "linear", "rsqrt", "constant"])
def test_a_schedule_survives_serialisation(decay):
    schedule = warmup_schedule(0.03, steps=50, warmup_steps=5, decay=decay)
    config = keras.optimizers.schedules.serialize(schedule)
    copy = keras.optimizers.schedules.deserialize(config)
    np.testing.assert_array_equal(values(copy, range(0, 50, 7)), values(schedule, range(0, 50, 7)))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"warmup_steps": 10}, "shorter"),
        ({"warmup_steps": 0, "decay": "cosin"}, "cosine"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(arguments, word):
    with pytest.raises(ValueError, match=word):
        warmup_schedule(0.1, steps=10, **arguments)


def test_the_class_is_saved_by_its_name_and_not_public():
    schedule = warmup_schedule(0.1, steps=100, warmup_steps=10, decay="rsqrt")
    saved = keras.saving.serialize_keras_object(schedule)
    assert saved["registered_name"] == "keras_vit>WarmupSchedule"
    again = keras.saving.deserialize_keras_object(saved)
    np.testing.assert_array_equal(values(again, range(100)), values(schedule, range(100)))
    assert not hasattr(keras_vit.training, "WarmupSchedule")
