import weakref

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array, attention_by_loops
from keras_vit import inspection
from keras_vit.inspection import attention_probabilities
from makers import tiny_config

TINY = tiny_config(depth=2)
AXIAL = keras_vit.configs.AxialConfig(4, 16, 1, 16, 2, classifier="token")


def expected_attention(block, tokens):
    """The probabilities (B, heads, T, T) of a block that reads tokens (B, T, D)."""
    return attention_by_loops(block.attention, array(block.norm_1(tokens)))[1]


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        tiny_config(depth=2, classifier="gap", position_embedding="learned_2d"),
        tiny_config(depth=2, num_registers=2, position_embedding="relative"),
        tiny_config(depth=2, position_embedding_at="every_block_shared", gelu="exact"),
    ],
)
def test_attention_equals_loops_over_heads_queries_and_keys(random_model, random_images, config):
    model, batch = random_model(config), random_images()
    names = ["encoder_block_0", "encoder_block_1"]
    ends = [model.get_layer(name).input for name in names]
    tokens = map(np.array, keras.Model(model.input, ends).predict_on_batch(batch))
    maps = inspection.attention_maps(model, batch)
    assert len(maps) == 2
    for name, inputs, attention in zip(names, tokens, maps, strict=True):
        assert attention.dtype == np.float32
        expected = expected_attention(model.get_layer(name), inputs)
        np.testing.assert_allclose(attention, expected, atol=2e-6)


def test_attention_along_lines_is_refused(random_model, random_images):
    with pytest.raises(ValueError, match="rows and columns"):
        inspection.attention_maps(random_model(AXIAL), random_images())


def test_attention_of_a_hybrid_and_of_a_free_image_size(random_model, random_images):
    hybrid = tiny_config(patch_size=1, resnet=keras_vit.configs.ResNetStem((1,), 0.5))
    found = inspection.attention_maps(
        random_model(hybrid, (16, 24, 3)), random_images((16, 24, 3), 1)
    )
    assert [maps.shape for maps in found] == [(1, 2, 25, 25)]
    layout = inspection.token_layout(random_model(hybrid, (16, 24, 3)))
    assert (layout.grid, layout.patch_size) == ((4, 6), (4, 4))
    free = random_model(TINY, (None, None, 3), include_top=False)
    block = free.get_layer("encoder_block_1")
    tokens = keras.Model(free.input, block.input)
    for shape in ((8, 12, 3), (20, 8, 3)):
        batch = random_images(shape, 1)
        expected = expected_attention(block, tokens.predict_on_batch(batch))
        found = inspection.attention_maps(free, batch)[1]
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_saved_model_gives_the_same_and_is_not_changed(random_model, random_images, tmp_path):
    model, batch = random_model(TINY), random_images()
    before, config = model.predict_on_batch(batch), model.get_config()
    expected = inspection.attention_maps(model, batch)
    assert model.get_config() == config
    np.testing.assert_array_equal(model.predict_on_batch(batch), before)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for first, second in zip(expected, inspection.attention_maps(loaded, batch), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "function",
    [inspection.mean_attention_distance, inspection.attention_rollout],
)
def test_one_layers_attention_is_in_memory_at_a_time(
    random_model, random_images, function, monkeypatch
):
    deep = random_model(tiny_config(depth=6))
    by_layer = inspection.attention_by_layer
    references, alive = [], []

    def watched(*arguments):
        for name, attention in by_layer(*arguments):
            references.append(weakref.ref(attention))
            yield name, attention
            del attention
            alive.append(sum(reference() is not None for reference in references))

    monkeypatch.setattr(attention_probabilities, "attention_by_layer", watched)
    function(deep, random_images(count=3), batch_size=2)
    assert len(references) == 6 * 2  # Layers by batches.
    assert max(alive) <= 1  # That which the caller looks at.
