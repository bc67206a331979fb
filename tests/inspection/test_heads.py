import numpy as np
import pytest

import keras_vit
from keras_vit import inspection
from makers import tiny_config

TINY = tiny_config(depth=2)
AXIAL_RESNET = keras_vit.configs.AxialResNetConfig((1, 2), width_factor=0.5, num_heads=2)
WIDE = (32, 48, 3)


def test_head_maps_are_the_class_tokens_rows(random_model, random_images):
    model, batch = random_model(TINY), random_images()
    found = inspection.head_maps(model, batch, batch_size=1)
    assert found.shape == (2, 2, 2, 2, 3)
    expected = inspection.attention_maps(model, batch)[1][:, :, 0, 1:].reshape(2, 2, 2, 3)
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-6)


def test_attention_of_an_axial_resnet_equals_its_units(
    random_model, random_images, inputs_of_blocks
):
    model, batch = random_model(AXIAL_RESNET, WIDE), random_images(WIDE)
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
        next(inspection.axial_attention(random_model(TINY), random_images()))


def test_maps_of_an_axial_resnet_are_means_over_the_line_as_queries(random_model, random_images):
    model, batch = random_model(AXIAL_RESNET, WIDE), random_images(WIDE)
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
