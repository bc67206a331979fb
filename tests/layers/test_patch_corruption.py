"""The corruption of patches: how many, how, and that what is hidden stays hidden."""

import keras
import numpy as np
import pytest

from by_hand import array
from keras_vit.layers import PatchCorruption

pytestmark = pytest.mark.any_backend

N, D = 100, 3


def corrupted(rate=0.5, batch=400, training=True):
    """Returns layer, tokens that are all different, what became of them, and the places."""
    keras.utils.set_random_seed(0)
    layer = PatchCorruption(rate)
    tokens = np.arange(1, batch * N + 1, dtype="float32").reshape(batch, N, 1).repeat(D, 2)
    outputs, places = layer(tokens, training=training)
    return layer, tokens, *map(array, (outputs, places))


def kinds(layer, tokens, outputs, places):
    """Returns masked, replaced and kept as booleans of the drawn patches."""
    at = places[..., None].repeat(D, 2)
    before, after = np.take_along_axis(tokens, at, 1), np.take_along_axis(outputs, at, 1)
    masked = (after == array(layer.mask)).all(-1)
    kept = (after == before).all(-1)
    return masked, ~masked & ~kept, kept


def test_the_paper_s_shares_are_corrupted():
    layer, tokens, outputs, places = corrupted()
    assert places.shape == (400, 50)  # Half of them, exactly.
    assert all(len(set(row)) == 50 for row in places.tolist())
    shares = [kind.mean() for kind in kinds(layer, tokens, outputs, places)]
    # 20,000 draws: four standard errors are 0.0113 and 0.0085.
    np.testing.assert_allclose(shares, (0.8, 0.1, 0.1), atol=0.011)


def test_all_other_patches_stay_as_they_are():
    _, tokens, outputs, places = corrupted()
    drawn = np.zeros(tokens.shape[:2], bool)
    np.put_along_axis(drawn, places, True, 1)
    np.testing.assert_array_equal(outputs[~drawn], tokens[~drawn])


def test_a_replacement_is_another_patch_of_the_image_that_was_not_drawn():
    layer, tokens, outputs, places = corrupted()
    _, replaced, _ = kinds(layer, tokens, outputs, places)
    images, drawn = np.nonzero(replaced)
    values = outputs[images, places[images, drawn], 0].astype(int) - 1
    np.testing.assert_array_equal(values // N, images)
    donors = values % N
    assert not any(donor in places[image] for image, donor in zip(images, donors, strict=True))
    assert len(set(donors.tolist())) > 90  # Any of them.


@pytest.mark.any_backend_slow
def test_draws_differ_between_steps_and_images_and_repeat_for_a_seed():
    layer, tokens, _, first = corrupted(0.15, batch=2)
    assert first.shape == (2, 15)
    assert not np.array_equal(first, array(layer(tokens, training=True)[1]))
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, corrupted(0.15, batch=2)[3])


def test_a_share_that_corrupts_all_or_nothing_is_refused():
    with pytest.raises(ValueError, match="rate must be in"):
        PatchCorruption(1.0)
    with pytest.raises(ValueError, match="leave one.*1 patches"):
        PatchCorruption(0.6).build((None, 1, D))


@pytest.mark.any_backend_slow
def test_an_evaluation_repeats():
    layer, tokens, outputs, places = corrupted(batch=4, training=False)
    state = array(layer.seed_generator.state)
    again, again_places = layer(tokens)
    np.testing.assert_array_equal(outputs, array(again))
    np.testing.assert_array_equal(places, array(again_places))
    np.testing.assert_array_equal(state, array(layer.seed_generator.state))
