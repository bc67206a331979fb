"""What leaves the machine with a classifier and its exports, searched in all bytes."""

import base64
import contextlib
import gzip
import io
import json
import re
import shutil
import zipfile

import numpy as np
import PIL.Image
import pytest

import keras_vit
from keras_vit import command_line
from keras_vit.classifier import save_classifier
from keras_vit.description.run_record import RunRecord
from keras_vit.export import convert
from keras_vit.export.formats.artefacts import open_export
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.spec import spec_of_run
from keras_vit.training.run.chosen_samples import ChosenSamples
from makers import COLORS, encode, tiny_config

MARKERS = (b"Jane Q", b"marker", b"acme", b"home", b"gpsplace", b"Exif\0\0", b"secret")


def photo(color, seed):
    """Returns a JPEG as a camera writes it: with an author, a place and a comment."""
    exif = PIL.Image.Exif()
    exif[0x013B] = "Jane Q Private"  # Artist.
    exif[0x010E] = "secret description"
    exif[0x0112] = 6  # Turned by 90 degrees.
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 51.0, 30.0), 0x1B: b"gpsplace"})
    pixels = np.random.default_rng(seed).normal(color, 25, (20, 16, 3))
    return encode(np.clip(pixels, 0, 255).astype("uint8"), "JPEG", exif=exif, comment=b"secret")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Photos of three classes in the folder of somebody, with one that cannot be read."""
    folder = tmp_path_factory.mktemp("home") / "jane-marker" / "acme" / "photos"
    for part, count in (("train", 10), ("test", 4)):
        for name, color in COLORS.items():
            (folder / part / name).mkdir(parents=True)
            for index in range(count):
                (folder / part / name / f"{index}.jpg").write_bytes(photo(color, index))
    (folder / "train" / "red" / "scan_of_jane.jpg").write_bytes(b"damaged")
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """The classifier's folder of a run by the command, and what the run printed."""
    weights = tmp_path_factory.mktemp("home") / "acme" / "weights"
    model = keras_vit.build(tiny_config(), classes=2, input_shape=(8, 8, 3))
    save_classifier(weights, model, ("x", "y"), Preprocessing((8, 8)))
    output = tmp_path_factory.mktemp("runs") / "pets"
    flags = f"--image-size 8 --steps 4 --batch-size 6 --validation 0 --weights {weights}"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        arguments = ["finetune", "--data", str(data), "--output", str(output), *flags.split()]
        assert command_line.main(arguments) == 0
    return output, printed.getvalue()


