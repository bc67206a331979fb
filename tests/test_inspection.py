import importlib
import math
import subprocess
import sys
import weakref

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import inspection
from keras_vit.inspection.report import seen_region
from keras_vit.inspection.rollout import spread
from keras_vit.preprocessing import Preprocessing

# By name, as functions of the package have the names of some.
distance, heads, rollout = (
    importlib.import_module(f"keras_vit.inspection.{name}")
    for name in ("distance", "heads", "rollout")
)

SHAPE = (8, 12, 3)  # 2 x 3 patches of 4 pixels.
TINY = keras_vit.ViTConfig(4, 16, 2, 16, 2)
AXIAL = keras_vit.AxialConfig(4, 16, 1, 16, 2, classifier="token")


def made(config, shape=SHAPE, seed=0, **arguments):
    """A model with random weights that are large enough for uneven attention."""
    model = keras_vit.build(config, input_shape=shape, classes=3, **arguments)
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.4, variable.shape))
    return model


def images(shape=SHAPE, count=2):
    return np.random.default_rng(1).normal(size=(count, *shape)).astype("float32")


def normalised(x, layer):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    gamma, beta = np.array(layer.gamma), np.array(layer.beta)
    return (x - mean) / np.sqrt(variance + 1e-6) * gamma + beta


def attention_by_loops(block, tokens, num_prefix=0, relative=False):
    """Equation 7 for tokens (T, D) by loops over heads, queries and keys: (heads, T, T)."""
    z = normalised(tokens.astype("float64"), block.norm_1)
    layer = block.attention
    length, heads = len(z), layer.num_heads
    result = np.zeros((heads, length, length))
    for head in range(heads):
        q, k = (
            z @ np.array(p.kernel)[:, head] + np.array(p.bias)[head]
            for p in (layer.query, layer.key)
        )
        for i in range(length):
            logits = []
            for j in range(length):
                key = k[j]
                if relative and min(i, j) >= num_prefix:
                    offset = i - j + (length - num_prefix) - 1
                    key = key + np.array(layer.offset_embedding)[offset, head]
                logits.append(q[i] @ key / math.sqrt(layer.head_dim))
            exponentials = np.exp(np.array(logits) - max(logits))
            result[head, i] = exponentials / exponentials.sum()
    return result


def inputs_of_blocks(model, batch, names):
    """What the blocks get, by a model that ends there."""
    ends = [model.get_layer(name).input for name in names]
    return [np.array(values) for values in keras.Model(model.input, ends).predict_on_batch(batch)]


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        keras_vit.ViTConfig(4, 16, 2, 16, 2, classifier="gap", position_embedding="learned_2d"),
        keras_vit.ViTConfig(4, 16, 2, 16, 2, num_registers=2, position_embedding="relative"),
        keras_vit.ViTConfig(
            4, 16, 2, 16, 2, position_embedding_at="every_block_shared", gelu="exact"
        ),
    ],
)
def test_attention_is_that_of_the_block_by_loops(config):
    model, batch = made(config), images()
    names = ["encoder_block_0", "encoder_block_1"]
    tokens = inputs_of_blocks(model, batch, names)
    maps = inspection.attention_maps(model, batch)
    assert len(maps) == 2
    for name, inputs, attention in zip(names, tokens, maps, strict=True):
        assert attention.dtype == np.float32
        for image in range(2):
            expected = attention_by_loops(
                model.get_layer(name),
                inputs[image],
                config.num_prefix_tokens,
                config.position_embedding == "relative",
            )
            np.testing.assert_allclose(attention[image], expected, atol=1e-6)


def test_attention_of_an_axial_model_is_that_of_its_lines():
    model, batch = made(AXIAL), images()
    lines = inputs_of_blocks(model, batch, ["row_block_0", "column_block_0"])
    rows, columns = inspection.attention_maps(model, batch)
    np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(columns.sum(-1), 1, atol=1e-6)
    # Image 1 has rows 2 and 3 of all; tokens are class, then (row, column) = 1 + 3 row + column.
    for row in range(2):
        expected = attention_by_loops(model.get_layer("row_block_0"), lines[0][2 + row])
        places = [0, 1 + 3 * row, 2 + 3 * row, 3 + 3 * row]
        found = rows[1][:, places][:, :, places]
        np.testing.assert_allclose(found[:, 1:], expected[:, 1:], atol=1e-6)
        np.testing.assert_allclose(found[:, 0, 1:], expected[:, 0, 1:] / 2, atol=1e-6)
    assert not rows[1][:, 1:4, 4:].any()
    expected = attention_by_loops(model.get_layer("column_block_0"), lines[1][3 + 2])
    places = [0, 3, 6]
    np.testing.assert_allclose(
        columns[1][:, places][:, :, places][:, 1:], expected[:, 1:], atol=1e-6
    )


