"""Commands with folders of TIFF, AVIF, HEIC, damaged JPEG and unreadable images."""

import shutil
import sys

import pytest
from PIL import Image

TINY = (
    *("--image-size", "8", "--steps", "2", "--batch-size", "4", "--accumulate", "1"),
    *("--validation", "0", "--holdout", "0"),
)
HEIC = b"\0\0\0\x18ftypheic" + bytes(9)


@pytest.fixture(scope="module")
def odd(colors, tmp_path_factory):
    """The pictures of three colours; each class has a TIFF, a 16-bit TIFF and an AVIF."""
    folder = shutil.copytree(colors, tmp_path_factory.mktemp("odd") / "colors")
    for path in sorted(folder.rglob("[012].png")):
        suffix = {"0": ".tif", "1": ".tiff", "2": ".avif"}[path.stem]
        options = {"quality": 100, "subsampling": "4:4:4"} if suffix == ".avif" else {}
        Image.open(path).save(path.with_suffix(suffix), **options)
        path.unlink()
    return folder


@pytest.fixture
def with_unreadable(odd, tmp_path):
    """The same with two HEIC files, one of Photoshop, a text, and hidden files, two of macOS."""
    folder = shutil.copytree(odd, tmp_path / "photos")
    for name in ("h1.heic", "h2.HEIC", "layers.psd", "notes.txt", ".DS_Store", "._0.jpg"):
        (folder / "test" / "red" / name).write_bytes(HEIC if "h" in name[0] else b"text")
    return folder


@pytest.fixture(autouse=True)
def without_heif(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)


def test_what_cannot_be_read_is_named_at_the_start_of_training(
    command, with_unreadable, tiny, tmp_path
):
    arguments = ("finetune", "--data", with_unreadable, "--weights", tiny, *TINY)
    planned = command(*arguments, "--output", tmp_path / "out", "--dry-run")
    assert planned.code == 0, planned.err
    assert "12 images to train, 0 to validate, 6 to test, 3 skipped" in planned.out
    assert 'pip install -e ".[heif]"' in planned.out
    assert all(name in planned.out for name in ("h1.heic", "h2.HEIC", "layers.psd"))
    assert not any(name in planned.out for name in ("notes.txt", "DS_Store"))


def test_what_cannot_be_read_is_named_by_predict(command, with_unreadable, tiny):
    outcome = command("predict", tiny, with_unreadable / "test" / "red", "--format", "csv")
    assert outcome.code == 1
    assert outcome.err.count("keras-vit: ") == 3
    assert "DS_Store" not in outcome.out


@pytest.mark.slow
def test_fine_tuning_goes_on_and_keeps_samples_as_png(command, with_unreadable, tiny, tmp_path):
    output = tmp_path / "out"
    given = ("--data", with_unreadable, "--weights", tiny, *TINY)
    done = command("finetune", *given, "--output", output)
    assert done.code == 0, done.err
    assert "skipped 2 files: A HEIC" in done.out
    assert {path.suffix for path in (output / "samples").iterdir()} == {".png"}


@pytest.mark.slow
def test_evaluation_commands_count_and_name_what_they_skip(
    command, with_unreadable, tiny, tmp_path
):
    evaluated = command("evaluate", tiny, "--data", with_unreadable)
    assert "images  6 (each once)" in evaluated.out
    shots = ("--shots", "2", "--seeds", "0")
    few_shot = command("few-shot", tiny, "--data", with_unreadable, *shots)
    records = command("records", "--data", with_unreadable, "--output", tmp_path / "records")
    for outcome in (evaluated, few_shot, records):
        assert outcome.code == 0, outcome.err
        assert "skipped 2 files: A HEIC" in outcome.out
        assert "layers.psd: An image must be JPEG" in outcome.out
    # Record files hold PNG: the same numbers without Pillow.
    again = command("evaluate", tiny, "--data", tmp_path / "records")
    first, second = (done.out.partition("images  6")[2] for done in (again, evaluated))
    assert first.partition("\n\n")[0] == second.partition("\n\n")[0] != ""


@pytest.mark.parametrize("words", ["evaluate {tiny}", "records --output {out}"])
def test_nothing_but_unreadable_images_is_one_line(words, refused, tiny, tmp_path):
    for path in ("blue/x.heic", "green/y.heic"):
        (tmp_path / "data" / path).parent.mkdir(parents=True)
        (tmp_path / "data" / path).write_bytes(HEIC)
    given = words.format(tiny=tiny, out=tmp_path / "out").split()
    line = refused(*given, "--data", tmp_path / "data")
    assert "none; skipped 2 files: A HEIC" in line
    assert 'pip install -e ".[heif]"' in line
