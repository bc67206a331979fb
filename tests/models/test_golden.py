"""The plain Vision Transformer against arrays of the official code."""

import keras
import numpy as np
import pytest

import keras_vit

pytestmark = pytest.mark.any_backend

FOLDERS = [
    "vit_token",
    *(
        pytest.param(name, marks=pytest.mark.any_backend_slow)
        for name in ("vit_token_representation", "vit_gap", "vit_non_square")
    ),
]


@pytest.fixture(scope="module", params=FOLDERS)
def case(request, golden, tmp_path_factory):
    folder = golden(request.param)
    return folder, folder.model(tmp_path_factory.mktemp("golden"))


def test_logits_are_those_of_the_official_code(case):
    folder, model = case
    expected = folder.load()
    # Float32 through two or three blocks; the official code agrees with itself to 1e-6.
    logits = model.predict_on_batch(expected["images"])
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)


def test_tokens_and_pre_logits_are_those_of_the_official_code(case):
    folder, model = case
    expected = folder.load()
    head_input = model.get_layer("predictions").input
    inside = keras.Model(model.input, [model.get_layer("encoder_norm").output, head_input])
    tokens, pre_logits = inside.predict_on_batch(expected["images"])
    np.testing.assert_allclose(tokens, expected["tokens"], atol=1e-5)
    np.testing.assert_allclose(pre_logits, expected["pre_logits"], atol=1e-5)


def test_loss_and_the_norm_and_sum_of_every_gradient_are_those_of_the_official_code(
    case, loss_and_gradients, tmp_path
):
    folder, model = case
    expected = folder.load()
    loss, gradients = loss_and_gradients(model, expected["images"], expected["labels"])
    assert loss == pytest.approx(expected["loss"], abs=1e-5)

    # Written and read as a checkpoint, the gradients get the official names.
    twin = keras.models.clone_model(model)
    for variable in twin.variables:
        variable.assign(gradients[variable.path])
    keras_vit.save_checkpoint(twin, tmp_path / "gradients.npz")
    with np.load(tmp_path / "gradients.npz") as arrays:
        for name, norms in folder.json("gradients.json").items():
            gradient = arrays[name].astype("float64")
            norm = np.linalg.norm(gradient)
            assert norm == pytest.approx(norms["l2"], rel=1e-3, abs=1e-6), name
            assert gradient.sum() == pytest.approx(norms["sum"], abs=1e-3 * norms["l2"] + 1e-5), (
                name
            )
