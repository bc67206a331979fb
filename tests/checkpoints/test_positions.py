import keras
import numpy as np
import pytest
import scipy.ndimage

import keras_vit
from keras_vit.checkpoints.resize import resize_positions
from keras_vit.configs.position_resize import RULES
from makers import tiny_config

GRIDS = [((14, 14), (24, 12)), ((5, 3), (1, 7)), ((4, 4), (4, 4))]


def _table(grid, dim=4):
    return np.random.default_rng(0).normal(size=(grid[0] * grid[1], dim)).astype("float32")


@pytest.mark.parametrize("case", ["4_6_1", "14_24_1", "6_4_0"])
def test_official_resize_is_that_of_the_official_loader(case, golden):
    arrays = golden("").load("posemb_resample.npz")
    old, new, prefix = map(int, case.split("_"))
    table, expected = arrays[f"in_{case}"][0, prefix:], arrays[f"out_{case}"][0, prefix:]
    resized = resize_positions(table, (old, old), (new, new), "official")
    np.testing.assert_allclose(resized, expected, rtol=0, atol=1e-6)  # float32.


@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"bicubic_keras"}))
@pytest.mark.parametrize("case", ["4x5_7x9", "6x7_4x3", "5x5_5x3"])
def test_every_rule_is_the_interpolation_of_torch(rule, case, golden):
    arrays = golden("").load("position_resize.npz")
    old, new = (tuple(map(int, grid.split("x"))) for grid in case.split("_"))
    table = arrays[f"in_{case}"].reshape(old[0] * old[1], -1)
    expected = arrays[f"{rule}_{case}"].reshape(new[0] * new[1], -1)
    np.testing.assert_allclose(resize_positions(table, old, new, rule), expected, atol=2e-7)


@pytest.mark.of_tensorflow
@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_the_rule_of_keras_hub_is_the_resize_of_keras(old, new):
    table = _table(old)
    image = table.reshape(*old, -1)
    expected = keras.ops.image.resize(image, new, "bicubic", data_format="channels_last")
    resized = resize_positions(table, old, new, "bicubic_keras")
    # TensorFlow rounds the distances to 1/1024.
    np.testing.assert_allclose(resized, np.reshape(expected, resized.shape), atol=5e-3)


def _model(grid, classifier="token"):
    config = tiny_config(patch_size=8, num_heads=1, classifier=classifier)
    shape = (8 * grid[0], 8 * grid[1], 3)
    model = keras_vit.build(config, input_shape=shape, classes=2)
    model.get_layer("predictions").kernel.assign(np.ones((16, 2)))
    return model


def _randomised(model):
    table = model.get_layer("position_embedding").embedding
    table.assign(np.random.default_rng(1).normal(size=table.shape))
    return np.array(table)[0]


def _table_of(model):
    return np.array(model.get_layer("position_embedding").embedding)[0]


@pytest.mark.parametrize("kind", [".npz", ".weights.h5"])
def test_grids_of_equal_count_are_told_apart(kind, tmp_path):
    source, target = _model((24, 6)), _model((12, 12))
    table = _randomised(source)
    if kind == ".npz":
        keras_vit.save_checkpoint(source, tmp_path / "a.npz")
    else:
        source.save_weights(tmp_path / "a.weights.h5")
    report = keras_vit.load_checkpoint(target, tmp_path / f"a{kind}")
    assert report.resized == {"position_embedding/embedding": ((24, 6), (12, 12))}
    assert "from 24x6 to 12x12 patches" in str(report)
    expected = scipy.ndimage.zoom(table[1:].reshape(24, 6, -1), (0.5, 2, 1), order=1)
    np.testing.assert_allclose(_table_of(target)[1:], expected.reshape(144, -1), atol=1e-6)
    np.testing.assert_array_equal(_table_of(target)[0], table[0])


@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_196_rows_are_196_patches_without_a_class_token(classifier, tmp_path):
    # With one they would be 195, of which the square root is no help either.
    source = _model((14, 14), "gap") if classifier == "gap" else _model((15, 13))
    table = _randomised(source)
    assert len(table) == 196
    keras_vit.save_checkpoint(source, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as arrays:
        np.savez(tmp_path / "b.npz", **arrays)  # Without our note about the grid.
    target = _model((14, 14) if classifier == "gap" else (15, 13), classifier)
    assert not keras_vit.load_checkpoint(target, tmp_path / "b.npz").resized
    np.testing.assert_array_equal(_table_of(target), table)


def test_a_grid_that_cannot_be_known_must_be_given(tmp_path):
    source = _model((12, 12))
    table = _randomised(source)
    keras_vit.save_checkpoint(source, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as arrays:
        np.savez(tmp_path / "b.npz", **arrays)
    target = _model((24, 6))
    with pytest.raises(ValueError, match="144 patches .*12x12 .*24x6"):
        keras_vit.load_checkpoint(target, tmp_path / "b.npz")
    report = keras_vit.load_checkpoint(target, tmp_path / "b.npz", position_grid=(12, 12))
    assert report.resized["position_embedding/embedding"] == ((12, 12), (24, 6))
    keras_vit.load_checkpoint(target, tmp_path / "b.npz", position_grid=(24, 6))
    np.testing.assert_array_equal(_table_of(target), table)
    with pytest.raises(ValueError, match="145 rows .*7x7 patches"):
        keras_vit.load_checkpoint(target, tmp_path / "b.npz", position_grid=(7, 7))


def test_the_row_of_a_skipped_class_token_is_left_out_and_reported(tmp_path):
    source = _model((4, 4))
    table = _randomised(source)
    keras_vit.save_checkpoint(source, tmp_path / "a.npz")
    target = _model((4, 4), "gap")
    with pytest.raises(ValueError, match=r"not in the model \(1\): cls"):
        keras_vit.load_checkpoint(target, tmp_path / "a.npz")
    report = keras_vit.load_checkpoint(target, tmp_path / "a.npz", skip="cls")
    assert "the row of the class token was left out" in str(report)
    np.testing.assert_array_equal(_table_of(target), table[1:])
