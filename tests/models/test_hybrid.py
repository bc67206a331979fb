import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.code_bases.official import OFFICIAL
from keras_vit.configs import PoolingStem, ResNetStem, ViTConfig

GOLDEN = ("hybrid_3_stages", "hybrid_root_only", "hybrid_4_stages")
TINY = ViTConfig(1, 32, 2, 48, 2, resnet=ResNetStem((1, 2, 1), width_factor=0.5))


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.fixture(scope="module", params=GOLDEN)
def official(request, golden, tmp_path_factory):
    """A fixture of the official code, its checkpoint file, and our model with its weights."""
    fixture = golden(request.param)
    folder = tmp_path_factory.mktemp("official")
    return fixture, folder / "checkpoint.npz", fixture.model(folder)


@pytest.mark.any_backend_slow
def test_logits_and_tokens_are_those_of_the_official_code(official):
    fixture, _, model = official
    expected = fixture.load()
    both = keras.Model(model.input, [model.output, model.get_layer("encoder_norm").output])
    logits, tokens = both.predict(expected["images"], verbose=0)
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-4)
    np.testing.assert_allclose(tokens, expected["tokens"], atol=1e-4)


@pytest.mark.any_backend_slow
def test_gradients_are_those_of_the_official_code(official, loss_and_gradients):
    fixture, _, model = official
    expected = fixture.load()
    loss, gradients = loss_and_gradients(model, expected["images"], expected["labels"])
    assert loss == pytest.approx(float(expected["loss"]), abs=1e-5)
    rules = OFFICIAL.rules_of_model(gradients)
    found = {rules[path].stored: gradient for path, gradient in gradients.items()}
    reference = fixture.json("gradients.json")
    assert found.keys() == reference.keys()
    for name, numbers in reference.items():
        # A key's bias changes nothing, so its gradient is rounding alone: hence the 1e-5.
        length = np.linalg.norm(found[name])
        assert length == pytest.approx(numbers["l2"], rel=1e-3, abs=1e-5), name
        allowed = 1e-3 * max(numbers["l2"], 1e-2)
        assert found[name].sum() == pytest.approx(numbers["sum"], abs=allowed), name


def test_a_published_file_loads_and_saves_as_it_was(official, tmp_path):
    fixture, _, model = official
    keras_vit.save_checkpoint(model, tmp_path / "saved.npz")
    published = fixture.checkpoint()
    with np.load(tmp_path / "saved.npz") as saved:
        assert set(saved.files) == set(published)
        for name, values in published.items():
            assert saved[name].shape == values.shape, name  # (1, 1, 1, C) of a GroupNorm too.
            np.testing.assert_array_equal(saved[name], values)


def test_flat_group_norms_load_too(official, tmp_path):
    fixture, _, model = official
    arrays = {
        name: values.reshape(-1) if "gn" in name else values
        for name, values in fixture.checkpoint().items()
    }
    np.savez(tmp_path / "flat.npz", **arrays)
    report = keras_vit.load_checkpoint(model, tmp_path / "flat.npz")
    assert len(report.loaded) == len(model.weights)


def test_patches_are_those_of_the_feature_map_whatever_the_size():
    size = (97, 65)  # Neither is a multiple of the stride, 16: parts of a cell count.
    model = keras_vit.build(TINY, input_shape=(*size, 3), include_top=False)
    assert model.output_shape == (None, 7, 5, 32)
    assert TINY.grid(size) == (7, 5)


def test_the_smallest_image_gives_one_patch_and_a_smaller_one_is_refused():
    config = ViTConfig(8, 32, 1, 48, 2, resnet=ResNetStem((), width_factor=0.5))
    assert config.min_image_size == (29, 29)
    model = keras_vit.build(config, input_shape=(29, 29, 3), include_top=False)
    assert model.output_shape[1:3] == (1, 1)
    with pytest.raises(ValueError, match="at least 29x29 pixels"):
        keras_vit.build(config, input_shape=(29, 28, 3))


def test_a_model_of_free_image_size_is_the_one_of_that_size():
    free = keras_vit.build(TINY, input_shape=(None, None, 3), include_top=False)
    fixed = keras_vit.build(TINY, input_shape=(224, 224, 3), include_top=False)
    assert free.get_layer("position_embedding").grid == (14, 14)
    fixed.set_weights(free.get_weights())
    images = np.random.RandomState(0).standard_normal((1, 224, 224, 3)).astype("float32")
    np.testing.assert_allclose(array(free(images)), array(fixed(images)), atol=1e-5)


def test_a_pooling_stem_keeps_the_resolution_of_small_images(tmp_path):
    config = ViTConfig(1, 32, 1, 48, 2, classifier="gap", resnet=PoolingStem((32, 64)))
    model = keras_vit.build(config, input_shape=(29, 32, 3), classes=3)
    assert model.get_layer("root_relu").output.shape == (None, 29, 32, 32)
    assert model.get_layer("patch_embedding").output.shape[1:3] == config.grid((29, 32)) == (8, 8)
    keras_vit.save_checkpoint(model, tmp_path / "weights.npz")
    opened = keras_vit.open_model(tmp_path / "weights.npz").description.config
    assert opened == config  # From the shapes of the weights alone.
