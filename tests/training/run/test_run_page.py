"""`report.html` of a run: its curves, its pictures, and what it never holds."""

import base64
import dataclasses
import io
import re

import numpy as np
import pytest
from PIL import Image
from runs import tiny_settings

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run.card import augmented_pictures
from keras_vit.training.run.finetune import finetune
from keras_vit.training.run.job import Job
from keras_vit.training.settings import RunOptions
from keras_vit.training.trainer.trainer import Trainer
from makers import encode, write_classes

SETTINGS = tiny_settings(steps=2, learning_rate=1e-6, augmentation="flip", samples=None)


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


def pictures(page):
    """The decoded pictures of a page."""
    found = re.findall(r"data:image/jpeg;base64,([\w+/=]+)", page)
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in found]


def test_the_page_has_curves_confusion_risk_and_errors(run):
    finished, output, _ = run
    page = (output / "report.html").read_text()
    assert page.count("<polyline") + page.count("<circle") == 8
    for text in ("Curves", "First batch as the model sees it", "Confusion", "Calibration"):
        assert f"<h2>{text}</h2>" in page
    wrong = int((~finished.report.right).sum())
    assert f"{wrong:,} of 12 images have a wrong answer" in page
    assert len(pictures(page)) == 6 + min(wrong, 8)


def test_pictures_are_not_larger_than_the_model_and_have_no_metadata(run):
    for picture in pictures((run[1] / "report.html").read_text()):
        assert picture.size == (8, 12)
        assert not picture.getexif()
    assert b"Jane Q" not in (run[1] / "report.html").read_bytes()


@pytest.mark.parametrize("without", ["none", "no test part"])
def test_no_photo_is_on_the_page_where_none_may_travel(without, data, tmp_path):
    samples = {"none": "none"}.get(without)
    spec = DataSpec(str(data / "train"), holdout=0.0) if without == "no test part" else data
    settings = dataclasses.replace(SETTINGS, samples=samples, steps=1)
    finetune(spec, tmp_path / "run", settings, log=len)
    page = (tmp_path / "run" / "report.html").read_text()
    assert pictures(page) == []
    assert "<h2>Curves</h2>" in page


def test_the_first_batch_is_the_one_that_is_trained_on(run, data, tmp_path):
    plan = Job(DataSpec(str(data)), RunOptions(tmp_path / "other"), SETTINGS).settle()
    shown = [np.asarray(Image.open(io.BytesIO(p.encoded))) for p in augmented_pictures(plan, 4)]
    np.testing.assert_array_equal(shown, np.rint((run[2][:4] + 1) * 127.5).astype("uint8"))
