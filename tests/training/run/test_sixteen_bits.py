"""16-bit photos whose values need 8 bits, from the data to the answers of exports."""

import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import command_line
from keras_vit.export.formats.artefacts import load_artefact
from keras_vit.opening import open_predictor
from keras_vit.training import FineTuning, finetune
from keras_vit.training.data import DataSpec, open_source, write_records
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.trust import check_photos

LEAST = {"bright": 150, "dark": 20}  # The largest is 65535: high bytes are all zero.


def write_photos(folder, count, most=60):
    """Writes PNG and TIFF files of two classes, 130 levels apart."""
    rng = np.random.default_rng(count)
    for name, least in LEAST.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            values = rng.integers(least, least + most, (16, 16)).astype("uint16")
            suffix = ("png", "tif")[number % 2]
            Image.fromarray(values).save(folder / name / f"{number}.{suffix}")
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos") / "photos", 15)


@pytest.fixture(scope="module")
def run(photos, tiny, tmp_path_factory):
    lines = []
    settings = FineTuning(weights=str(tiny), steps=4, batch_size=8)
    done = finetune(photos, tmp_path_factory.mktemp("run") / "run", settings, log=lines.append)
    return done, "\n".join(map(str, lines))


def test_the_classes_are_told_apart(run):
    assert run[0].report.top_1 == 1


def test_a_line_has_the_largest_value_and_what_was_made_of_it(run):
    assert "16-bit images have values up to 209, read as 8 bits" in run[1]


def test_the_folder_records_the_bits(run):
    described = json.loads((run[0].folder / "description.json").read_text())
    recipe = json.loads((run[0].folder / "recipe.json").read_text())
    assert described["preprocessing"]["bit_depth"] == 8
    assert recipe["preprocessing"]["bit_depth"] == 8


def test_the_card_states_the_bits(run):
    assert "8 bits of 16-bit images" in (run[0].folder / "README.md").read_text()


def test_samples_and_pictures_are_not_black(run):
    samples = sorted((run[0].folder / "samples").iterdir())
    assert {np.asarray(Image.open(sample)).mean() > 10 for sample in samples} == {True}


def test_evaluation_reads_files_as_the_run_did(run, tmp_path):
    later = write_photos(tmp_path / "later", 6)
    report = evaluate_classifier(open_predictor(run[0].folder), later)
    assert report.top_1 == 1


def test_an_evaluation_says_that_larger_values_are_white(run, tmp_path):
    later = write_photos(tmp_path / "later", 6, most=900)
    spec = DataSpec(str(later), bit_depth=8, holdout=0)
    (note,) = open_source(spec).notes
    assert "read as 8 bits: all above 255 is white" in note


@pytest.mark.parametrize("name", ["saved_model", "onnx"])
def test_an_export_answers_files_as_the_classifier(run, photos, name, tmp_path):
    classifier = open_predictor(run[0].folder)
    path = tmp_path / ("model.onnx" if name == "onnx" else "model")
    getattr(keras_vit.export, name)(classifier, path, check_images=photos)
    files = sorted(map(str, photos.rglob("*.*")))[::7]
    expected = [dict(answer.top) for answer in classifier.predict(files)]
    answers = load_artefact(path).predict(files)
    for answer, probabilities in zip(answers, expected, strict=True):
        assert dict(answer.top) == pytest.approx(probabilities, abs=1e-5)


def test_record_files_hold_the_bits(photos, tmp_path):
    source = open_source(str(photos), holdout=0)
    write_records(source, tmp_path / "records")
    assert open_source(f"tfrecords:{tmp_path / 'records'}", holdout=0).bit_depth == 8


def test_a_flag_replaces_what_the_data_show(photos):
    source = open_source(str(photos), bit_depth=16, holdout=0)
    assert source.bit_depth == 16
    assert "read as 16 bits: they are dark, as 8 bits would hold them" in source.notes[0]


def test_data_of_8_bits_have_no_line_and_no_bits(colors):
    source = open_source(str(colors))
    assert (source.bit_depth, source.notes) == (None, ())


def test_a_bit_depth_out_of_range_is_one_line(photos, capsys):
    code = command_line.main(["finetune", str(photos), "--bit-depth", "7", "--output", "x"])
    assert code == 2
    assert "bit_depth=7" in capsys.readouterr().err


def test_check_names_photos_that_became_one_color(tmp_path):
    folder = write_photos(tmp_path / "photos", 12)
    values = np.random.default_rng(0).integers(0, 2**16, (12, 16, 16)).astype("uint16")
    for number in range(12):  # 16 bits, so all of the data are read so.
        Image.fromarray(values[number]).save(folder / "bright" / f"{number}.png")
    report = check_photos(folder, weights="cifar10")
    black = [report.names[row.image] for row in report.of_kind("one color")]
    assert len(black) == 18
    assert re.search("one color +18 photos such as ", str(report))


def test_check_of_black_photos_alone_says_so(photos):
    with pytest.raises(ValueError, match="one group"):
        check_photos(photos, weights="cifar10", bit_depth=16)


def test_check_reads_the_bits_that_the_data_need(photos):
    report = check_photos(photos, weights="cifar10")
    assert report.expected[0] > 0.9
    assert not report.of_kind("one color")


def test_a_folder_without_bits_reads_the_high_byte(run):
    fields = open_predictor(run[0].folder).preprocessing.to_fields()
    del fields["bit_depth"]
    assert keras_vit.Preprocessing.from_fields(fields).bit_depth == 16
    assert dataclasses.asdict(keras_vit.Preprocessing((8, 8)))["bit_depth"] == 16
