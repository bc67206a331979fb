"""Calibrated models, whose last output is "unknown": what they are, and the models within them."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.classifier import save_classifier
from keras_vit.description import Description, Labels, abstains
from keras_vit.models.rebuild import inference_model, with_unknown, without_unknown
from keras_vit.opening import open_model, open_predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import DataSpec
from keras_vit.training.run.distillation import open_teacher
from keras_vit.training.run.finetune import finetune
from keras_vit.training.settings import FineTuning
from makers import copy_weights, tiny_config, write_classes

NAMES = ("blue", "green", "red")
IMAGES = np.random.default_rng(0).uniform(-1, 1, (12, 8, 8, 3)).astype("float32")
PIXELS = list(np.random.default_rng(1).integers(0, 256, (12, 8, 8, 3), "uint8"))


def answers(model):
    return keras.ops.convert_to_numpy(model(IMAGES, training=False))


@pytest.fixture(scope="module")
def plain():
    keras.utils.set_random_seed(0)
    model = keras_vit.build(tiny_config(), classes=3, input_shape=(8, 8, 3))
    kernel = model.get_layer("predictions").kernel
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
    return model


@pytest.fixture(scope="module")
def calibrated(plain):
    """A model that answers some of the images, and for which others are strange."""
    rng = np.random.default_rng(0)
    arrays = {"center": rng.normal(size=16), "factor": rng.normal(size=(16, 16)) / 16}
    return with_unknown(plain, 1.5, 0.4, 2.5, arrays)


@pytest.fixture(scope="module")
def folder(calibrated, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifiers") / "colors"
    save_classifier(folder, calibrated, NAMES, Preprocessing((8, 8)))
    return folder


def test_without_unknown_gives_the_probabilities_of_before_to_the_bit(plain, calibrated):
    assert {3} < set(answers(calibrated).argmax(axis=1))
    for model in (without_unknown(calibrated), inference_model(calibrated)):
        np.testing.assert_array_equal(answers(model), answers(plain))
        assert not abstains(model)
    assert without_unknown(plain) is plain
    assert abstains(calibrated)


def test_a_calibrated_model_is_described_as_the_model_within_it(plain, calibrated):
    described = keras_vit.describe(calibrated)
    assert described.labels.abstains
    assert dataclasses.replace(described, labels=Labels()) == keras_vit.describe(plain)
    assert (described.classes, described.parameters) == (3, plain.count_params())


def test_weights_of_a_calibrated_model_are_those_of_the_model_within_it(
    plain, calibrated, tmp_path
):
    target = keras_vit.build(tiny_config(), classes=3, input_shape=(8, 8, 3))
    copy_weights(calibrated, target)
    np.testing.assert_array_equal(answers(target), answers(plain))
    for name, model in (("ours", calibrated), ("plain", plain)):
        keras_vit.save_checkpoint(model, tmp_path / f"{name}.npz")
    ours, expected = (np.load(tmp_path / f"{name}.npz") for name in ("ours", "plain"))
    assert set(ours) == set(expected)
    calibrated.save_weights(tmp_path / "all.weights.h5")
    report = keras_vit.load_checkpoint(target, tmp_path / "all.weights.h5")
    assert 'the class "unknown" was left out' in report.notes


def test_a_folder_says_that_its_model_abstains(calibrated, folder):
    loaded = open_predictor(folder)
    assert loaded.class_names == NAMES
    assert loaded.description.labels.abstains
    assert loaded.description.classes == 3
    assert (folder / "classes.txt").read_text().split() == [*NAMES, "unknown"]
    np.testing.assert_array_equal(answers(loaded.model), answers(calibrated))


def test_a_loaded_classifier_gives_the_same_answers_when_it_is_saved_again(folder, tmp_path):
    loaded = open_predictor(folder)
    again = save_classifier(
        tmp_path / "again", loaded.model, loaded.class_names, loaded.preprocessing
    )
    assert open_predictor(tmp_path / "again").predict(PIXELS) == again.predict(PIXELS)
    assert loaded.predict(PIXELS) == again.predict(PIXELS)
    if keras.backend.backend() != "torch":  # Where other weights are drawn.
        assert {"unknown"} < {prediction.label for prediction in again.predict(PIXELS)}


def test_answers_are_recognised_by_the_layer_and_not_by_the_name(plain, tmp_path):
    names = ("blue", "green", "unknown")
    found = save_classifier(tmp_path / "plain", plain, names, Preprocessing((8, 8)))
    assert not open_predictor(tmp_path / "plain").description.labels.abstains
    assert {prediction.may_be_unknown for prediction in found.predict(PIXELS)} == {False}
    with pytest.raises(ValueError, match="differ .*'unknown'"):
        save_classifier(
            tmp_path / "twice", with_unknown(plain, 1.0, 0.5), names, Preprocessing((8, 8))
        )


def test_the_model_of_an_opened_folder_is_plain_and_its_classifier_is_not(plain, folder, tmp_path):
    (tmp_path / "alone.keras").write_bytes((folder / "model.keras").read_bytes())
    for path in (folder, tmp_path / "alone.keras"):
        opened = open_model(path)
        np.testing.assert_array_equal(answers(opened.model()), answers(plain))
        assert opened.class_names == NAMES
        assert opened.classifier().predict(PIXELS) == open_predictor(folder).predict(PIXELS)
    built = keras_vit.build(tiny_config(), weights=folder, classes=3, input_shape=(8, 8, 3))
    np.testing.assert_array_equal(answers(built), answers(plain))
    assert not Description.of_model(built).labels.abstains


def test_names_without_the_fact_do_not_fit_the_model(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / "description.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "labels": {"names": [*NAMES, "unknown"]}}))
    with pytest.raises(ValueError, match="belong together.*differ"):
        open_predictor(tmp_path / "copy")


@pytest.mark.parametrize("change", [{"image_size": (12, 8)}, {"normalization": "imagenet"}])
def test_a_changed_model_has_no_bound(folder, change):
    if "normalization" in change:
        classifier = open_model(folder, **change).classifier()
    else:
        classifier = open_model(folder).classifier(**change)
    assert classifier.model.output_shape == (None, 3)
    assert not classifier.description.labels.abstains
    assert {prediction.may_be_unknown for prediction in classifier.predict(PIXELS)} == {False}


def test_a_teacher_gives_the_classes_alone(plain, folder):
    teacher = open_teacher(folder, NAMES[:2])
    logits = keras.ops.convert_to_numpy(teacher.build(Preprocessing((8, 8)))(IMAGES))
    np.testing.assert_allclose(logits, np.log(answers(plain))[:, :2], atol=1e-5)  # float32


@pytest.mark.of_tensorflow
@pytest.mark.parametrize("head", ["keep", "extend"])
def test_training_goes_on_from_the_model_within(plain, folder, head, tmp_path):
    names = dict.fromkeys(NAMES if head == "keep" else (*NAMES, "white"))
    colors = {name: 40 * number for number, name in enumerate(names)}
    data = write_classes(tmp_path / "data", {"train": 4, "test": 2}, colors, size=(8, 8))
    settings = FineTuning(
        weights=str(folder), head=head, steps=1, batch_size=4, accumulate=1,
        learning_rate=1e-9, validation=0, evaluation="resize",
    )  # fmt: skip
    lines: list[str] = []
    finished = finetune(DataSpec(data), tmp_path / "run", settings, log=lines.append)
    classifier = finished.classifier
    assert "dropped (its bound was found for the weights before this run" in lines[0]
    assert classifier.class_names == tuple(names)
    assert not classifier.description.labels.abstains
    logits = (np.log(answers(model))[:, :3] for model in (classifier.model, plain))
    ours, before = (rows - rows.mean(axis=1, keepdims=True) for rows in logits)
    np.testing.assert_allclose(ours, before, atol=1e-4)  # One step of nearly nothing.


@pytest.mark.parametrize("to", ["official", "huggingface", "classifier"])
def test_a_conversion_leaves_unknown_out_and_says_so(plain, folder, to, tmp_path):
    target = tmp_path / ("x.npz" if to == "official" else "x")
    notes = keras_vit.export.convert(folder, target, to=to)
    assert sum('"unknown" is left out' in note for note in notes) == 1
    opened = open_model(target, image_size=(8, 8), num_heads=None, normalization="half")
    model = opened.model((8, 8))
    np.testing.assert_allclose(answers(model), answers(plain), atol=1e-6)  # float32
    assert not opened.description.labels.abstains
