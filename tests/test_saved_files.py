"""Files in tests/golden/saved_files.zip, as this version writes them; see golden/README.md."""

import importlib.util
import pathlib
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.configs.recognition import config_of

TESTS = pathlib.Path(__file__).parent
_spec = importlib.util.spec_from_file_location(
    "write_saved_files", TESTS / "programs" / "write_saved_files.py"
)
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)


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
    classifier = keras_vit.load_classifier(saved / "pets")
    assert classifier.class_names == ("cat", "dog", "sea")
    assert classifier.preprocessing.value_range == (0, 1)
    check_outputs(classifier.model, "plain", expected)
