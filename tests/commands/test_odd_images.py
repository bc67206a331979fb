"""Every command with folders of TIFF, AVIF, HEIC, damaged JPEG and unreadable images."""

import shutil
import sys

import pytest
from PIL import Image

from keras_vit.classifier_folder import load_classifier
from keras_vit.training.data import open_source

TINY = (
    *("--image-size", "8", "--steps", "2", "--batch-size", "4", "--accumulate", "1"),
    *("--validation", "0", "--holdout", "0"),
)


@pytest.fixture(scope="module")
def odd(colors, tmp_path_factory):
    """The pictures of three colours; each class has a TIFF, a 16-bit TIFF and an AVIF."""
    folder = shutil.copytree(colors, tmp_path_factory.mktemp("odd") / "colors")
    for path in sorted(folder.rglob("[012].png")):
        image = Image.open(path)
        suffix = {"0": ".tif", "1": ".tiff", "2": ".avif"}[path.stem]
        options = {"quality": 100, "subsampling": "4:4:4"} if suffix == ".avif" else {}
        image.save(path.with_suffix(suffix), **options)
        path.unlink()
    return folder


@pytest.fixture
def with_unreadable(odd, tmp_path):
    """The same with two HEIC files, one of Photoshop, a text, and hidden files, two of macOS."""
    folder = shutil.copytree(odd, tmp_path / "photos")
    heic = b"\0\0\0\x18ftypheic" + bytes(9)
    for name in ("h1.heic", "h2.HEIC", "layers.psd", "notes.txt", ".DS_Store", "._0.jpg"):
        (folder / "test" / "red" / name).write_bytes(heic if "h" in name[0] else b"text")
    return folder


@pytest.fixture(autouse=True)
def without_heif(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)


def test_all_images_are_read(odd, colors):
    source = open_source(odd)
    assert source.skipped == []
    assert [len(source.splits[split]) for split in ("train", "test")] == [12, 6]


def test_predictions_are_those_of_the_same_pixels_as_png(tiny, odd, colors):
    classifier = load_classifier(tiny)
    for suffix, name in ((".tif", "0.png"), (".tiff", "1.png")):
        first = classifier.predict(odd / "test" / "red" / f"{name[0]}{suffix}")
        assert first[0].top == classifier.predict(colors / "test" / "red" / name)[0].top


@pytest.mark.slow
def test_fine_tuning_says_at_the_start_what_is_skipped(command, with_unreadable, tiny, tmp_path):
    output = tmp_path / "out"
    arguments = ("finetune", "--data", with_unreadable, "--weights", tiny, *TINY)
    planned = command(*arguments, "--output", output, "--dry-run")
    assert planned.code == 0, planned.err
    assert "12 images to train, 0 to validate, 6 to test, 4 skipped" in planned.out
    assert 'pip install -e ".[heif]"' in planned.out
    for name in ("h1.heic", "h2.HEIC", "layers.psd"):
        assert name in planned.out
    for name in ("notes.txt", "DS_Store"):
        assert name not in planned.out
    done = command(*arguments, "--output", output)
    assert done.code == 0, done.err
    assert "skipped 2 files: A HEIC image needs the package pillow_heif" in done.out
    samples = {path.suffix for path in (output / "samples").iterdir()}
    assert samples == {".png"}  # TIFF and AVIF became PNG: a SavedModel decodes them.


@pytest.mark.slow
def test_evaluation_commands_count_and_name_what_they_skip(
    command, with_unreadable, tiny, tmp_path
):
    evaluated = command("evaluate", tiny, "--data", with_unreadable)
    assert evaluated.code == 0, evaluated.err
    assert "images  6 (each once)" in evaluated.out
    few_shot = command(
        *("few-shot", tiny, "--data", with_unreadable, "--shots", "2", "--seeds", "0")
    )
    assert few_shot.code == 0, few_shot.err
    records = command("records", "--data", with_unreadable, "--output", tmp_path / "records")
    assert records.code == 0, records.err
    for outcome in (evaluated, few_shot, records):
        assert "skipped 2 files: A HEIC image needs" in outcome.out
        assert "layers.psd: An image must be JPEG" in outcome.out
    # Record files hold PNG: the same numbers without Pillow.
    again = command("evaluate", tiny, "--data", tmp_path / "records")
    assert _numbers(again.out) == _numbers(evaluated.out)


def _numbers(printed):
    """The lines between the split and the files left out."""
    return printed[printed.index("images ") : printed.index("\n\n")]


def test_prediction_reports_each_unreadable_image(command, with_unreadable, tiny):
    outcome = command("predict", tiny, with_unreadable / "test" / "red", "--format", "csv")
    assert outcome.code == 1
    assert outcome.err.count("keras-vit: ") == 3
    assert "DS_Store" not in outcome.out
    assert "._0" not in outcome.out


@pytest.mark.parametrize("name", ["finetune", "evaluate", "few-shot", "records"])
def test_nothing_but_unreadable_images_is_one_line(name, refused, tiny, tmp_path):
    for path in ("blue/x.heic", "green/y.heic"):
        (tmp_path / "data" / path).parent.mkdir(parents=True)
        (tmp_path / "data" / path).write_bytes(b"\0\0\0\x18ftypheic" + bytes(9))
    words = {
        "finetune": ("--weights", tiny, "--output", tmp_path / "out", *TINY),
        "evaluate": (),
        "few-shot": (),
        "records": ("--output", tmp_path / "out"),
    }[name]
    model = (tiny,) if name in ("evaluate", "few-shot") else ()
    line = refused(name, *model, "--data", tmp_path / "data", *words)
    assert "none; skipped 2 files: A HEIC image needs" in line
    assert 'pip install -e ".[heif]"' in line
