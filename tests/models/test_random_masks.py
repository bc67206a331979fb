"""The random masks of whole models: their rates, their independence, and recomputing."""

import itertools

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.layers import Dropout, tokens
from keras_vit.training.run.masked_patches import masked_patch_model
from makers import tiny_config

BATCH = 800
RATES = {"dropout_rate": 0.5, "attention_dropout_rate": 0.4, "stochastic_depth_rate": 0.6}
MODELS = {
    "learned_1d": {},
    "relative": {"position_embedding": "relative"},
    "map": {"classifier": "map"},
}


def config(depth=4, **changes):
    return tiny_config(width=8, depth=depth, **{**RATES, **changes})


def model_of(name):
    if name == "masked patches":
        return masked_patch_model(config(), image_size=(8, 8))
    return keras_vit.build(config(**MODELS[name]), input_shape=(8, 8, 3), classes=2)


class Recorder:
    """The masks that a model draws, as booleans with a row for each example or token."""

    def __init__(self, monkeypatch):
        self.masks, self.seeds = [], []
        call, draw = Dropout.call, tokens.random_bits

        def recorded_call(layer, inputs, training=False, seed=None):
            if training and layer.rate:
                seed = layer.seed_generator.next() if seed is None else seed
                kept = array(call(layer, keras.ops.ones_like(inputs), True, seed)) != 0
                self.masks.append((layer, kept[:, 0, 0] if layer.noise_shape else kept))
                self.seeds.append(tuple(array(seed).tolist()))
            return call(layer, inputs, training, seed)

        def recorded_draw(shape, seed):
            self.seeds.append(tuple(array(seed).tolist()))
            return draw(shape, seed)

        monkeypatch.setattr(Dropout, "call", recorded_call)
        monkeypatch.setattr(tokens, "random_bits", recorded_draw)


@pytest.fixture
def recorder(monkeypatch):
    return Recorder(monkeypatch)


def images(count=BATCH):
    return np.random.default_rng(0).standard_normal((count, 8, 8, 3)).astype("float32")


@pytest.mark.parametrize("name", MODELS)
def test_each_block_has_its_rate(name, recorder):
    model = model_of(name)
    model(images(), training=True)
    for layer, kept in recorder.masks:
        error = np.sqrt(layer.rate * (1 - layer.rate) / kept.size)
        assert 1 - kept.mean() == pytest.approx(layer.rate, abs=4 * error), layer.name
    for block in range(4):
        layer = model.get_layer(f"encoder_block_{block}")
        drawn = [used.rate for used, _ in recorder.masks if used is layer.stochastic_depth]
        # Linear from 0 in the first block to the model's rate in the last; twice in a block.
        assert drawn == pytest.approx([block * 0.2] * 2 if block else [])
        assert layer.attention.dropout.rate == 0.4
        assert {layer.dropout.rate, layer.mlp.dropout_1.rate, layer.mlp.dropout_2.rate} == {0.5}
    assert model.get_layer("embedding_dropout").rate == 0.5


@pytest.mark.parametrize("name", [*MODELS, "masked patches"])
def test_all_masks_of_a_model_are_independent(name, recorder):
    model = model_of(name)
    for _ in range(2):  # Two steps.
        outputs = model(images(), training=True)
    # Twice: tokens, four in each of four blocks, two more in all but the first of them.
    assert len(recorder.masks) == 2 * (1 + 4 * 4 + 2 * 3)
    corruptions = 2 * 3 * (name == "masked patches")
    assert len(set(recorder.seeds)) == len(recorder.seeds) == len(recorder.masks) + corruptions
    masks = [np.ravel(kept) for _, kept in recorder.masks]
    # One number of each example too, from the first column of every mask.
    masks += [kept.reshape(BATCH, -1)[:, 0] for _, kept in recorder.masks]
    if name == "masked patches":
        drawn = np.zeros((BATCH, 4), bool)
        np.put_along_axis(drawn, array(outputs["places"]), True, 1)
        masks.append(drawn[:, 0])
    count = len(recorder.masks)
    for (i, one), (j, other) in itertools.combinations(enumerate(masks), 2):
        if j == i + count:
            continue  # The same mask, whole and by example.
        length = min(len(one), len(other))
        found = np.corrcoef(one[:length], other[:length])[0, 1]
        assert abs(found) < 6 / np.sqrt(length), (i, j)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="JAX traces it once")
def test_recomputing_draws_the_masks_of_the_forward_pass(recorder):
    import tensorflow as tf

    model = keras_vit.build(config(depth=2, remat=True), input_shape=(8, 8, 3), classes=2)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(images(8), training=True))
    forward = recorder.masks[1:]  # Without the tokens' mask, which is outside of the blocks.
    del recorder.masks[:]
    tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    again = recorder.masks
    assert len(again) == len(forward) == 2 * 4 + 2
    for layer, kept in again:
        same = [mask for other, mask in forward if other is layer]
        assert any(np.array_equal(kept, mask) for mask in same), layer.name
    # The last block is computed again first.
    blocks = [forward[4:], forward[:4]]
    for (_, kept), (_, mask) in zip(again, itertools.chain(*blocks), strict=True):
        np.testing.assert_array_equal(kept, mask)
