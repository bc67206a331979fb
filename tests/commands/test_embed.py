import numpy as np
import pytest

from keras_vit.models.rebuild import feature_model
from keras_vit.opening import open_predictor


@pytest.fixture
def embed(command, tiny, colors):
    return lambda *arguments: command("embed", tiny, colors / "test", *arguments)


def test_features_are_what_the_head_reads(embed, tiny, colors, tmp_path):
    path = tmp_path / "features.npz"
    done = embed("--output", path)
    assert done.code == 0, done.err
    assert "of each of 6 images" in done.out
    found = np.load(path)
    assert found["names"].tolist() == sorted(map(str, colors.glob("test/*/*.png")))
    classifier = open_predictor(tiny)
    images = classifier.preprocess([_read(name) for name in found["names"]])
    expected = np.asarray(feature_model(classifier.model)(images))
    np.testing.assert_allclose(found["features"], expected, atol=1e-5)


def _read(name):
    from PIL import Image

    return np.asarray(Image.open(name))


def test_unreadable_images_are_named_and_left_out(command, tiny, colors, tmp_path):
    bad = tmp_path / "broken.png"
    bad.write_bytes(b"no image")
    path = tmp_path / "features.npz"
    done = command("embed", tiny, bad, colors / "test" / "red", "--output", path)
    assert done.code == 1
    assert f"keras-vit: {bad}: " in done.err
    assert len(np.load(path)["names"]) == 2
