"""The page of a classifier, in Chromium and in the isolated browser of its check."""

import hashlib
import json
import pathlib
import socket
import sys

import keras
import numpy as np
import PIL.Image
import pytest
from page_flaws import flaws_of

import keras_vit
from keras_vit import command_line
from keras_vit.export.formats.artefacts import load_artefact
from keras_vit.export.formats.html import (
    HTML,
    RUNTIME,
    _runtime_files,
    _view,
    page as filled_page,
    page_signature,
)
from keras_vit.images.resizing import seen_region
from keras_vit.images.samples import own_samples
from keras_vit.opening import open_predictor
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from makers import smooth_picture, turned

# Ways in which a page may open a connection, each to the address in place of HOST.
PAGE = """<!DOCTYPE html>
<link rel="preconnect" href="http://HOST/">
<link rel="dns-prefetch" href="http://HOST/">
<img src="http://HOST/image.png">
<body><p id="status"></p>
<input id="files" type="file">
<script>
  var kerasVit = { rows: [] };
  navigator.sendBeacon("http://HOST/beacon", "pixels");
  const ended = [
    fetch("http://HOST/fetch", { mode: "no-cors" }).catch(() => 0),
    new Promise((end) => { new WebSocket("ws://HOST/socket").onclose = end; }),
    new Promise((end) => { new EventSource("http://HOST/events").onerror = end; }),
  ];
  files.onchange = () => kerasVit.rows.push({ error: "", probabilities: [1] });
  Promise.all(ended).then(() => setTimeout(() => { document.body.dataset.state = "ready"; }, 500));
</script>
"""

PREPROCESSINGS = [
    Preprocessing((32, 24), "resize"),
    Preprocessing((32, 24), "resize_small_central_crop"),
    Preprocessing((32, 24), "resize_central_crop"),
    Preprocessing((32, 24), "keras_hub"),
    Preprocessing((32, 32), "huggingface", resize_size=40),
    Preprocessing((32, 32), "torchvision", resize_size=(40, 50)),
]


def test_what_a_name_holds_stays_text(tmp_path):
    path = tmp_path / "page.html"
    facts = {"classNames": ["</script>", "{{title}}"]}
    path.write_text(filled_page("<b>&", facts), encoding="utf-8")
    HTML.add_texts(path, {"classes.txt": "</script><script>alert(1) {{title}}\n"})
    page = path.read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;" in page
    assert "</script><script>alert" not in page
    assert page.count("</script>") == 2  # The page's own script and the added one.
    assert page.count("{{title}}") == 2  # The places of the names.


def test_files_of_another_runtime_are_refused(classifier, tmp_path):
    pytest.importorskip("playwright")
    for name in RUNTIME:
        (tmp_path / name).write_bytes(b"other")
    path = tmp_path / "x.html"
    with pytest.raises(ValueError, match=r"onnxruntime-web [\d.]+"):
        keras_vit.export.html(classifier, path, runtime=tmp_path)
    with pytest.raises(ValueError, match="folder with ort.wasm.bundle.min.mjs"):
        keras_vit.export.html(classifier, path, runtime=tmp_path / "missing")
    assert not path.exists()


def test_a_failed_download_names_the_flag(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(sys.modules[HTML.__module__], "ADDRESS", "http://127.0.0.1:9/")
    with pytest.raises(ValueError, match="runtime=FOLDER"):
        _runtime_files(None)


@pytest.mark.parametrize("given", ["", "dist"])
def test_the_runtime_is_the_npm_package_or_its_dist(given, monkeypatch, tmp_path):
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "ort.js").write_bytes(b"code")
    module = sys.modules[_runtime_files.__module__]
    monkeypatch.setattr(module, "RUNTIME", {"ort.js": hashlib.sha256(b"code").hexdigest()})
    assert _runtime_files(tmp_path / given) == {"ort.js": b"code"}


def open_page(chromium, path, images=()):
    """Returns a page without a network, after its answers to images."""
    tab = chromium.new_context(offline=True).new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("body[data-state=ready]")
    if images:
        tab.set_input_files("#files", images)
        tab.locator("#answers li").nth(len(images) - 1).wait_for()
    return tab


@pytest.fixture(scope="module")
def page(classifier, runtime, tmp_path_factory):
    """Returns the path of the page."""
    pytest.importorskip("playwright", reason='pip install -e ".[web]"')
    path = tmp_path_factory.mktemp("page") / "animals.html"
    command = ["export", str(classifier.folder), "--to", "html", "--output", str(path)]
    assert command_line.main([*command, "--runtime", str(runtime)]) == 0
    return path


