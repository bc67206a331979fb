"""Files that an earlier version of the package saved."""

import pathlib

import keras
import numpy as np
import pytest

import keras_vit  # noqa: F401, registers the layers.

pytestmark = pytest.mark.any_backend

SAVED = pathlib.Path(__file__).parent / "saved"


# Their layers run on JAX in test_golden.py too.
PLAIN = ("vit", "distilled")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.any_backend_slow] * (path.stem in PLAIN))
        for path in sorted(SAVED.glob("*.keras"))
    ],
    ids=lambda path: path.stem,
)
def test_models_saved_before_the_layers_moved_load_with_the_same_scores(path):
    with np.load(SAVED / "expected.npz") as expected:
        images, scores = expected["images"], expected[path.stem]
    model = keras.models.load_model(path)
    # Float32, two blocks.
    np.testing.assert_allclose(model.predict_on_batch(images), scores, atol=1e-5)
