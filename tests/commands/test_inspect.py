import re
import sys

import numpy as np

from keras_vit import inspection
from keras_vit.images.listing import image_files
from keras_vit.opening import open_predictor

NAMES = ("filters", "position_similarity", "attention_distance", "rollout")


def test_pictures_numbers_and_one_page_are_written(command, tiny, colors, tmp_path):
    output = tmp_path / "inside"
    outcome = command("inspect", tiny, colors / "test", "--output", output, "--num-pictures", 2)
    assert outcome.code == 0, outcome.err
    drawn = [*NAMES[:3], "rollout_1", "rollout_2"]
    expected = {f"{name}.{suffix}" for name in drawn for suffix in ("png", "svg")}
    expected |= {f"{name}.npz" for name in NAMES} | {"index.html"}
    assert {path.name for path in output.iterdir()} == expected

    page = (output / "index.html").read_text(encoding="utf-8")
    assert len(re.findall(r'src="data:image/png;base64,[A-Za-z0-9+/=]+"', page)) == len(drawn)
    # Nothing is from elsewhere: pictures are in the page, and links lead to the files beside it.
    assert set(re.findall(r'(?:src|href)="(?!data:|#)([^"]*)', page)) <= expected

    classifier = open_predictor(tiny)
    files = image_files(colors / "test")
    shown = classifier.preprocess([_pixels(file) for file in (files[0], files[-1])])
    with np.load(output / "rollout.npz") as arrays:
        np.testing.assert_allclose(
            arrays["rollout"], inspection.attention_rollout(classifier, shown), atol=1e-6
        )
        (best,) = classifier.predict(files[-1], top=1)
        name, probability = best.top[0]
        assert arrays["titles"][1] == f"1.png: {name} {probability:.1%}"
    assert f"1.png: {name} {probability:.1%}" in page
    inputs = classifier.preprocess([_pixels(file) for file in files])
    with np.load(output / "attention_distance.npz") as arrays:
        np.testing.assert_allclose(
            arrays["distances"], inspection.mean_attention_distance(classifier, inputs), rtol=1e-5
        )


def _pixels(file):
    from PIL import Image

    return np.asarray(Image.open(file).convert("RGB"))


def test_without_matplotlib_the_extra_is_named(refused, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "[plots]" in refused("inspect", tiny, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()