@pytest.fixture(scope="module")
def opened(page, chromium):
    return open_page(chromium, page)


@pytest.mark.slow
def test_the_page_takes_pictures_with_the_camera(opened):
    tab = opened
    tab.click("#camera")
    num_answers = tab.locator("#answers li").count()
    tab.click("#take")
    tab.locator("#answers li").nth(num_answers).wait_for()
    row = tab.evaluate("kerasVit.rows.at(-1)")
    assert row["error"] == ""
    assert sum(row["probabilities"]) == pytest.approx(1, abs=1e-5)
    tab.click("#camera")
    assert tab.is_hidden("#video")


@pytest.mark.slow
def test_the_page_says_that_there_is_no_camera(page, chromium):
    tab = chromium.new_context(offline=True).new_page()
    tab.add_init_script("navigator.mediaDevices.enumerateDevices = async () => [];")
    tab.goto(page.as_uri())
    tab.wait_for_selector("#camera:disabled")
    assert tab.inner_text("#camera") == "No camera found"


@pytest.mark.slow
def test_the_page_names_what_was_dropped_anywhere_on_it(page, chromium):
    tab = open_page(chromium, page)
    drop = """(names) => {
      const dataTransfer = new DataTransfer();
      for (const name of names) dataTransfer.items.add(new File(["no image"], name));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
    }"""
    tab.evaluate(drop, [])
    assert tab.inner_text("#received") == "That was no file: drop photos, or choose some."
    tab.evaluate(drop, ["a.png", "b.png", "c.png", "d.png"])
    assert tab.inner_text("#received") == "a.png, b.png, c.png and 1 more"
    tab.locator("#answers li").nth(3).wait_for()
    assert tab.inner_text("#status") == "4 photos answered"


@pytest.mark.slow
def test_the_page_works_by_keyboard(page, chromium, files):
    tab = open_page(chromium, page)
    reached = []
    for _ in range(2):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.id"))
    assert reached == ["files", "camera"]
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#take:focus")
    tab.keyboard.press("Enter")
    tab.locator("#answers li").wait_for()
    tab.keyboard.press("Shift+Tab")
    tab.keyboard.press("Shift+Tab")
    with tab.expect_file_chooser() as chooser:
        tab.keyboard.press("Space")
    chooser.value.set_files(files[6])
    tab.locator("#answers li").nth(1).wait_for()
    assert tab.inner_text("#received") == files[6].name


