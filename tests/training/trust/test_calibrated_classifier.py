"""The decision of a classifier, from its calibration images to its answers and its exports."""

import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import command_line
from keras_vit.classifier import save_classifier
from keras_vit.description import Labels
from keras_vit.models.rebuild import without_unknown
from keras_vit.opening import open_model, open_predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints
from keras_vit.training.evaluation.classification import evaluate, evaluate_classifier
from keras_vit.training.settings import DecisionSettings
from keras_vit.training.trust.calibrated_classifier import calibrate
from keras_vit.training.trust.calibration_images import calibration_images
from keras_vit.utils.files import SPLIT
from makers import write_picture

# So near to each other that about a fifth of the pictures look like another class.
COLORS = {"blue": (95, 95, 190), "green": (95, 190, 95), "red": (190, 95, 95)}
NAMES = tuple(COLORS)
BOUND = DecisionSettings(max_error=0.15, strange=0.05)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Plain pictures whose colours overlap, 30 of each class to train and 60 to calibrate."""
    folder, rng = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(0)
    for part, count in (("train", 30), ("test", 60)):
        for name, color in COLORS.items():
            for number in range(count):
                pixels = rng.normal(color, 50) + rng.normal(0, 10, (8, 8, 3))
                write_picture(folder / part / name / f"{number}.png", pixels)
    return folder


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers")
    for number in range(4):
        pixels = np.full((8, 8, 3), 255 - number)
        write_picture(folder / f"{number}.png", pixels)
    return folder


def color_model(activation="softmax"):
    """A model whose features are the colours of four parts, and whose head knows the classes."""
    images = keras.Input((8, 8, 3))
    features = keras.layers.Flatten()(keras.layers.AveragePooling2D(4)(images))
    outputs = keras.layers.Dense(3, activation, name="predictions")(features)
    model = keras.Model(images, outputs)
    colors = np.array(list(COLORS.values())) / 127.5 - 1
    kernel = 3 * np.tile(colors.T, (4, 1))
    model.get_layer("predictions").set_weights([kernel, -6 * (colors**2).sum(axis=1)])
    return model


def write_classifier(folder, photos):
    save_classifier(folder, color_model(), NAMES, Preprocessing((8, 8)))
    splits = open_source(DataSpec(photos)).splits
    SplitRecord.of(read_fingerprints(splits)).write(folder)
    return folder


@pytest.fixture
def folder(photos, tmp_path):
    return write_classifier(tmp_path / "colors", photos)


@pytest.fixture(scope="module")
def calibrated(photos, tmp_path_factory):
    folder, lines = write_classifier(tmp_path_factory.mktemp("found") / "colors", photos), []
    calibrate(folder, photos, BOUND, log=lines.append)
    return open_predictor(folder), lines


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_recipe_has_the_bound_and_the_counts(calibrated):
    decision = calibrated[0].recipe["decision"]
    assert 0.3 < decision["answered"] / decision["images"] < 0.95
    assert (decision["max_error"], decision["confidence"]) == (0.15, 0.95)
    assert decision["strange"] == 6  # The seventh of 144 images is the limit of 5%.


def test_the_lines_say_what_holds(calibrated):
    classifier, lines = calibrated
    decision, layer = classifier.recipe["decision"], classifier.model.get_layer("unknown_class")
    assert lines[-3] == (
        "with 95% confidence at most 15.0% of the answers are wrong, for photos like the 144 "
        "held-out ones"
    )
    assert lines[-2].startswith(f"answered {decision['answered'] / 144:.0%} (")
    assert lines[-2].endswith("refused as strange at most 5.0% of known photos")
    assert lines[-1].startswith(f"temperature {layer.temperature:.2f}: calibration error ")


def test_a_bound_of_a_model_without_a_record_says_what_it_supposes(folder, photos):
    (folder / SPLIT).unlink()
    lines = []
    calibrate(folder, photos / "test", BOUND, log=lines.append)
    (line,) = (line for line in lines if "of the answers are wrong" in line)
    assert line.endswith("if the model was not trained on any of them")
    calibrate(folder, photos / "test", BOUND, split="calibration", log=lines.append)
    assert lines[-3] == line  # The record now has calibration images alone.


def test_an_answer_is_given_above_the_threshold_and_unknown_below(calibrated, photos, strangers):
    classifier, _ = calibrated
    threshold = classifier.model.get_layer("unknown_class").threshold
    found = classifier.predict(photos / "test")
    for prediction in found:
        name, probability = prediction.top[0]
        if probability < threshold:
            assert prediction.label == "unknown"
            assert prediction.text == f"unknown ({probability:.2f} {name})"
        else:
            assert prediction.label in (name, "unknown")
    assert {prediction.label for prediction in found} == {*NAMES, "unknown"}
    # Strangers are refused whatever their probability.
    assert {p.label for p in classifier.predict(strangers)} == {"unknown"}


def test_an_evaluation_says_that_calibration_took_its_photos(calibrated, photos):
    report = evaluate_classifier(calibrated[0], photos)
    assert report.split_lines[0] == (
        "split   none of the 180 images is new or was held out: 180 that are for calibration"
    )


def test_an_evaluation_reports_on_the_photos_that_calibration_did_not_take(
    folder, photos, tmp_path
):
    some = tmp_path / "some"
    shutil.copytree(photos / "test", some, ignore=shutil.ignore_patterns("[0-9].png"))
    calibrate(folder, some, BOUND, training_data=photos, log=str)
    report = evaluate_classifier(folder, photos)
    assert {pathlib.Path(name).stem for name in report.examples.names} == {*"0123456789"}
    assert "150 that are for calibration" in report.split_lines[0]


def test_an_evaluation_counts_answers_and_errors(calibrated, photos):
    classifier, _ = calibrated
    report = evaluate_classifier(classifier, photos)
    answers = classifier.predict(photos / "test")
    true = [p.path.split("/")[-2] for p in answers]
    pairs = [(p.label, t) for p, t in zip(answers, true, strict=True) if p.label != "unknown"]
    decision = report.to_json()["decision"]
    assert decision["answered"] == len(pairs)
    assert decision["wrong"] == sum(answer != name for answer, name in pairs)
    assert (report.count, report.class_names) == (180, NAMES)
    # The most probable class is the one of before.
    source, plain = open_source(DataSpec(photos)), without_unknown(classifier.model)
    found = evaluate(
        plain, source.splits["test"], Labels(NAMES), preprocessing=classifier.preprocessing
    )
    assert report.top_1 == found.top_1
    assert plain.output_shape == (None, 3)


@pytest.mark.parametrize(
    "kind", ["tflite", "saved_model", "onnx", pytest.param("openvino", marks=pytest.mark.slow)]
)
def test_an_export_has_one_more_class_and_the_same_answers(calibrated, photos, kind, tmp_path):
    classifier, _ = calibrated
    path = tmp_path / {"tflite": "c.tflite", "onnx": "c.onnx"}.get(kind, "c")
    getattr(keras_vit.export, kind)(classifier, path, check_images=photos / "test")
    opened = open_model(path).classifier()
    assert opened.class_names == NAMES
    assert opened.description.labels.output_names == (*NAMES, "unknown")
    assert opened.description.classes == 3
    ours, theirs = (c.predict(photos / "test") for c in (classifier, opened))
    assert [p.label for p in ours] == [p.label for p in theirs]
    assert evaluate_classifier(opened, photos, split="test").is_answered.sum() == sum(
        p.label != "unknown" for p in ours
    )


def test_a_multi_label_classifier_is_refused_and_its_thresholds_stay():
    labels = Labels(("cat", "dog"), "multilabel", (0.5, 0.5))
    with pytest.raises(ValueError, match="multi-label"):
        BOUND.check(labels)


def test_the_command_prints_unknown_and_json_has_the_answer(folder, photos, strangers, capsys):
    flags = ["--data", str(photos), "--max-error", "0.15", "--strange", "0.05"]
    code = command_line.main(["calibrate", str(folder), *flags, "--unknown", str(strangers)])
    printed = capsys.readouterr().out
    assert code == 0
    assert "none of the classes: 4 of 4 images are answered with unknown" in printed
    assert "with 95% confidence at most 15.0%" in (folder / "README.md").read_text()
    assert command_line.main(["predict", str(folder), str(strangers), "--format", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert {entry["answer"] for entry in entries} == {"unknown"}
    assert [row["class"] for row in entries[0]["top"]].count("unknown") == 0


def test_too_few_tested_photos_recognise_no_strange_ones(folder, photos):
    settings, lines = DecisionSettings(max_error=0.15, strange=0.001), []
    calibrate(folder, photos, settings, log=lines.append)
    assert any("not recognised, which needs 999 tested photos" in line for line in lines)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_error": 0.01}, "400 answered photos.*: 180"),
        ({"max_error": 0.02, "confidence": 0.999}, "99.9% confidence"),
        (
            {"max_error": 0.03},
            r"3.0% .*95% .*\d+ of \d+ answers wrong, .* 0.\d+ that 36 other.*--max-error",
        ),
    ],
)
def test_what_cannot_hold_is_refused_and_nothing_is_written(folder, photos, settings, message):
    before = files_of(folder)
    with pytest.raises(ValueError, match=message):
        calibrate(folder, photos, DecisionSettings(**settings), log=str)
    assert files_of(folder) == before


def test_a_link_out_of_the_folder_is_refused_and_one_within_stays_a_link(folder, photos):
    (folder / "again").symlink_to(".")
    calibrate(folder, photos, BOUND, log=str)
    assert os.readlink(folder / "again") == "."
    (folder / "notes").symlink_to(photos)
    with pytest.raises(ValueError, match="colors/notes, a link"):
        calibrate(folder, photos, BOUND, log=str)


def test_a_model_that_is_a_link_within_the_folder_is_replaced_and_not_written_through(
    folder, photos
):
    (folder / "model.keras").rename(folder / "first.keras")
    (folder / "model.keras").symlink_to(folder / "first.keras")
    before = (folder / "first.keras").read_bytes()
    calibrate(folder, photos, BOUND, log=str)
    assert not (folder / "model.keras").is_symlink()
    assert (folder / "first.keras").read_bytes() == before


@pytest.mark.parametrize("place", ["colors", "."])
def test_a_folder_that_cannot_be_written_is_refused_before_the_images_are_read(
    place, folder, photos, monkeypatch
):
    locked = (folder.parent / place).resolve()  # Even root, who may write anywhere.
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, *how: path != locked and allowed(path, *how))
    with pytest.raises(ValueError, match="read-only"):
        calibrate(folder, photos / "missing", BOUND, log=str)


def test_a_second_calibration_replaces_its_section_of_the_card_alone(folder, photos):
    card = folder / "README.md"
    card.write_text("# Colors\n\n## Data\n\nPictures.\n")
    calibrate(folder, photos, DecisionSettings(), log=str)
    first = card.read_text()
    card.write_text(f"{first}\n## Contact\n\nMe.\n")
    calibrate(folder, photos, BOUND, log=str)
    second = card.read_text()
    assert second.startswith("# Colors\n\n## Data\n\nPictures.\n\n## Unknown images\n")
    assert second.endswith("\n## Contact\n\nMe.\n")
    assert "at most 15.0%" not in first
    assert second.count("at most 15.0%") == 1


def test_images_that_were_trained_on_are_refused(folder, photos):
    with pytest.raises(ValueError, match="neither trained on.*: 90"):
        calibrate(folder, photos / "train", BOUND, log=str)
    assert not open_predictor(folder).description.labels.abstains


def test_copies_of_images_that_were_trained_on_are_left_out(folder, photos, tmp_path):
    data = tmp_path / "copies"
    shutil.copytree(photos / "test", data)
    for number in range(5):
        shutil.copy(photos / "train" / "red" / f"{number}.png", data / "red" / f"copy{number}.png")
    lines = []
    calibrate(folder, data, DecisionSettings(), log=lines.append)
    assert open_predictor(folder).recipe["decision"]["images"] == 144
    assert any(line.startswith("split   180 images") for line in lines)


def test_an_image_counts_once_whatever_the_number_of_its_copies_and_of_its_group(
    folder, photos, tmp_path
):
    for name in NAMES:
        for number in range(40):
            for copy in range(3):
                path = tmp_path / "copies" / name / f"{number % 30}-{number}-{copy}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(photos / "test" / name / f"{number}.png", path)
    classifier, lines = open_predictor(folder), []
    known, *_ = calibration_images(classifier, DataSpec(tmp_path / "copies"), log=lines.append)
    assert len({*known.fingerprints()}) == len(known) == 120
    assert "split   240 of the 360 calibration images do not count: copies" in lines[-1]
    spec = DataSpec(tmp_path / "copies", group_by=r"(\w+/\d+)-")
    known, *_ = calibration_images(classifier, spec, log=lines.append)
    assert np.bincount(known.labels).tolist() == [30, 30, 30]


@pytest.fixture
def new_photos(photos, tmp_path):
    """Photos that no run knows, without training images beside them."""
    return shutil.copytree(photos / "test", tmp_path / "new")


def test_without_training_images_a_line_says_how_to_give_them(folder, photos, new_photos):
    lines = []
    calibrate(folder, new_photos, BOUND, log=lines.append)
    assert any(
        line.endswith("--training-data DATA (training_data=) gives the data of the run")
        for line in lines
    )
    assert "not recognised, which needs the run's training images" in lines[-2]
    calibrate(folder, new_photos, BOUND, training_data=photos, log=lines.append)
    assert lines[-2].endswith("refused as strange at most 5.0% of known photos")
    with pytest.raises(ValueError, match="trained on.*new, none"):
        calibrate(folder, new_photos, BOUND, training_data=new_photos, log=str)


def test_a_class_without_calibration_images_is_refused(folder, photos, tmp_path):
    (tmp_path / "two").mkdir()
    for name in NAMES[:2]:
        (tmp_path / "two" / name).symlink_to(photos / "test" / name)
    with pytest.raises(ValueError, match="calibration images.*none of red"):
        calibrate(folder, tmp_path / "two", BOUND, log=str, follow_symlinks=True)


def test_classifiers_that_cannot_be_calibrated_are_refused(calibrated, photos, tmp_path):
    classifier, _ = calibrated
    keras_vit.export.tflite(classifier, tmp_path / "c.tflite", check_images=photos / "test")
    names = ("blue", "green", "unknown")
    save_classifier(tmp_path / "x", color_model(), names, Preprocessing((8, 8)))
    for model, message in (
        ("cifar10", "a copy.*r7_vit_nano8"),
        (tmp_path / "x", 'the name "unknown"'),
        (tmp_path / "c.tflite", "folder with model.keras"),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(model, photos, BOUND, log=str)


def test_a_second_calibration_is_that_of_the_model_within(calibrated, photos, tmp_path):
    classifier, lines = calibrated
    again, before = [], files_of(classifier.folder)
    folder = shutil.copytree(classifier.folder, tmp_path / "colors")
    calibrate(folder, photos, BOUND, log=again.append)
    assert again[0].startswith("split   180 images that are for calibration")
    assert again[1:] == lines[1:]
    after = files_of(folder)
    assert {name for name in before if before[name] != after[name]} <= {"model.keras"}  # Its date.
    images = np.random.default_rng(0).uniform(-1, 1, (20, 8, 8, 3))
    np.testing.assert_array_equal(open_predictor(folder).model(images), classifier.model(images))
