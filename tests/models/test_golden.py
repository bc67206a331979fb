"""Vision Transformers, hybrids and BiT against arrays of the official code."""

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.checkpoints.code_bases.official import OFFICIAL
from keras_vit.configs import BiTConfig

SLOW_ELSEWHERE = (
    "vit_token_representation", "vit_gap", "vit_non_square", "hybrid_3_stages",
    "hybrid_root_only", "hybrid_4_stages", "bit_r14x1",
)  # fmt: skip
FOLDERS = [
    "vit_token",
    *(pytest.param(name, marks=pytest.mark.any_backend_slow) for name in SLOW_ELSEWHERE),
]


@pytest.fixture(scope="module", params=FOLDERS)
def case(request, golden, tmp_path_factory):
    """A fixture of the official code, and our model with its weights, which gives logits."""
    folder, place = golden(request.param), tmp_path_factory.mktemp("golden")
    if "block_units" not in folder.config:
        return folder, folder.model(place)
    config = BiTConfig(folder.config["block_units"], folder.config["width_factor"])
    model = keras_vit.build(config, classes=10, input_shape=(64, 64, 3), classifier_activation=None)
    np.savez(place / "checkpoint.npz", **folder.checkpoint())
    keras_vit.load_checkpoint(model, place / "checkpoint.npz")
    return folder, model


@pytest.mark.any_backend
def test_logits_and_features_are_those_of_the_official_code(case):
    folder, model = case
    expected, layers = folder.load(), {layer.name: layer for layer in model.layers}
    outputs = {"logits": model.output}
    if "tokens" in expected:
        outputs["tokens"] = layers["encoder_norm"].output
    if "pre_logits" in expected:
        outputs["pre_logits"] = layers["predictions"].input
    if "features" in expected:
        outputs["features"] = layers["avg_pool"].output
    found = keras.Model(model.input, outputs).predict(expected["images"], verbose=0)
    # float32 through two or three blocks; a ResNet has more layers.
    tolerance = 1e-5 if "encoder_norm" in layers and "root_conv" not in layers else 1e-4
    cases = [*found.items()]
    assert cases
    for name, values in cases:
        np.testing.assert_allclose(values, expected[name], atol=tolerance, err_msg=name)


@pytest.mark.any_backend
def test_loss_and_the_norm_and_sum_of_every_gradient_are_those_of_the_official_code(
    case, loss_and_gradients
):
    folder, model = case
    if not (folder.folder / "gradients.json").exists():
        pytest.skip("the fixture has no gradients")
    expected = folder.load()
    loss, gradients = loss_and_gradients(model, expected["images"], expected["labels"])
    assert loss == pytest.approx(float(expected["loss"]), abs=1e-5)
    rules = OFFICIAL.rules_of_model(gradients)
    found = {rules[path].stored: gradient for path, gradient in gradients.items()}
    reference = folder.json("gradients.json")
    assert found.keys() == reference.keys()
    for name, numbers in reference.items():
        # A key's bias changes nothing, so its gradient is rounding alone: hence the 1e-5.
        length = np.linalg.norm(found[name])
        assert length == pytest.approx(numbers["l2"], rel=1e-3, abs=1e-5), name
        allowed = 1e-3 * numbers["l2"] + 1e-5
        assert array(found[name]).sum() == pytest.approx(numbers["sum"], abs=allowed), name


def test_a_published_file_loads_and_saves_as_it_was(case, tmp_path):
    folder, model = case
    keras_vit.save_checkpoint(model, tmp_path / "saved.npz")
    published = folder.checkpoint()
    with np.load(tmp_path / "saved.npz") as saved:
        assert set(saved.files) == set(published)
        for name, values in published.items():
            assert saved[name].shape == values.shape, name  # (1, 1, 1, C) of a GroupNorm too.
            np.testing.assert_array_equal(saved[name], values, err_msg=name)
