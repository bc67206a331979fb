"""The answer "unknown" on the page of a classifier with a decision, in Chromium."""

import numpy as np
import PIL.Image
import pytest

import keras_vit
from keras_vit.classifier_folder import load_classifier
from keras_vit.images.samples import own_samples


@pytest.fixture(scope="module")
def deciding():
    return load_classifier("vit_mini4_cifar10")


@pytest.fixture(scope="module")
def photos(deciding, tmp_path_factory):
    """Returns a photo that is answered, and plain noise, which is not."""
    folder = tmp_path_factory.mktemp("photos")
    answered = [p for p in deciding.predict(own_samples(deciding.folder)) if p.answer != "unknown"]
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), "uint8")
    PIL.Image.fromarray(noise).save(folder / "noise.png")
    PIL.Image.open(answered[0].path).save(folder / "photo.png")
    found = [folder / "photo.png", folder / "noise.png"]
    assert [p.answer == "unknown" for p in deciding.predict(found)] == [False, True]
    return found


@pytest.mark.slow
def test_the_export_for_a_browser_agrees_in_its_decisions(
    deciding, photos, runtime, chromium, tmp_path
):
    path = tmp_path / "page.html"
    report = keras_vit.export.html(deciding, path, runtime=runtime, check_images=photos)
    assert report.agreement == 1
    tab = chromium.new_context(offline=True).new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("body[data-state=ready]")
    tab.set_input_files("#files", photos)
    tab.locator("#answers li").nth(1).wait_for()
    names = deciding.description.labels.output_names
    rows = tab.evaluate("kerasVit.rows")
    answers = [names[int(np.argmax(row["probabilities"]))] for row in rows]
    assert answers == [prediction.answer for prediction in deciding.predict(photos)]
    assert "unknown" in tab.inner_text("#answers")
