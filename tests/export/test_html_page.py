"""The web page of a classifier, in Chromium with the network off."""

import json
import os
import pathlib
import shutil
import subprocess

import keras
import numpy as np
import PIL.Image
import pytest

import keras_vit
from keras_vit import command_line
from keras_vit.configs import BiTConfig
from keras_vit.export import html_page
from keras_vit.export.artefacts import load_artefact
from keras_vit.inspection.html_report import seen_region
from keras_vit.inspection.rollouts import RolloutModel, attention_rollout, has_rollout
from keras_vit.preprocessing import Preprocessing

# Names a folder with the files of onnxruntime-web.
RUNTIME = "ONNXRUNTIME_WEB"

PREPROCESSINGS = [
    Preprocessing((32, 24), "resize"),
    Preprocessing((32, 24), "resize_small_central_crop"),
    Preprocessing((32, 24), "resize_central_crop"),
    Preprocessing((32, 24), "keras_hub"),
    Preprocessing((32, 32), "huggingface", resize_size=40),
    Preprocessing((32, 32), "torchvision", resize_size=(40, 50)),
]


@pytest.mark.parametrize("classifier", ["token", "gap", "map"])
def test_the_rollout_of_a_graph_is_that_of_inspection(classifier):
    config = keras_vit.ViTConfig(8, 32, 3, 64, 2, classifier=classifier, num_registers=1)
    model = keras_vit.build(config, classes=3, input_shape=(24, 32, 3))
    images = keras.random.normal((2, 24, 32, 3), seed=0)
    scores, attention = RolloutModel(model)(images)
    np.testing.assert_allclose(scores, model(images), atol=1e-6)
    np.testing.assert_allclose(attention, attention_rollout(model, images), atol=1e-6)


def test_a_model_without_tokens_has_no_rollout():
    model = keras_vit.build(BiTConfig((1,)), classes=3, input_shape=(32, 32, 3))
    assert not has_rollout(model)
    with pytest.raises(ValueError, match="must attend over all tokens"):
        RolloutModel(model)


def test_what_a_name_holds_stays_text():
    page = html_page._page("<b>&", [], {"classes": json.dumps(["</script><script>alert(1)"])})
    assert "&lt;b&gt;&amp;" in page
    assert "</script><script>alert" not in page


def test_files_of_another_runtime_are_refused(classifier, tmp_path):
    pytest.importorskip("playwright")
    for name in html_page.RUNTIME:
        (tmp_path / name).write_bytes(b"other")
    path = tmp_path / "x.html"
    with pytest.raises(ValueError, match=r"must be the file of onnxruntime-web [\d.]+. Received"):
        html_page.html(classifier, path, runtime=tmp_path)
    with pytest.raises(ValueError, match="must be a folder with ort.wasm.bundle.min.mjs and"):
        html_page.html(classifier, path, runtime=tmp_path / "missing")
    assert not path.exists()


def test_a_failed_download_names_the_flag(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(html_page, "ADDRESS", "http://127.0.0.1:9/")
    with pytest.raises(ValueError, match="cannot be downloaded .* Pass runtime=FOLDER"):
        html_page._runtime_files(None)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """Returns a folder with the files of onnxruntime-web."""
    if RUNTIME in os.environ:
        return os.environ[RUNTIME]
    if not shutil.which("npm"):
        pytest.skip(f"install npm, or name a folder with onnxruntime-web's files in {RUNTIME}")
    folder = tmp_path_factory.mktemp("npm")
    package = f"onnxruntime-web@{html_page.VERSION}"
    subprocess.run(["npm", "install", "--prefix", folder, package], check=True)
    return folder / "node_modules" / "onnxruntime-web" / "dist"


@pytest.fixture(scope="module")
def page(classifier, runtime, tmp_path_factory):
    """Returns the page's path."""
    pytest.importorskip("playwright", reason='pip install -e ".[web]"')
    path = tmp_path_factory.mktemp("page") / "animals.html"
    command = ["export", str(classifier.folder), "--to", "html", "--output", str(path)]
    assert command_line.main([*command, "--runtime", str(runtime), "--title", "Animals"]) == 0
    return path


@pytest.fixture(scope="module")
def opened(page):
    """Returns the page in a browser that has no network."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        tab = browser.new_context(offline=True).new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-state=ready]")
        yield tab
        browser.close()


@pytest.mark.slow
def test_the_page_answers_as_the_folder_and_names_what_it_cannot_read(opened, classifier, tmp_path):
    rng = np.random.default_rng(0)
    image = PIL.Image.fromarray(rng.integers(0, 256, (5, 4, 3)).astype("uint8"))
    image.resize((60, 47), PIL.Image.BICUBIC).save(tmp_path / "=good.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    files = [tmp_path / "broken.png", tmp_path / "=good.png"]
    opened.set_input_files("#files", files)
    opened.wait_for_function("kerasVit.rows.length == 2")
    broken, good = opened.evaluate("kerasVit.rows")
    assert "cannot be read as an image" in broken["error"]
    expected = dict(classifier.predict(files[1])[0].top)
    answer = dict(zip(classifier.class_names, good["probabilities"], strict=True))
    assert answer == pytest.approx(expected, abs=1e-5)
    assert opened.title() == "Animals"
    shown = opened.inner_text("#answers")
    assert max(expected, key=expected.get) in shown
    assert "broken.png" in shown
    assert opened.locator("#answers canvas").count() == 2  # The picture, and where it looked.
    with opened.expect_download() as download:
        opened.click("#table")
    lines = pathlib.Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ['"image"', '"broken.png"', '"\'=good.png"']


@pytest.mark.slow
@pytest.mark.parametrize("preprocessing", PREPROCESSINGS, ids=lambda p: p.evaluation)
def test_the_page_shows_the_part_that_the_model_receives(opened, preprocessing):
    view = json.dumps(html_page._view(preprocessing))
    opened.evaluate("text => { document.getElementById('view').textContent = text; }", view)
    for height, width in ((90, 60), (50, 130)):
        x, y, across, down = opened.evaluate(f"kerasVit.seenBox({width}, {height})")
        expected = seen_region((height, width), preprocessing)
        # There crops begin at whole pixels of the resized image.
        limit = 0.6 * max(height, width) / min(preprocessing.image_size)
        np.testing.assert_allclose((y, x, y + down, x + across), expected, atol=limit)


@pytest.mark.slow
def test_a_page_is_an_export_like_the_others(page, classifier, files, capsys):
    assert command_line.main(["verify", str(page)]) == 0
    assert "Golden samples: pixels equal" in capsys.readouterr().out
    png = [str(file) for file in files if file.suffix == ".png"][:2]
    received = [prediction.labels for prediction in load_artefact(page).predict(png)]
    assert received == [prediction.labels for prediction in classifier.predict(png)]
