"""Opened data and what is in them, for the tests of data."""

import numpy as np
import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import evaluation_batches, open_source


def opened(data, **options):
    """Opens data whose files are known to be good."""
    return open_source(data, **{"verify": False, **options})


def refused(data, match, **options):
    """Checks that data are refused in one line."""
    with pytest.raises(ValueError, match=match) as caught:
        opened(data, **options)
    assert "\n" not in str(caught.value)


def numbers(batches):
    """Returns which images these are, where the number of each is its grey value."""
    found = [images[:, 0, 0, 0] for images, _ in batches]
    return np.rint((np.concatenate(found) + 1) * 127.5).astype(int).tolist()


def in_order(examples):
    """Returns the `numbers` of examples."""
    return numbers(evaluation_batches(examples, preprocessing=Preprocessing((8, 6)), batch_size=8))
