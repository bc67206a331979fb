"""`report.html` of a run: its parts, its pictures, what it never holds, and it in a browser."""

import base64
import dataclasses
import io
import re
from html import escape

import numpy as np
import pytest
from page_flaws import flaws_of
from PIL import Image
from runs import tiny_settings

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run.finetune import finetune, plan_of
from keras_vit.training.run.run_page import augmented_pictures
from keras_vit.training.run.start import start
from keras_vit.training.settings import RunOptions
from keras_vit.training.trainer.trainer import Trainer
from makers import encode, write_classes

SETTINGS = tiny_settings(steps=2, learning_rate=1e-6, augmentation="flip", samples=None)


HOSTILE = "<script>document.title = 'run'<"
CLASSES = {HOSTILE: None, "b & c": None, "a long name of a class of birds" * 3: None}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = write_classes(tmp_path_factory.mktemp("data"), {"train": 10, "test": 4})
    exif = Image.Exif()
    exif[0x013B] = "Jane Q Private"
    for path in folder.rglob("*.png"):
        pixels = np.asarray(Image.open(path))
        path.write_bytes(encode(pixels, "PNG", exif=exif))
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    output, seen, fit = tmp_path_factory.mktemp("runs") / "colors", [], Trainer.fit

    def watched(self, batches, **options):
        seen.append(np.asarray(next(iter(batches))[0]))
        return fit(self, batches, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "fit", watched)
        return finetune(data, output, SETTINGS, log=len), output, seen[0]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """The page of a run that gives one class to all images, and its report."""
    folder = tmp_path_factory.mktemp("data")
    data = write_classes(folder, {"train": 12, "test": 8}, CLASSES, size=(400, 500))
    settings = dataclasses.replace(SETTINGS, learning_rate=1e-9, head_start="zero", samples="6")
    output = tmp_path_factory.mktemp("runs") / "photos & <b>"
    finished = finetune(data, output, settings, log=len)
    return output / "report.html", finished.report


def pictures(page):
    """The decoded pictures of a page."""
    found = re.findall(r"data:image/jpeg;base64,([\w+/=]+)", page)
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in found]


def test_the_page_has_the_result_curves_confusion_and_errors(run):
    finished, output, _ = run
    page = (output / "report.html").read_text()
    sections = re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    assert sections == [
        *("Numbers", "Confusion", "Calibration", "Most confident errors"),
        *("Curves", "First batch as the model sees it", "The run"),
    ]
    assert re.search(r"<h1>(.*)</h1>", page)[1] == "colors"
    assert f'class="large">{float(finished.report.top_1):.1%}</p>' in page
    wrong = int((~finished.report.right).sum())
    assert f"{wrong:,} of 12 images have a wrong answer" in page


def test_errors_are_large_beside_what_the_model_saw(wrong):
    page = wrong[0].read_text()
    errors = page[page.index('id="most-confident-errors"') : page.index('id="curves"')]
    sizes = [picture.size for picture in pictures(errors)]
    assert sizes == [size for _ in range(6) for size in ((400, 320), (8, 12))]
    assert "16 of 24 images have a wrong answer. This page shows 6" in errors


def test_a_cell_of_the_confusion_shows_the_photos_that_the_page_has(wrong):
    page, report = wrong[0].read_text(), wrong[1]
    (given,) = np.unique(report.given)
    shown = re.findall(r"<p>(\d+) of (\d+) photos are on this page", page)
    assert sum(int(count) for count, _ in shown) == 6
    assert {int(count) for _, count in shown} == {8}
    titles = re.findall(r"<h3>(.*) taken for (.*)</h3>", page)
    assert {answer for _, answer in titles} == {escape(report.class_names[given])}


def test_few_photos_have_no_curve_of_risk(run, wrong):
    pages = [path.read_text() for path in (wrong[0], run[1] / "report.html")]
    assert [page.count("Share of errors</h3>") for page in pages] == [1, 0]
    assert [page.count("risk and coverage</h2>") for page in pages] == [1, 0]


@pytest.mark.parametrize("without", ["none", "no test part"])
def test_no_photo_is_on_the_page_where_none_may_travel(without, data, tmp_path):
    samples = {"none": "none"}.get(without)
    spec = DataSpec(str(data / "train"), holdout=0.0) if without == "no test part" else data
    settings = dataclasses.replace(SETTINGS, samples=samples, steps=1)
    finetune(spec, tmp_path / "run", settings, log=len)
    page = (tmp_path / "run" / "report.html").read_text()
    assert pictures(page) == []
    assert ">Curves</h2>" in page


def test_the_first_batch_is_the_one_that_is_trained_on(run, data, tmp_path):
    plan = plan_of(start(DataSpec(str(data)), RunOptions(tmp_path / "other"), SETTINGS))
    shown = [np.asarray(Image.open(io.BytesIO(p.encoded))) for p in augmented_pictures(plan, 4)]
    np.testing.assert_array_equal(shown, np.rint((run[2][:4] + 1) * 127.5).astype("uint8"))


def test_nothing_on_the_page_stands_in_a_persons_way(chromium, wrong):
    assert flaws_of(chromium, wrong[0].as_uri()) == []


@pytest.fixture
def page(chromium, wrong):
    """The page in a browser without a network."""
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto(wrong[0].as_uri())
    yield page
    context.close()


def test_names_of_classes_and_of_the_run_are_text(page):
    assert page.title() == page.inner_text("h1") == "photos & <b>"
    assert page.locator(".confusion th").filter(has_text=HOSTILE).count() == 2
    assert page.locator("script").count() == 0


def test_the_keyboard_opens_and_closes_the_photos_of_a_cell(page):
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.confusion button')"):
            break
    page.keyboard.press("Enter")
    shown = page.locator("[popover]:popover-open")
    assert shown.locator("img").count() > 0
    assert "of 8 photos are on this page." in shown.inner_text()
    page.keyboard.press("Escape")
    assert shown.count() == 0


def test_links_lead_to_the_sections(page):
    page.locator("nav a", has_text="Curves").click()
    top = "document.querySelector('#curves').getBoundingClientRect().y"
    page.wait_for_function(f"Math.abs({top}) < 200")
    # Not below the links, which stay in sight.
    assert page.evaluate(f"{top} > document.querySelector('nav').getBoundingClientRect().bottom")
