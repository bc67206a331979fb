"""The page of a classifier in Chromium."""

import json
import pathlib
import re
import sys

import keras
import numpy as np
import PIL.Image
import pytest

import keras_vit
from keras_vit import command_line
from keras_vit.classifier import Classifier
from keras_vit.configs import BiTConfig
from keras_vit.export.artefacts import load_artefact
from keras_vit.export.html import HTML, RUNTIME, _runtime_files, _view, page as filled_page
from keras_vit.inspection.attention_probabilities import has_rollout
from keras_vit.inspection.html_report import seen_region
from keras_vit.inspection.rollouts import RolloutModel, attention_rollout
from keras_vit.preprocessing import Preprocessing
from makers import smooth_picture, turned

PREPROCESSINGS = [
    Preprocessing((32, 24), "resize"),
    Preprocessing((32, 24), "resize_small_central_crop"),
    Preprocessing((32, 24), "resize_central_crop"),
    Preprocessing((32, 24), "keras_hub"),
    Preprocessing((32, 32), "keras_hub"),
    Preprocessing((32, 32), "huggingface", resize_size=40),
    Preprocessing((32, 32), "torchvision", resize_size=(40, 50)),
    Preprocessing((32, 24), "pad"),
]


@pytest.mark.parametrize("classifier", ["token", "gap", "map"])
def test_the_rollout_of_a_graph_is_that_of_inspection(classifier):
    config = keras_vit.ViTConfig(8, 32, 3, 64, 2, classifier=classifier, num_registers=1)
    model = keras_vit.build(config, classes=3, input_shape=(24, 32, 3))
    images = keras.random.normal((2, 24, 32, 3), seed=0)
    scores, attention = RolloutModel(model)(images)
    np.testing.assert_allclose(scores, model(images), atol=1e-6)
    np.testing.assert_allclose(attention, attention_rollout(model, images), atol=1e-6)
    without_tokens = keras_vit.build(BiTConfig((1,)), classes=3, input_shape=(32, 32, 3))
    assert not has_rollout(without_tokens)