@pytest.mark.slow
def test_the_page_has_no_flaws_for_people(page, chromium, files, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")

    def answer(tab):
        tab.wait_for_selector("body[data-state=ready]")
        tab.click("#camera")
        tab.set_input_files("#files", [files[6], tmp_path / "broken.png"])
        tab.locator("#answers li").nth(1).wait_for()

    assert flaws_of(chromium, page.as_uri(), answer) == []


@pytest.mark.slow
def test_the_page_is_refused_connections_by_its_own_policy(opened):
    refused = opened.evaluate("""() => new Promise((done) => {
      document.addEventListener("securitypolicyviolation", (e) => done(e.effectiveDirective));
      fetch("http://127.0.0.1:9/").catch(() => setTimeout(() => done("the network"), 1000));
    })""")
    assert refused == "connect-src"


@pytest.fixture(scope="module")
def answered(page, chromium, classifier, tmp_path_factory):
    """The page after a broken and a good image, and the classifier's answer to the good one."""
    # A good image whose name a spreadsheet would read as a formula.
    folder = tmp_path_factory.mktemp("images")
    images = [folder / "broken.png", folder / "=good.png"]
    images[0].write_bytes(b"no image")
    smooth_picture(np.random.default_rng(0), (47, 60), (5, 4)).save(images[1])
    tab = open_page(chromium, page, images)
    return tab, dict(classifier.predict(images[1])[0].top)


@pytest.mark.slow
def test_the_page_answers_as_the_classifier(answered, classifier):
    tab, expected = answered
    assert tab.title() == "animals"
    _, good = tab.evaluate("kerasVit.rows")
    answer = dict(zip(classifier.class_names, good["probabilities"], strict=True))
    assert answer == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_the_page_shows_where_the_model_looked(answered):
    tab, expected = answered
    assert tab.inner_text("#answers h2") == max(expected, key=expected.get)
    pictures = tab.locator("#answers figure")
    assert pictures.all_inner_texts() == [
        "=good.png",
        "Where the model looked: the brighter, the more",
    ]


@pytest.mark.slow
def test_the_page_names_what_it_cannot_read(answered):
    tab, _ = answered
    broken, _ = tab.evaluate("kerasVit.rows")
    assert "cannot be read as an image" in broken["error"]
    assert "broken.png" in tab.inner_text("#answers")


@pytest.mark.slow
def test_the_table_of_the_page_has_its_answers(answered):
    tab, expected = answered
    _, good = tab.evaluate("kerasVit.rows")
    with tab.expect_download() as download:
        tab.click("#table")
    lines = pathlib.Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ['"image"', '"broken.png"', '"\'=good.png"']
    assert lines[2].split(",")[2] == f'"{max(expected, key=expected.get)}"'
    stored = [float(text) for text in lines[2].split(",")[3:]]
    assert stored == pytest.approx(good["probabilities"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jpeg", "png", "webp", "webp of a Mac"])
def test_the_page_turns_images_by_their_exif_orientation(opened, classifier, tmp_path, suffix):
    paths = turned(tmp_path, suffix.split()[0], big_endian=suffix.endswith("Mac"))
    num_answers = opened.evaluate("kerasVit.rows.length")
    opened.set_input_files("#files", paths)
    opened.locator("#answers li").nth(num_answers + 7).wait_for()
    rows = opened.evaluate("kerasVit.rows")[-8:]
    for row, prediction in zip(rows, classifier.predict(paths), strict=True):
        answer = dict(zip(classifier.class_names, row["probabilities"], strict=True))
        assert answer == pytest.approx(dict(prediction.top), abs=1e-5), row["name"]
    sizes = opened.evaluate("""() =>
      [...document.querySelectorAll("#answers figure:first-child img")].slice(0, 8).map(
        (image) => [image.naturalWidth, image.naturalHeight])""")
    assert sizes[::-1] == 4 * [[60, 47]] + 4 * [[47, 60]]


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
    head = keras.layers.Dense(3, "sigmoid", name="labels")
    model = keras.Model(model.inputs[0], head(model.get_layer("predictions").input))
    facts = {"task": "multilabel", "thresholds": (0.2, 0, 0.9)}
    classifier = Predictor(model, ("a", "b", "c"), Preprocessing((32, 24)), **facts)
    path = tmp_path / "labels.html"
    keras_vit.export.html(classifier, path, runtime=runtime, check_images=files)
    tab = open_page(chromium, path, files[6:7])
    (prediction,) = classifier.predict(files[6])
    assert tab.inner_text("#answers h2") == ", ".join(prediction.labels)


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
    assert "Golden samples: probabilities" in capsys.readouterr().out
    png = [str(file) for file in files if file.suffix == ".png"][:2]
    received = [prediction.labels for prediction in load_artefact(page).predict(png)]
    assert received == [prediction.labels for prediction in classifier.predict(png)]


def test_a_page_reaches_no_other_address(tmp_path):
    pytest.importorskip("playwright", reason='pip install -e ".[web]"')
    path = tmp_path / "page.html"
    with socket.create_server(("127.0.0.1", 0)) as server:
        path.write_text(PAGE.replace("HOST", f"127.0.0.1:{server.getsockname()[1]}"))
        signature = page_signature(path.as_uri())
        assert signature.call(np.zeros((1, 8, 8, 3), "uint8")).tolist() == [[1]]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # Nobody has connected.
            server.accept()


@pytest.mark.slow
def test_a_page_answers_unknown_as_the_classifier_does(runtime, chromium, tmp_path):
    deciding = open_predictor("vit_mini4_cifar10")
    samples = own_samples(deciding.folder)
    photo = next(p.path for p in deciding.predict(samples) if p.label != "unknown")
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), "uint8")
    PIL.Image.fromarray(noise).save(tmp_path / "noise.png")
    photos = [photo, str(tmp_path / "noise.png")]
    expected = [prediction.label for prediction in deciding.predict(photos)]
    assert [answer == "unknown" for answer in expected] == [False, True]
    path = tmp_path / "page.html"
    report = keras_vit.export.html(deciding, path, runtime=runtime, check_images=photos)
    assert report.agreement == 1
    tab = open_page(chromium, path, photos)
    names = deciding.description.labels.output_names
    rows = tab.evaluate("kerasVit.rows")
    assert [names[int(np.argmax(row["probabilities"]))] for row in rows] == expected
    assert "unknown" in tab.inner_text("#answers")
