import numpy as np
import pytest

from keras_vit.classifier_folder import load_classifier
from keras_vit.models.rebuild import feature_model
from keras_vit.training.evaluation.embeddings import read_embeddings


@pytest.fixture
def embed(command, tiny, colors):
    return lambda *arguments: command("embed", tiny, colors / "test", *arguments)


def test_features_are_what_the_head_reads(embed, tiny, colors, tmp_path):
    path = tmp_path / "features.npz"
    done = embed("--output", path)
    assert done.code == 0, done.err
    assert "of each of 6 images" in done.out
    found = read_embeddings(path)
    assert found.names == sorted(map(str, colors.glob("test/*/*.png")))
    classifier = load_classifier(tiny)
    images = classifier.preprocess([_read(name) for name in found.names])
    expected = np.asarray(feature_model(classifier.model)(images))
    np.testing.assert_allclose(found.values, expected, atol=1e-5)


def _read(name):
    from PIL import Image

    return np.asarray(Image.open(name))


def test_the_nearest_images_are_printed(embed, command, tiny, colors, tmp_path):
    like, path = colors / "test" / "red" / "1.png", tmp_path / "features.npz"
    done = embed("--like", like, "--top", 3, "--output", path)
    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if line.endswith(".png")]
    assert lines[0] == f" 1.0000  {like}"
    cosines = [float(line.split()[0]) for line in lines]
    assert cosines == sorted(cosines, reverse=True)
    assert len(lines) == 3
    # The file of features instead of the images.
    again = command("embed", tiny, path, "--like", like, "--top", 3)
    assert [line for line in again.out.splitlines() if line.endswith(".png")] == lines


def test_unreadable_images_are_named_and_left_out(command, tiny, colors, tmp_path):
    bad = tmp_path / "broken.png"
    bad.write_bytes(b"no image")
    path = tmp_path / "features.npz"
    done = command("embed", tiny, bad, colors / "test" / "red", "--output", path)
    assert done.code == 1
    assert f"keras-vit: {bad}: An image must be JPEG" in done.err
    assert len(read_embeddings(path).names) == 2


def features_file(path, **changes):
    known = {"names": ["a.png", "b.png"], "features": np.ones((2, 3), "float32")}
    facts = {"model": "m", "weights_sha256": "0", "feature": "pre_logits"}
    np.savez_compressed(path, **(known | facts | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros((72_000, 1000), "float32")}, "must hold the bytes that its arrays"),
        ({"features": np.array([[{}]], object)}, "that keras-vit embed wrote"),
        ({"features": np.full((2, 3), np.nan)}, "finite features"),
        ({"features": np.ones((3, 3))}, r"names of shape \(2,\), float64 of \(3, 3\)"),
        ({"features": np.ones((2, 3), "S1")}, "finite features"),
        ({"names": "a.png"}, "a row of finite features for each name"),
        ({"names": np.array([1, 2])}, "a row of finite features for each name"),
    ],
)
def test_a_file_that_holds_other_features_than_it_declares_is_refused(changes, message, tmp_path):
    path = features_file(tmp_path / "features.npz", **changes)
    with pytest.raises(ValueError, match=message):
        read_embeddings(path)


def test_a_file_of_compressed_features_is_read(tmp_path):
    found = read_embeddings(features_file(tmp_path / "features.npz"))
    assert (found.names, found.values.tolist()) == (["a.png", "b.png"], [[1.0] * 3] * 2)