def contents(path):
    """Yields the bytes of files, also those in archives, base64 and gzip in them."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        yield from unpacked(str(file.name), file.read_bytes())


def unpacked(name, content):
    yield name, content
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.namelist():
                yield from unpacked(f"{name}/{entry}", archive.read(entry))
    for text in re.findall(rb"[A-Za-z0-9+/]{80,}={0,2}", content):
        try:
            inner = base64.b64decode(text, validate=True)
        except ValueError:
            continue
        yield f"{name} (base64)", inner
        if inner.startswith(b"\x1f\x8b"):
            yield f"{name} (gzip)", gzip.decompress(inner)


def found_markers(path, markers=MARKERS):
    return {
        (name, marker)
        for name, content in contents(path)
        for marker in markers
        if marker in content or marker in name.encode()
    }


def test_the_markers_are_found_in_the_photos(data):
    assert {marker for _, marker in found_markers(data)} >= {b"Jane Q", b"Exif\0\0", b"secret"}
    assert b"gpsplace" in photo((0, 0, 0), 0)


def test_a_finished_folder_holds_no_path_and_no_metadata_and_the_plan_says_what_travels(run):
    output, printed = run
    assert not found_markers(output)
    line = "8 photos of the test part, 8x8, without metadata, travel with the classifier and its"
    assert f"{line} exports; --samples none leaves them out" in printed
    for file in sorted((output / "samples").iterdir()):
        with PIL.Image.open(file) as image:
            known = (image.format, image.size, image.info, dict(image.getexif()))
            assert known == ("PNG", (8, 8), {}, {})


def test_the_recipe_keeps_the_last_part_of_a_path_and_the_command_says_so(run, data):
    recipe = json.loads((run[0] / "recipe.json").read_text())
    shown = recipe["data"]["data"], recipe["settings"]["weights"]
    assert shown == (".../photos", ".../weights")
    assert "--data .../photos --output .../pets" in recipe["command"]
    assert recipe["command"].endswith("  # .../ stands for folders that are left out")
    ((name, _),) = recipe["skipped"]
    assert name == "train/red/scan_of_jane.jpg"
    # The data of a run are known by their place.
    record = RunRecord.from_json(recipe)
    assert spec_of_run(record, DataSpec(data)).data == str(data)
    assert spec_of_run(record, DataSpec(data.parent / "others" / "photos")) is None


@pytest.fixture(scope="module")
def photographed(run, data, tmp_path_factory):
    """A folder that somebody wrote: with whole photos, and a recipe with whole paths."""
    folder = tmp_path_factory.mktemp("photographed") / "pets"
    shutil.copytree(run[0], folder)
    shutil.rmtree(folder / "samples")
    (folder / "samples").mkdir()
    for index in range(3):
        (folder / "samples" / f"{index}.jpg").write_bytes(photo((index * 90, 40, 200), index))
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["data"]["data"], recipe["settings"]["weights"] = str(data), str(data.parent / "w.npz")
    recipe["command"] = f"keras-vit finetune --data={data} --weights {data.parent}/w.npz"
    recipe["test"]["skipped"] = [[f"{data}/train/red/scan_of_jane.jpg", "It is damaged."]]
    recipe["facts"]["gelu"]["from"] = f"the file {data.parent}/w.npz"
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


# The texts are the same in all formats.
@pytest.mark.parametrize("name", ["onnx", pytest.param("tflite", marks=pytest.mark.slow)])
def test_an_export_holds_no_path_and_no_metadata_and_photos_that_are_encoded_anew(
    photographed, tmp_path, name
):
    path = tmp_path / f"pets.{name}"
    report = getattr(keras_vit.export, name)(photographed, path, minimum_agreement=0)
    assert not found_markers(path)
    assert "3 photos of the classifier's samples, 8x8, without metadata, travel" in str(report)
    samples = json.loads(open_export(path).texts["golden.json"])
    files = [io.BytesIO(base64.b64decode(sample["png"])) for sample in samples]
    assert [PIL.Image.open(file).info for file in files] == [{}, {}, {}]
    assert not any(sample["synthetic"] for sample in samples)


def test_an_export_without_samples_is_verified_by_synthetic_images(run, tmp_path):
    path = tmp_path / "pets.onnx"
    keras_vit.export.onnx(run[0], path, samples="none", minimum_agreement=0)
    verified = keras_vit.export.verify(path)
    assert verified.num_images == 3
    assert "Samples: 3 synthetic images" in str(verified)


def test_photos_travel_that_were_held_out_or_asked_for(data):
    source = open_source(DataSpec(data / "train", holdout=0.0), 0.0)
    for samples, count, line in (
        (None, 0, "no photos travel"),
        ("2", 2, "2 photos that are trained on, 8x8, without metadata, travel"),
    ):
        chosen = ChosenSamples.of(samples, source, Preprocessing((8, 8)))
        assert len(list(chosen.images())) == count
        assert chosen.line.startswith(line)


def test_a_converted_folder_keeps_samples_of_its_source_encoded_anew(photographed, tmp_path):
    notes = convert(photographed, tmp_path / "all")
    assert not found_markers(tmp_path / "all")
    assert len(list((tmp_path / "all" / "samples").iterdir())) == 3
    assert any("3 photos of the source, 8x8, without metadata" in note for note in notes)
    convert(photographed, tmp_path / "none", samples="none")
    assert not (tmp_path / "none" / "samples").exists()
    with pytest.raises(ValueError, match="samples .*classifier's folder"):
        convert(photographed, tmp_path / "x.npz", samples=1)


@pytest.mark.parametrize("name", ["samples/9.jpg", "recipe.json"])
def test_a_folder_with_a_link_to_a_file_of_this_machine_is_neither_exported_nor_converted(
    name, photographed, tmp_path
):
    source, private = shutil.copytree(photographed, tmp_path / "source"), tmp_path / "private"
    private.write_bytes(next((source / "samples").iterdir()).read_bytes())
    (source / name).unlink(missing_ok=True)
    if name == "recipe.json":
        private.write_text('{"token": "secret"}')
    (source / name).symlink_to(private)
    for write in (keras_vit.export.onnx, convert):
        with pytest.raises(ValueError, match="no links"):
            write(source, tmp_path / "out.onnx" if write is not convert else tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "private"}