def test_what_a_name_holds_stays_text(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(filled_page("<b>&"), encoding="utf-8")
    HTML.add_texts(path, {"classes.txt": "</script><script>alert(1) {{title}}\n"})
    page = path.read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;" in page
    assert "</script><script>alert" not in page
    assert page.count("{{title}}") == 1  # The place of the name.


def test_all_that_a_page_shows_is_in_its_landmark():
    hidden = r"<(main|title|style|script)\b.*?</\1>|<[^>]*>"
    assert not re.sub(hidden, "", filled_page("Animals"), flags=re.S).strip()


def test_files_of_another_runtime_are_refused(classifier, tmp_path):
    pytest.importorskip("playwright")
    for name in RUNTIME:
        (tmp_path / name).write_bytes(b"other")
    path = tmp_path / "x.html"
    with pytest.raises(ValueError, match=r"must be the file of onnxruntime-web [\d.]+. Received"):
        keras_vit.export.html(classifier, path, runtime=tmp_path)
    with pytest.raises(ValueError, match="must be a folder with ort.wasm.bundle.min.mjs and"):
        keras_vit.export.html(classifier, path, runtime=tmp_path / "missing")
    assert not path.exists()


def test_a_model_of_grey_images_is_refused(files):
    pytest.importorskip("playwright")
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    model.add(keras.layers.Dense(2, "softmax"))
    classifier = Classifier(model, ("a", "b"), Preprocessing((8, 8)))
    with pytest.raises(ValueError, match="the model must take 3"):
        keras_vit.export.html(classifier, "x.html", check_images=files)


def test_a_failed_download_names_the_flag(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(sys.modules[HTML.__module__], "ADDRESS", "http://127.0.0.1:9/")
    with pytest.raises(ValueError, match="cannot be downloaded .* Pass runtime=FOLDER"):
        _runtime_files(None)


def with_labels(model):
    """Returns the model with a new, multi-label head."""
    head = keras.layers.Dense(3, "sigmoid", name="labels")
    return keras.Model(model.inputs[0], head(model.get_layer("predictions").input))


@pytest.fixture(scope="module")
def page(classifier, runtime, tmp_path_factory):
    """Returns the path of the page."""
    pytest.importorskip("playwright", reason='pip install -e ".[web]"')
    path = tmp_path_factory.mktemp("page") / "animals.html"
    command = ["export", str(classifier.folder), "--to", "html", "--output", str(path)]
    assert command_line.main([*command, "--runtime", str(runtime), "--title", "Animals"]) == 0
    return path


@pytest.fixture(scope="module")
def opened(page, chromium):
    """Returns the page without a network."""
    tab = chromium.new_context(offline=True).new_page()
    tab.goto(page.as_uri())
    tab.wait_for_selector("body[data-state=ready]")
    return tab


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Returns a broken file and a good one whose name a spreadsheet would read as a formula."""
    folder = tmp_path_factory.mktemp("images")
    smooth_picture(np.random.default_rng(0), (47, 60), (5, 4)).save(folder / "=good.png")
    (folder / "broken.png").write_bytes(b"no image")
    return [folder / "broken.png", folder / "=good.png"]


def check_answers(tab, classifier, images, num_pictures):
    """Gives a page the images, and compares its answers and its table with `predict`."""
    tab.set_input_files("#files", images)
    tab.locator("#answers li").nth(1).wait_for()
    broken, good = tab.evaluate("kerasVit.rows")
    reason = "cannot be read as an image" if num_pictures == 2 else "must be JPEG, PNG"
    assert reason in broken["error"]
    expected = dict(classifier.predict(images[1])[0].top)
    answer = dict(zip(classifier.class_names, good["probabilities"], strict=True))
    assert answer == pytest.approx(expected, abs=1e-5)
    shown = tab.inner_text("#answers")
    assert max(expected, key=expected.get) in shown
    assert "broken.png" in shown
    assert tab.locator("#answers img").count() == num_pictures
    with tab.expect_download() as download:
        tab.click("#table")
    lines = pathlib.Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ['"image"', '"broken.png"', '"\'=good.png"']
    assert lines[2].split(",")[2] == f'"{max(expected, key=expected.get)}"'
    stored = [float(text) for text in lines[2].split(",")[3:]]
    assert stored == pytest.approx(list(answer.values()), abs=1e-6)


def check_camera(tab):
    tab.click("#camera")
    num_answers = tab.locator("#answers li").count()
    tab.click("#take")
    tab.locator("#answers li").nth(num_answers).wait_for()
    row = tab.evaluate("kerasVit.rows.at(-1)")
    assert row["error"] == ""
    assert sum(row["probabilities"]) == pytest.approx(1, abs=1e-5)
    tab.click("#camera")
    assert tab.is_hidden("#video")


def check_policy(tab):
    """Checks that a page is refused connections to other addresses by its own policy."""
    text = filled_page("Animals")
    (policy,) = re.findall('<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert "default-src 'none'; script-src blob: " in policy
    assert "; connect-src blob:; " in policy
    refused = tab.evaluate("""() => new Promise((done) => {
      document.addEventListener("securitypolicyviolation", (e) => done(e.effectiveDirective));
      fetch("http://127.0.0.1:9/").catch(() => setTimeout(() => done("the network"), 1000));
    })""")
    assert refused == "connect-src"


@pytest.mark.slow
def test_the_page_answers_as_the_classifier_and_names_what_it_cannot_read(
    opened, classifier, images
):
    check_answers(opened, classifier, images, 2)  # The picture, and where the model looked.
    assert opened.title() == "Animals"
    check_camera(opened)
    check_policy(opened)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jpeg", "png", "webp"])
def test_the_page_turns_images_by_their_exif_orientation(opened, classifier, tmp_path, suffix):
    paths = turned(tmp_path, suffix)
    num_answers = opened.evaluate("kerasVit.rows.length")
    opened.set_input_files("#files", paths)
    opened.locator("#answers li").nth(num_answers + 7).wait_for()
    rows = opened.evaluate("kerasVit.rows")[-8:]
    for row, prediction in zip(rows, classifier.predict(paths), strict=True):
        answer = dict(zip(classifier.class_names, row["probabilities"], strict=True))
        assert answer == pytest.approx(dict(prediction.top), abs=1e-5), row["name"]
    sizes = opened.evaluate("""() =>
      [...document.querySelectorAll("#answers li img:first-child")].slice(0, 8).map(
        (image) => [image.naturalWidth, image.naturalHeight])""")
    assert sizes[::-1] == 4 * [[60, 47]] + 4 * [[47, 60]]


# Counts what a page makes and does not free.
COUNT = """
  const made = { urls: new Set(), bitmaps: [], canvases: [] };
  window.kept = () => ({
    urls: made.urls.size,
    bitmaps: made.bitmaps.filter(({ width }) => width).length,
    pixels: Math.max(...made.canvases.map(({ width, height }) => width * height)),
    canvases: document.querySelectorAll("canvas").length,
  });
  const { createObjectURL, revokeObjectURL } = URL;
  URL.createObjectURL = (blob) => {
    const url = createObjectURL(blob);
    made.urls.add(url);
    return url;
  };
  URL.revokeObjectURL = (url) => {
    made.urls.delete(url);
    revokeObjectURL(url);
  };
  const open = createImageBitmap;
  window.createImageBitmap = async (...all) => {
    const bitmap = await open(...all);
    made.bitmaps.push(bitmap);
    return bitmap;
  };
  window.OffscreenCanvas = class extends OffscreenCanvas {
    constructor(...all) { super(...all); made.canvases.push(this); }
  };
"""


@pytest.mark.slow
def test_the_page_frees_what_it_made_of_a_photo(page, chromium, tmp_path):
    photo = tmp_path / "photo.webp"
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    smooth_picture(np.random.default_rng(0), (1200, 1600), (5, 4)).save(photo, exif=exif)
    tab = chromium.new_page()
    tab.add_init_script(COUNT)
    tab.goto(page.as_uri())
    tab.wait_for_selector("body[data-state=ready]")
    tab.set_input_files("#files", photo)
    tab.locator("#answers img").nth(1).wait_for()
    kept = tab.evaluate("new Promise((next) => setTimeout(() => next(kept()), 500))")
    assert (kept["urls"], kept["bitmaps"], kept["canvases"]) == (0, 0, 0)
    assert kept["pixels"] <= 4 * 3  # The shade over the patches.
    assert tab.locator("script[type='application/gzip']").count() == 0


@pytest.mark.slow
def test_a_photo_that_browsers_do_not_read_is_named(opened, tmp_path):
    for name, first in {"HEIC": b"\0\0\0\x18ftypheic", "TIFF": b"II*\0"}.items():
        (tmp_path / f"{name}.jpg").write_bytes(first + bytes(40))
        num_answers = opened.evaluate("kerasVit.rows.length")
        opened.set_input_files("#files", tmp_path / f"{name}.jpg")
        opened.locator("#answers li").nth(num_answers).wait_for()
        expected = f"This browser cannot read {name} files: convert it to JPEG."
        assert opened.evaluate("kerasVit.rows.at(-1).error") == expected


@pytest.mark.slow
def test_a_multi_label_page_applies_the_thresholds(model, files, runtime, chromium, tmp_path):
    model = with_labels(model)
    classifier = Classifier(
        model, ("a", "b", "c"), Preprocessing((32, 24)), task="multilabel", thresholds=(0.2, 0, 0.9)
    )
    path = tmp_path / "labels.html"
    keras_vit.export.html(classifier, path, runtime=runtime, check_images=files)
    tab = chromium.new_page()
    tab.goto(path.as_uri())
    tab.set_input_files("#files", files[6])
    tab.locator("#answers li").wait_for()
    (prediction,) = classifier.predict(files[6])
    assert f"labels: {', '.join(prediction.labels)}" in tab.inner_text("#answers")


@pytest.mark.slow
@pytest.mark.parametrize("preprocessing", PREPROCESSINGS, ids=lambda p: p.evaluation)
def test_the_page_shows_the_part_that_the_model_receives(opened, preprocessing):
    view = json.dumps(_view(preprocessing))
    for height, width in ((90, 60), (50, 130)):
        box = opened.evaluate(f"kerasVit.seenBox({width}, {height}, {view})")
        y, x, down, across = (box[name] for name in ("y", "x", "height", "width"))
        received = np.array((y, x, y + down, x + across)) * (height, width, height, width)
        expected = seen_region((height, width), preprocessing)
        # There crops begin at whole pixels of the resized image.
        limit = 0.6 * max(height, width) / min(preprocessing.image_size)
        np.testing.assert_allclose(received, expected, atol=limit)


@pytest.mark.slow
def test_it_is_an_export_like_the_others(page, classifier, files, capsys):
    assert command_line.main(["verify", str(page)]) == 0
    assert "Golden samples: pixels equal" in capsys.readouterr().out
    png = [str(file) for file in files if file.suffix == ".png"][:2]
    received = [prediction.labels for prediction in load_artefact(page).predict(png)]
    assert received == [prediction.labels for prediction in classifier.predict(png)]
