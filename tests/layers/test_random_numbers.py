"""Random numbers by example: Philox's, wherever the example is."""

import keras
import numpy as np
import pytest

from by_hand import array
from keras_vit.layers import Dropout, random_numbers
from keras_vit.layers.random_numbers import examples_from, named_seed, philox, random_bits

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def seed(*words):
    return np.array(words, "uint32")


def by_python(key, counter):
    """Philox-4x32-10 of a counter of four words, in Python's integers."""
    x, key = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [
            second >> 32 ^ x[1] ^ key[0],
            second & 0xFFFFFFFF,
            first >> 32 ^ x[3] ^ key[1],
            first & 0xFFFFFFFF,
        ]
        steps = (0x9E3779B9, 0xBB67AE85)
        key = [(word + step) & 0xFFFFFFFF for word, step in zip(key, steps, strict=True)]
    return x


@pytest.mark.any_backend
def test_numbers_are_those_of_the_published_algorithm():
    # The known answer of Random123 for a counter and key of zeros.
    published = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert by_python((0, 0), (0, 0, 0, 0)) == published
    np.testing.assert_array_equal(np.ravel(array(philox((1, 4), seed(0, 0)))), published)
    # Ten numbers take three counters; the last rows begin beyond 2^32.
    key, first = (3, 2**31 + 5), 2**31 - 9
    rows = array(philox((3, 2, 5), seed(*key), first)).reshape(3, 10)
    for row, found in enumerate(rows):
        counters = [3 * (first + row) + column for column in range(3)]
        words = [by_python(key, (c & 0xFFFFFFFF, c >> 32, 0, 0)) for c in counters]
        np.testing.assert_array_equal(found, np.ravel(words)[:10])


@pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow has its own operation")
@pytest.mark.parametrize("compiled", [False, True])
def test_tensorflow_draws_the_numbers_of_the_other_backends(compiled):
    import tensorflow as tf

    def draw(rows, first):
        return philox((rows, 3, 7), seed(5, 6), first)

    if compiled:
        draw = tf.function(draw, jit_compile=True)
    theirs = random_numbers._philox_of_operations(4, 6, seed(5, 6), 2**30)
    np.testing.assert_array_equal(
        np.reshape(draw(4, tf.constant(2**30)), (4, 21)), np.array(theirs)[:, :21]
    )


@pytest.mark.any_backend
def test_a_row_of_numbers_goes_on_in_the_high_word_of_its_counter():
    first = (2**32 - 1) // 3  # A row of three counters, which begins at the last low word.
    (found,) = array(random_numbers._philox_of_operations(1, 3, seed(3, 4), first))
    counters = [(2**32 - 1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0)]
    words = [by_python((3, 4), counter) for counter in counters]
    np.testing.assert_array_equal(found, np.ravel(words))


@pytest.mark.any_backend
def test_an_example_has_its_numbers_in_any_part_of_the_batch():
    shape = (3, 5)

    def bits(count):
        return array(random_bits((count, *shape), seed(1, 2)))

    whole = bits(12)
    parts = []
    for first, count in ((0, 7), (7, 4), (11, 1)):
        with examples_from(first, count):
            parts.append(bits(count))
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    with examples_from(2, 2):  # Six examples in all, each of two rows.
        np.testing.assert_array_equal(bits(4), whole[4:8])
    np.testing.assert_array_equal(bits(12), whole)


@pytest.mark.any_backend
def test_a_mask_has_the_layer_s_rate_and_keeps_the_mean():
    ones = np.ones((100, 40, 50), "float32")
    outputs = array(Dropout(0.3)(ones, training=True))
    # 200,000 units: four standard errors.
    assert (outputs == 0).mean() == pytest.approx(0.3, abs=0.0041)
    np.testing.assert_allclose(outputs[outputs != 0], 1 / 0.7, rtol=1e-6)
    examples = array(Dropout(0.3, (None, 1, 1))(ones, training=True))
    assert (examples == examples[:, :1, :1]).all()
    assert 0 < (examples[:, 0, 0] == 0).sum() < 100


def test_named_seeds_differ_and_keep_the_count_of_calls():
    drawn = [array(named_seed(seed(2**32 - 1, 7), name)) for name in ("one", "other")]
    assert drawn[0][0] != drawn[1][0]
    assert drawn[0][1] == drawn[1][1] == 7


def test_a_mask_keeps_the_dtype_of_its_inputs():
    ones = keras.ops.ones((4, 8), "bfloat16")
    assert Dropout(0.5, dtype="bfloat16")(ones, training=True).dtype == ones.dtype
