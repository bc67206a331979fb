import numpy as np
import pytest

SHAPE = (8, 12, 3)  # 2 x 3 patches of 4 pixels.


@pytest.fixture(scope="session")
def random_model():
    """Returns a function that builds a model with weights large enough for uneven attention."""
    import keras_vit

    def build(config, shape=SHAPE, seed=0, **arguments):
        model = keras_vit.build(config, input_shape=shape, classes=3, **arguments)
        rng = np.random.default_rng(seed)
        for variable in model.weights:
            variable.assign(rng.normal(0, 0.4, variable.shape))
        return model

    return build


@pytest.fixture(scope="session")
def random_images():
    """Returns a function that draws preprocessed images `(count, *shape)`."""

    def draw(shape=SHAPE, count=2):
        return np.random.default_rng(1).normal(size=(count, *shape)).astype("float32")

    return draw
