"""The decision of an export with integers, found again on the scores of the export."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import command_line
from keras_vit.answering import scores_model, split_scores
from keras_vit.classifier_folder import load_classifier, save_classifier
from keras_vit.description.decision import Decision
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.decisions import calibrate, decide_on
from keras_vit.training.decisions.finding import largest_leverage
from keras_vit.training.decisions.quantized_exports import settings_of
from keras_vit.training.decisions.scores import leverages_of
from keras_vit.training.settings.decisions import DecisionSettings
from makers import write_picture

COLORS = {"blue": (85, 85, 180), "green": (85, 180, 85), "red": (180, 85, 85)}
NAMES = tuple(COLORS)
BOUND = DecisionSettings(max_error=0.2, strange=0.05)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(0)
    for part, count in (("train", 30), ("test", 60)):
        for name, color in COLORS.items():
            for number in range(count):
                pixels = rng.normal(color, 50) + rng.normal(0, 10, (8, 8, 3))
                write_picture(folder / part / name / f"{number}.png", pixels)
    return folder


def color_model():
    """A model whose hidden layer is what an export with integers rounds."""
    images = keras.Input((8, 8, 3))
    colors = keras.layers.Flatten()(keras.layers.AveragePooling2D(4)(images))
    features = keras.layers.Dense(12, name="hidden")(colors)
    outputs = keras.layers.Dense(3, "softmax", name="predictions")(features)
    model = keras.Model(images, outputs)
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))
    model.get_layer("hidden").set_weights([turned, np.zeros(12)])
    values = np.array(list(COLORS.values())) / 127.5 - 1
    kernel = 3 * turned.T @ np.tile(values.T, (4, 1))
    model.get_layer("predictions").set_weights([kernel, -6 * (values**2).sum(axis=1)])
    return model


@pytest.fixture(scope="module")
def calibrated(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "colors"
    save_classifier(folder, color_model(), NAMES, Preprocessing((8, 8)))
    return calibrate(folder, photos, BOUND, log=str)


@pytest.fixture(scope="module")
def exported(calibrated, photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "colors.tflite"
    report = keras_vit.export.tflite(
        calibrated,
        path,
        precision="int8",
        check_images=photos / "test",
        minimum_agreement=0.5,
        decide=decide_on(photos, log=str),
    )
    return path, report


def test_scores_of_an_export_are_the_logits_and_leverages(calibrated, photos):
    model, arrays = calibrated.model, calibrated.decision_arrays
    images = np.random.default_rng(0).uniform(-1, 1, (5, 8, 8, 3)).astype("float32")
    logits, leverages = split_scores(scores_model(model, arrays).predict(images, verbose=0), False)
    features = keras.Model(model.inputs, model.get_layer("predictions").input)(images)
    np.testing.assert_allclose(
        leverages,
        leverages_of(np.asarray(features), arrays),
        rtol=1e-4,  # float32
    )
    expected = np.log(model.predict(images, verbose=0))
    np.testing.assert_allclose(logits, expected, atol=1e-4)  # float32


def test_the_bounds_of_a_decision_are_known_from_it(calibrated):
    found = settings_of(calibrated.description.decision)
    assert dataclasses.replace(found, strange=0.05) == BOUND
    assert found.strange == pytest.approx(7 / 145)  # The seventh of 144 images is the limit.


def test_the_share_of_strange_images_is_free_of_rounding():
    found = settings_of(Decision(largest_leverage=0.9, images=102, strange=0))
    assert largest_leverage(np.linspace(0, 0.8, 102), found.strange) > 0.8


def test_the_threshold_is_in_the_export_and_is_of_its_own_scores(calibrated, exported):
    path, report = exported
    before = calibrated.description.decision
    found = keras_vit.open_model(path).classifier().description.decision
    assert found.threshold != before.threshold
    assert found.largest_leverage != before.largest_leverage
    assert (found.images, found.strange) == (before.images, before.strange)
    for name in ("brightness", "sharpness"):  # The same images, scored by another model.
        assert found.reference.counts[name] == before.reference.counts[name]
    assert any("at most 20.0% of the answers are wrong" in note for note in report.notes)


def test_the_export_answers_as_many_photos_as_its_decision_says(exported, photos):
    path, _ = exported
    opened = keras_vit.open_model(path).classifier()
    decision = opened.description.decision
    order = np.random.default_rng(0).permutation(180)
    tested = np.sort(order[36:])
    answers = [prediction.answer for prediction in opened.predict(photos / "test")]
    assert sum(answers[place] != "unknown" for place in tested) == decision.answered


def test_the_export_passes_its_own_check_and_the_one_with_its_classifier(
    calibrated, exported, photos
):
    path, _ = exported
    assert keras_vit.export.verify(path).agreement == 1
    report = keras_vit.export.verify(path, calibrated, check_images=photos / "test")
    assert report.agreement > 0.9  # Its decision, and scores that are rounded.


def test_without_the_images_the_report_says_whose_decision_it_is(calibrated, photos, tmp_path):
    report = keras_vit.export.tflite(
        calibrated,
        tmp_path / "c.tflite",
        precision="dynamic_int8",
        check_images=photos / "test",
        minimum_agreement=0.5,
    )
    assert any("The decision is the one of the Keras model" in note for note in report.notes)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--to", "saved_model"), "are for --precision int8 or dynamic_int8"),
        (("--to", "tflite"), "precision='float32'"),
        (("--to", "tflite", "--precision", "int8", "--unknown-class", "off"), "class='off'"),
    ],
)
def test_images_for_exports_that_need_none_are_refused(
    calibrated, photos, tmp_path, capsys, flags, message
):
    output = tmp_path / ("c" if flags[1] == "saved_model" else "c.tflite")
    arguments = ["export", str(calibrated.folder), *flags, "--output", str(output)]
    arguments += ["--check-images", str(photos / "test"), "--data", str(photos)]
    assert command_line.main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_the_command_finds_the_decision_again(calibrated, photos, tmp_path, capsys):
    output = tmp_path / "c.tflite"
    flags = ["--to", "tflite", "--precision", "dynamic_int8", "--output", str(output)]
    flags += ["--check-images", str(photos / "test"), "--minimum-agreement", "0.5"]
    flags += ["--data", str(photos)]
    code = command_line.main(["export", str(calibrated.folder), *flags])
    assert code in (0, None)
    assert "at most 20.0% of the answers are wrong" in capsys.readouterr().out
    assert load_classifier(calibrated.folder).description.decision.threshold > 0


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Pictures that may have each of three colours, or none: the table, to train and to test."""
    folder, rng = tmp_path_factory.mktemp("labels"), np.random.default_rng(1)
    rows = ["path,label,split"]
    for number in range(240):
        given = rng.random(3) < 0.4
        pixels = 60 + 90 * given + rng.normal(0, 40, 3) + rng.normal(0, 10, (8, 8, 3))
        write_picture(folder / f"{number}.png", np.clip(pixels, 0, 255))
        names = ";".join(name for name, has in zip(NAMES, given, strict=True) if has)
        rows.append(f"{number}.png,{names},{'train' if number < 90 else 'test'}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder / "labels.csv"


def test_thresholds_of_labels_are_found_again_on_the_export(labelled, tmp_path):
    images = keras.Input((8, 8, 3))
    colors = keras.layers.Flatten()(keras.layers.AveragePooling2D(4)(images))
    features = keras.layers.Dense(12, name="hidden")(colors)
    outputs = keras.layers.Dense(3, "sigmoid", name="predictions")(features)
    model = keras.Model(images, outputs)
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))
    model.get_layer("hidden").set_weights([turned, np.zeros(12)])
    head = turned.T @ np.tile(4 * np.eye(3)[:, ::-1], (4, 1))  # Classes are sorted by name.
    model.get_layer("predictions").set_weights([head, np.full(3, 2.5)])
    save_classifier(
        tmp_path / "colors", model, sorted(NAMES), Preprocessing((8, 8)), task="multilabel"
    )
    bound = DecisionSettings(max_missed=0.1, strange=0.05)
    before = calibrate(tmp_path / "colors", labelled, bound, log=str)

    path = tmp_path / "colors.tflite"
    report = keras_vit.export.tflite(
        before,
        path,
        precision="int8",
        check_images=labelled.parent,
        minimum_agreement=0.5,
        decide=decide_on(labelled, log=str),
    )
    assert any("at most 10.0% of the photos with a label lack it" in note for note in report.notes)
    opened = keras_vit.open_model(path).classifier()
    decision, limits = opened.description.decision, opened.description.labels.thresholds
    assert decision.error == "missed"
    assert decision.max_error == 0.1
    assert limits[:3] != before.description.labels.thresholds
    np.testing.assert_allclose(limits[:3], before.description.labels.thresholds, atol=0.1)

    # As many images lack a label as the bound allows of the tested ones, strange ones included.
    given = [row.split(",")[1].split(";") for row in labelled.read_text().splitlines()[91:]]
    files = [labelled.parent / f"{number}.png" for number in range(90, 240)]
    found = [prediction.labels for prediction in opened.predict(files)]
    tested = np.random.default_rng(0).permutation(150)[30:]
    for name in NAMES:
        with_label = [place for place in tested if name in given[place]]
        missed = sum(name not in found[place] for place in with_label)
        assert missed == int(0.1 * (len(with_label) + 1)) - 1