def test_attention_of_a_hybrid_and_of_a_free_image_size():
    hybrid = keras_vit.ViTConfig(1, 16, 1, 16, 2, resnet=keras_vit.ResNetStem((1,), 0.5))
    found = inspection.attention_maps(made(hybrid, (16, 24, 3)), images((16, 24, 3), 1))
    assert [maps.shape for maps in found] == [(1, 2, 25, 25)]
    layout = inspection.token_layout(made(hybrid, (16, 24, 3)))
    assert (layout.grid, layout.patch_size) == ((4, 6), (4, 4))
    free = made(TINY, (None, None, 3), include_top=False)
    block = free.get_layer("encoder_block_1")
    tokens = keras.Model(free.input, block.input)
    for shape in ((8, 12, 3), (20, 8, 3)):
        batch = images(shape, 1)
        expected = attention_by_loops(block, np.array(tokens.predict_on_batch(batch))[0])
        found = inspection.attention_maps(free, batch)[1][0]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_saved_model_gives_the_same_and_inspection_leaves_no_trace(tmp_path):
    model, batch = made(TINY), images()
    before, config = model.predict_on_batch(batch), model.get_config()
    expected = inspection.attention_maps(model, batch)
    assert model.get_config() == config
    np.testing.assert_array_equal(model.predict_on_batch(batch), before)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for first, second in zip(expected, inspection.attention_maps(loaded, batch), strict=True):
        np.testing.assert_array_equal(first, second)


def test_layers_come_one_at_a_time():
    model = made(TINY)
    layers = inspection.attention_by_layer(model, images())
    assert next(layers)[0] == "encoder_block_0"
    broken = model.get_layer("encoder_block_1")
    broken.norm_1.gamma.assign(np.full(16, np.nan))
    assert np.isnan(next(layers)[1]).all()  # It had not run before.
    with pytest.raises(StopIteration):
        next(layers)


def test_a_head_that_looks_one_patch_to_the_right_has_distance_p():
    down, across, patch = 2, 4, 16
    attention = np.zeros((1, 1, 9, 9))
    attention[..., 0] = 0.5  # Half of the weight is the class token's: it must not count.
    for row in range(down):
        for column in range(across):
            # At the edge to the left.
            other = column + 1 if column < across - 1 else column - 1
            attention[0, 0, 1 + row * across + column, 1 + row * across + other] = 0.5
    found = inspection.attention_distance(attention, (down, across), (patch, patch), 1)
    assert found == pytest.approx(patch, abs=1e-12)
    taller = inspection.attention_distance(attention, (down, across), (99, 7), 1)
    assert taller == pytest.approx(7, abs=1e-12)


