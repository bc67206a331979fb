"""Files in tests/golden/saved_files.zip, which earlier versions wrote; see golden/README.md."""

import hashlib
import importlib.util
import json
import pathlib
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.configs.recognition import config_of
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.opening import open_predictor
from keras_vit.training import FineTuning
from keras_vit.training.data.split_record import SplitRecord

PROGRAMS = pathlib.Path(__file__).parent / "programs"
# The archive stays as it is; later files are written beside it.
SHA256 = "feeb07d22797c9a3c549ab309e84430c50395e79546bef30236b93c5fe3bbb9b"


def _module(name):
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


program, training_program = _module("write_saved_files"), _module("write_saved_training")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with zipfile.ZipFile(program.ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def expected(saved):
    """What the models computed when they were saved, by their names."""
    with np.load(saved / "expected.npz") as arrays:
        return dict(arrays)


def test_the_archive_is_byte_for_byte_what_it_was():
    assert hashlib.sha256(program.ARCHIVE.read_bytes()).hexdigest() == SHA256


def check_outputs(model, name, expected):
    outputs = keras.ops.convert_to_numpy(
        model(program.inputs(program.MODELS[name][1]), training=False)
    )
    np.testing.assert_allclose(outputs, expected[name], atol=2e-5)  # Float32, other processors.


@pytest.mark.any_backend
@pytest.mark.parametrize("name", program.MODELS)
def test_a_saved_model_has_its_config_and_computes_what_it_computed(saved, expected, name):
    model = keras.saving.load_model(saved / f"{name}.keras")
    assert config_of(model) == program.MODELS[name][0]
    check_outputs(model, name, expected)


@pytest.mark.parametrize(
    ("file", "name"), [("axial_resnet.weights.h5", "axial_resnet"), ("plain.npz", "plain")]
)
def test_saved_weights_give_what_they_gave(saved, expected, file, name):
    config, size = program.MODELS[name]
    model = keras_vit.build(config, weights=saved / file, classes=3, input_shape=(*size, 3))
    check_outputs(model, name, expected)


def test_a_saved_classifier_has_its_names_and_preprocessing(saved, expected):
    classifier = open_predictor(saved / "pets")
    assert classifier.class_names == ("cat", "dog", "sea")
    assert classifier.preprocessing.value_range == (0, 1)
    check_outputs(classifier.model, "plain", expected)


@pytest.fixture(scope="module")
def trained(saved):
    """What trained models computed, and a state of their optimizer, by their names."""
    with np.load(saved / "training" / "expected.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", ["trainer", "sgd"])
def test_a_saved_trainer_goes_on_as_if_it_had_not_been_saved(saved, trained, name):
    trainer = keras.saving.load_model(saved / "training" / f"{name}.keras")
    assert trainer.optimizer.iterations == training_program.STEPS
    logits = training_program.logits
    np.testing.assert_allclose(logits(trainer), trained[name], atol=2e-5)
    training_program.train(trainer, training_program.STEPS, training_program.BATCHES[name])
    # Float32 after three steps, other processors.
    np.testing.assert_allclose(logits(trainer), trained[f"{name}_trained"], atol=1e-4)


def test_the_options_of_a_saved_trainer_are_kept(saved):
    trainer = keras.saving.load_model(saved / "training" / "trainer.keras")
    assert trainer.get_config()["seed"] == 3
    assert trainer.skip_nonfinite_steps == 1
    assert len(trainer.averages) == len(trainer.model.trainable_variables)
    assert trainer.optimizer.global_clipnorm == 1.0
    assert trainer.optimizer.get_config()["weight_decay"] == 0.1


def test_a_clipping_that_was_a_default_is_kept(saved):
    optimizer = keras.saving.load_model(saved / "training" / "sgd.keras").optimizer
    assert (optimizer.momentum, optimizer.global_clipnorm) == (0.8, 1.0)


def test_a_saved_model_has_the_state_of_its_optimizer(saved, trained):
    model = keras.saving.load_model(saved / "training" / "compiled.keras")
    outputs = keras.ops.convert_to_numpy(model(training_program.batches()[0][0], training=False))
    np.testing.assert_allclose(outputs, trained["compiled"], atol=2e-5)
    moments = keras.ops.convert_to_numpy(model.optimizer.variables[2])
    np.testing.assert_array_equal(moments, trained["compiled_moments"])
    assert moments.any()


@pytest.fixture(scope="module")
def run(saved):
    return saved / "training" / "run"


def test_the_classifier_of_a_run_predicts_what_it_predicted(saved, run, trained):
    photos = sorted((saved / "training" / "photos").rglob("*.png"))
    answers = [dict(answer.top) for answer in keras_vit.load_classifier(run).predict(photos)]
    rows = [[answer[name] for name in training_program.CLASSES] for answer in answers]
    np.testing.assert_allclose(rows, trained["run"], atol=2e-5)


def test_every_setting_of_a_run_is_read(run):
    recipe = RunRecord.from_json(json.loads((run / "recipe.json").read_text()))
    assert not recipe.others
    settings = FineTuning.from_json(recipe.settings)
    assert (settings.global_clipnorm, settings.accumulate, settings.ema_momentum) == (0.5, 1, 0.9)
    assert (settings.steps, settings.label_smoothing, settings.learning_rate) == (12, 0.1, 0.1)
    assert settings.model == config_of(keras_vit.load_classifier(run).model)
    assert recipe.facts["image_size"] == Fact([8, 8], "the settings")


def test_the_photos_of_a_run_are_known_by_their_content(saved, run):
    photos = [path.read_bytes() for path in (saved / "training" / "photos").rglob("*.png")]
    hashes = [hashlib.sha256(photo).digest()[:8] for photo in photos]
    numbers = np.array([int.from_bytes(digest, "little") for digest in hashes], "uint64")
    names, counts = np.unique(SplitRecord.read(run).part_of(numbers), return_counts=True)
    found = dict(zip(names, counts.tolist(), strict=True))
    assert found == {"train": 18, "validation": 6, "test": 6}
