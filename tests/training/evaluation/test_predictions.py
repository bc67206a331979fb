import types

import numpy as np
import pytest

from keras_vit.training.evaluation.predictions import NonFiniteScores, predictions

MODEL = types.SimpleNamespace(predict_on_batch=lambda images: 2 * images)
BATCHES = [(np.ones((3, 2)), np.array([0, 1, 2])), (np.zeros((1, 2)), np.array([3]))]


@pytest.mark.parametrize("count", [3, 5])
def test_another_number_of_images_is_refused(count):
    with pytest.raises(ValueError, match=f"4 predictions for {count}"):
        list(predictions(MODEL, BATCHES, count))


def test_numbers_that_are_not_finite_name_the_image():
    batches = [BATCHES[0], (np.array([[np.nan, 0]]), np.array([3]))]
    with pytest.raises(NonFiniteScores, match="starts with d.png"):
        list(
            predictions(MODEL, batches, 4, name_of=["a.png", "b.png", "c.png", "d.png"].__getitem__)
        )