def test_attention_distance_is_that_of_loops():
    rng = np.random.default_rng(2)
    attention = rng.random((2, 3, 8, 8))
    grid, patch = (2, 3), (4, 5)
    expected = np.zeros((2, 3))
    for image in range(2):
        for head in range(3):
            means = []
            for q in range(6):
                weights = attention[image, head, 2 + q, 2:]
                distances = [
                    math.hypot(4 * (q // 3 - k // 3), 5 * (q % 3 - k % 3)) for k in range(6)
                ]
                means.append(np.dot(weights, distances) / weights.sum())
            expected[image, head] = np.mean(means)
    found = inspection.attention_distance(attention, grid, patch, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_mean_attention_distance_does_not_depend_on_the_batch_size():
    model, batch = made(TINY), images(count=3)
    whole = inspection.mean_attention_distance(model, batch, batch_size=3)
    assert whole.shape == (2, 2)
    parts = inspection.mean_attention_distance(model, batch, batch_size=2)
    np.testing.assert_allclose(whole, parts, rtol=1e-5)


def test_identity_rolls_out_to_identity_and_uniform_to_uniform():
    identity = np.broadcast_to(np.eye(5), (1, 2, 5, 5))
    np.testing.assert_array_equal(inspection.rollout([identity] * 3)[0], np.eye(5))
    uniform = np.full((1, 2, 5, 5), 0.2)
    found = inspection.rollout([uniform] * 60)[0]
    np.testing.assert_allclose(found, 0.2, atol=1e-12)
    # One layer: half is the token's own.
    np.testing.assert_allclose(inspection.rollout([uniform])[0], 0.1 + 0.5 * np.eye(5))


def test_rollout_is_that_of_loops():
    rng = np.random.default_rng(3)
    layers = rng.random((3, 2, 4, 5, 5))
    layers /= layers.sum(-1, keepdims=True)
    found = inspection.rollout(iter(layers))
    for image in range(2):
        product = np.eye(5)
        for attention in layers[:, image]:
            step = np.zeros((5, 5))
            for i in range(5):
                row = [sum(attention[:, i, j]) / 4 + (i == j) for j in range(5)]
                step[i] = np.array(row) / sum(row)
            product = step @ product
        np.testing.assert_allclose(found[image], product, rtol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1)
    assert not np.allclose(found, inspection.rollout(layers[::-1]))  # The order matters.


def test_the_query_of_a_rollout_is_the_class_token_or_the_mean_over_patches():
    model, batch = made(TINY), images()
    product = inspection.rollout(inspection.attention_maps(model, batch))
    found = inspection.attention_rollout(model, batch, batch_size=1)
    np.testing.assert_allclose(found, product[:, 0, 1:].reshape(2, 2, 3), atol=1e-7)
    found = inspection.attention_rollout(model, batch, query="patches")
    np.testing.assert_allclose(found, product[:, 1:, 1:].mean(1).reshape(2, 2, 3), atol=1e-7)
    without = made(keras_vit.ViTConfig(4, 16, 1, 16, 2, classifier="gap"))
    product = inspection.rollout(inspection.attention_maps(without, batch))
    found = inspection.attention_rollout(without, batch)
    np.testing.assert_allclose(found, product.mean(1).reshape(2, 2, 3), atol=1e-7)
    with pytest.raises(ValueError, match="class token"):
        inspection.attention_rollout(without, batch, query="token")


def test_head_maps_are_the_class_tokens_rows():
    model, batch = made(TINY), images()
    found = inspection.head_maps(model, batch, batch_size=1)
    assert found.shape == (2, 2, 2, 2, 3)
    expected = inspection.attention_maps(model, batch)[1][:, :, 0, 1:].reshape(2, 2, 2, 3)
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-6)


def cosine(first, second):
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


def test_position_similarity_is_the_cosine_in_each_form():
    model = made(TINY)
    table = np.array(model.get_layer("position_embedding").embedding)[0, 1:]
    found = inspection.position_similarity(model)["position_embedding"]
    assert found.shape == (2, 3, 2, 3)
    assert found[0, 2, 1, 1] == pytest.approx(cosine(table[2], table[4]), abs=1e-6)

    model = made(keras_vit.ViTConfig(4, 16, 1, 16, 2, position_embedding="learned_2d"))
    layer = model.get_layer("position_embedding")
    found = inspection.position_similarity(model)
    assert {name: values.shape for name, values in found.items()} == {
        "position_embedding/x": (3, 3),
        "position_embedding/y": (2, 2),
    }
    x = np.array(layer.x_embedding)
    assert found["position_embedding/x"][0, 2] == pytest.approx(cosine(x[0], x[2]), abs=1e-6)

    model = made(keras_vit.ViTConfig(4, 16, 1, 16, 2, position_embedding="relative"))
    table = np.array(model.get_layer("encoder_block_0").attention.offset_embedding)
    found = inspection.position_similarity(model)["encoder_block_0"]
    assert found.shape == (11, 11)
    assert found[0, 7] == pytest.approx(cosine(table[0].ravel(), table[7].ravel()), abs=1e-6)


def test_each_form_of_position_similarity_is_drawn_as_its_own():
    rng = np.random.default_rng(4)
    similarity = {
        "position_embedding": rng.uniform(-1, 1, (2, 3, 2, 3)),
        "position_embedding/y": np.eye(2),
        "encoder_block_0": np.eye(11),
    }
    *parts, _ = inspection.draw_position_similarity(similarity).axes  # The last is the scale.
    assert [part.get_title() for part in parts] == list(similarity)
    tiles, rows, offsets = (part.images[0] for part in parts)
    sheet = tiles.get_array().filled(np.nan)
    assert sheet.shape == (2 * 3 - 1, 3 * 4 - 1)
    np.testing.assert_array_equal(sheet[3:5, 8:11], similarity["position_embedding"][1, 2])
    assert np.isnan(sheet[2]).all()
    assert np.isnan(sheet[:, [3, 7]]).all()
    assert rows.get_extent() == [0.5, 2.5, 2.5, 0.5]
    assert offsets.get_extent() == [-5.5, 5.5, 5.5, -5.5]


def test_filter_components_are_those_of_the_covariance():
    model = made(keras_vit.ViTConfig(2, 16, 1, 16, 2), (4, 4, 3))
    components, shares = inspection.filter_components(model, count=5)
    assert components.shape == (5, 2, 2, 3)
    filters = np.array(model.get_layer("patch_embedding").kernel).reshape(12, 16)
    values, vectors = np.linalg.eigh(np.cov(filters))
    np.testing.assert_allclose(shares, values[::-1][:5] / values.sum(), rtol=1e-5)
    for component, vector in zip(components.reshape(5, 12), vectors.T[::-1], strict=False):
        assert abs(component @ vector) == pytest.approx(1, abs=1e-5)
        assert component[np.abs(component).argmax()] > 0
    assert len(inspection.filter_components(model, count=99)[0]) == 12


def test_filters_of_a_hybrid_are_those_of_its_root_as_it_convolves():
    config = keras_vit.ViTConfig(1, 16, 1, 16, 2, resnet=keras_vit.ResNetStem((1,), 0.5))
    model = made(config, (16, 16, 3))
    before = inspection.filter_components(model, 3)[0]
    assert before.shape == (3, 7, 7, 3)
    root = model.get_layer("root_conv")
    # Another scale and mean for each filter is standardised away.
    root.kernel.assign(np.array(root.kernel) * np.arange(1, 33) + 5)
    np.testing.assert_allclose(inspection.filter_components(model, 3)[0], before, atol=1e-3)


def test_parts_that_a_model_does_not_have_are_named():
    resnet = keras_vit.build("BiT-R50x1", include_top=False, input_shape=(32, 32, 3))
    assert inspection.filter_components(resnet, 2)[0].shape == (2, 7, 7, 3)
    for ask in (inspection.attention_maps, inspection.attention_rollout):
        with pytest.raises(ValueError, match="Vision Transformer.*ResNet"):
            ask(resnet, np.zeros((1, 32, 32, 3)))
    with pytest.raises(ValueError, match="Vision Transformer.*ResNet"):
        inspection.position_similarity(resnet)
    nowhere = made(keras_vit.ViTConfig(4, 16, 1, 16, 2, position_embedding="none"))
    with pytest.raises(ValueError, match="no position embeddings"):
        inspection.position_similarity(nowhere)
    with pytest.raises(ValueError, match=r"of shape \(None, 8, 12, 3\)"):
        inspection.attention_maps(nowhere, np.zeros((1, 8, 8, 3)))
    with pytest.raises(ValueError, match="at least one image"):
        inspection.attention_rollout(nowhere, np.zeros((0, *SHAPE)))


def test_without_matplotlib_numbers_remain_and_drawing_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    components, _ = inspection.filter_components(made(TINY), 2)
    with pytest.raises(ImportError, match=r"keras-vit\[plots\]"):
        inspection.draw_filters(components)


def test_filters_are_drawn_on_one_scale():
    components = np.stack([np.full((2, 2, 3), value) for value in (-1.0, 0.0, 3.0)])
    drawing = inspection.draw_filters(components)
    shown = [axes.images[0].get_array()[0, 0, 0] for axes in drawing.axes]
    assert shown == [0, 0.25, 1]


def test_a_map_is_spread_over_the_region_that_the_model_saw():
    found = spread(np.array([[0.0, 1.0]]), (2, 12), (0, 2, 2, 10))
    assert not found[:, :2].any()
    assert not found[:, 10:].any()
    # Patch centres at 4 and 8; pixel centres at 4.5, 5.5, 6.5 and 7.5 between them.
    np.testing.assert_allclose(found[0, 4:8], [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_allclose(found[1], found[0])


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [
        ("resize", (0, 0, 100, 200)),
        # The short side to 256 * 32 / 224 = 37 pixels, then the middle 32.
        ("resize_small_central_crop", (6.8, 56.8, 93.2, 143.2)),
        ("resize_central_crop", (6.8, 13.5, 93.2, 186.5)),
    ],
)
def test_the_region_is_what_the_preprocessing_keeps(evaluation, expected):
    found = seen_region((100, 200), Preprocessing((32, 32), evaluation))
    np.testing.assert_allclose(found, expected, atol=4)  # The crop is by whole pixels of 2.7.


def test_a_drawn_rollout_has_the_images_own_resolution():
    image = np.zeros((400, 600, 3), "uint8")
    drawing = inspection.draw_rollout(image, np.ones((2, 3)), title="a cat 99.0%")
    width, height = drawing.get_size_inches() * drawing.dpi
    assert len(drawing.axes) == 3
    for axes in drawing.axes:
        box = axes.get_position()
        assert (box.width * width, box.height * height) == pytest.approx((600, 400))
    assert [text.get_text() for text in drawing.texts] == ["a cat 99.0%"]


def test_a_drawn_rollout_shows_attention_in_the_dark_and_nothing_outside_what_was_seen():
    image = np.zeros((40, 60, 3), "uint8")
    attention = np.array([[0.1, 0.1], [0.1, 0.7]])
    drawing = inspection.draw_rollout(image, attention, region=(0, 20, 40, 60))
    dark, lit, colored = (axes.images[0].get_array() for axes in drawing.axes)
    assert not dark.any()
    assert not lit.any()  # A black image cannot be lit.
    assert not colored[:, :20].any()
    yellow, blue = colored[30, 50], colored[10, 30]
    assert yellow[0] > 2 * yellow[2]
    assert blue[2] > blue[1]


def test_a_drawn_rollout_is_as_bright_as_the_attention():
    image = np.full((40, 40, 1), 200, "uint8")
    drawing = inspection.draw_rollout(image, np.array([[0.1, 0.2], [0.3, 0.4]]))
    lit = drawing.axes[1].images[0].get_array()
    np.testing.assert_allclose(lit[0, 0], 200 / 255 * 0.25)
    np.testing.assert_allclose(lit[-1, -1], 200 / 255)


AXIAL_RESNET = keras_vit.configs.AxialResNetConfig((1, 2), width_factor=0.5, num_heads=2)
WIDE = (32, 48, 3)


def test_attention_of_an_axial_resnet_is_that_of_its_units():
    model, batch = made(AXIAL_RESNET, WIDE), images(WIDE)
    before = model.predict_on_batch(batch)
    found = list(inspection.axial_attention(model, batch))
    names = ["block_1_unit_1", "block_2_unit_1", "block_2_unit_2"]
    assert [name for name, _, _ in found] == names
    inputs = inputs_of_blocks(model, batch, names)
    grids = [(8, 12), (8, 12), (4, 6)]
    for (name, rows, columns), x, (down, across) in zip(found, inputs, grids, strict=True):
        assert rows.shape == (2, down, 2, across, across)
        assert columns.shape == (2, across, 2, down, down)
        unit = model.get_layer(name)
        # The layers' own tests compare the probabilities with loops.
        _, expected = unit.attention(unit.narrow(x)[1], return_attention=True)
        np.testing.assert_allclose(rows, np.array(expected[0]), atol=1e-3)
        np.testing.assert_allclose(columns, np.array(expected[1]), atol=1e-3)
        output, _ = unit(x, return_attention=True)
        np.testing.assert_allclose(np.array(output), np.array(unit(x)), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(model.predict_on_batch(batch), before)
    with pytest.raises(ValueError, match="Axial-ResNet"):
        next(inspection.axial_attention(made(TINY), images()))


def test_a_row_that_looks_one_cell_to_the_right_has_distance_of_a_stride():
    model = made(AXIAL_RESNET, WIDE)
    for layer in model.layers:
        if layer.name.startswith("block"):
            for axis in (layer.attention.row, layer.attention.column):
                # The logits are those of the offsets alone.
                for part in (axis.query, axis.key):
                    part.kernel.assign(np.zeros(part.kernel.shape))
                axis.query.bias.assign(np.ones(axis.query.bias.shape))
                table = np.zeros(axis.offset_embedding.shape)
                length = (len(table) + 1) // 2
                table[length - 1 - 1] = 1000  # Query minus key is -1.
                axis.offset_embedding.assign(table)
    found = inspection.mean_attention_distance(model, images(WIDE), batch_size=1)
    assert found.shape == (6, 2)

    def expected(length, stride):
        # The last of a line sees nothing to its right: all logits are equal.
        return stride * (length - 1 + np.arange(length).mean()) / length

    lines = [(12, 4), (8, 4), (12, 4), (8, 4), (6, 8), (4, 8)]
    wanted = [[expected(*line)] * 2 for line in lines]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_maps_of_an_axial_resnet_are_means_over_the_line_as_queries():
    model, batch = made(AXIAL_RESNET, WIDE), images(WIDE)
    maps = inspection.axial_head_maps(model, batch, batch_size=1)
    _, rows, columns = next(inspection.axial_attention(model, batch))
    by_row, by_column = maps["block_1_unit_1/row"], maps["block_1_unit_1/column"]
    assert by_row.shape == by_column.shape == (2, 2, 8, 12)
    # Image 1, head 0, the position in row 3 and column 5.
    assert by_row[1, 0, 3, 5] == pytest.approx(rows[1, 3, 0, :, 5].mean(), rel=1e-4)
    assert by_column[1, 0, 3, 5] == pytest.approx(columns[1, 5, 0, :, 3].mean(), rel=1e-4)
    np.testing.assert_allclose(by_row.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(by_column.sum(-2), 1, rtol=1e-5)
    similarity = inspection.position_similarity(model)
    assert similarity["block_2_unit_2/row"].shape == (11, 11)
    assert similarity["block_2_unit_2/column"].shape == (7, 7)


EVERY_FIGURE = {"filters", "position_similarity", "attention_distance", "rollout", "heads"}


@pytest.mark.parametrize(
    ("config", "shape", "figures"),
    [
        (
            keras_vit.ViTConfig(1, 16, 1, 16, 2, resnet=keras_vit.ResNetStem((1,), 0.5)),
            (16, 24, 3),
            EVERY_FIGURE,
        ),
        (AXIAL, SHAPE, EVERY_FIGURE),
        (AXIAL_RESNET, WIDE, EVERY_FIGURE - {"rollout"}),
    ],
    ids=["hybrid", "Axial-ViT", "Axial-ResNet"],
)
def test_other_architectures_have_the_figures_that_apply(config, shape, figures, tmp_path):
    file = tmp_path / "wide.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 31, 3), "uint8")).save(file)
    inspection.write_report(
        tmp_path / "out", made(config, shape), Preprocessing(shape[:2]), [file], num_pictures=1
    )
    written = {path.name for path in (tmp_path / "out").iterdir()}
    drawn = {f"{name}_1" if name in ("rollout", "heads") else name for name in figures}
    assert written == {
        "index.html",
        *(f"{name}.npz" for name in figures),
        *(f"{name}.{suffix}" for name in drawn for suffix in ("png", "svg")),
    }
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert ("Attention Rollout is left out." in page) == ("rollout" not in figures)


@pytest.mark.parametrize("figure", ["distance", "rollout", "heads"])
def test_one_layers_attention_is_in_memory_at_a_time(figure, monkeypatch):
    deep = made(keras_vit.ViTConfig(4, 16, 6, 16, 2))
    function, module = {
        "distance": (inspection.mean_attention_distance, distance),
        "rollout": (inspection.attention_rollout, rollout),
        "heads": (inspection.head_maps, heads),
    }[figure]
    references, alive = [], []

    def watched(*arguments):
        for name, attention in inspection.attention_by_layer(*arguments):
            references.append(weakref.ref(attention))
            yield name, attention
            del attention
            alive.append(sum(reference() is not None for reference in references))

    monkeypatch.setattr(module, "attention_by_layer", watched)
    function(deep, images(count=3), batch_size=2)
    assert len(references) == 6 * 2  # Layers by batches.
    assert max(alive) <= 1  # That which the caller looks at.


@pytest.mark.slow
def test_memory_is_bounded_for_large_images_and_models():
    """ViT-L/16 at 384 pixels: all layers' attention of 8 images would take 4.1 GB."""
    code = (
        "import numpy as np, keras_vit\n"
        "from keras_vit.inspection import mean_attention_distance\n"
        "from keras_vit.training.run.machine import peak_memory\n"
        "model = keras_vit.build('ViT-L/16', input_shape=(384, 384, 3))\n"
        "images = np.zeros((16, 384, 384, 3), 'float32')\n"
        "mean_attention_distance(model, images, batch_size=8)\n"
        "print(peak_memory())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 4000  # MiB.
