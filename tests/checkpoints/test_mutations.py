"""Two hundred damaged or hostile files of each kind: one clear error each, or a correct load."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.keras_archive import read_model

PROGRAM = pathlib.Path(__file__).parent / "programs" / "damaged_files.py"
COUNT = 200


@pytest.fixture
def outcomes(tmp_path):
    """Returns a function from a good file to what became of its mutations."""

    def run(file, python=sys.executable):
        folder = tmp_path / "folder"
        folder.mkdir()
        shutil.copy(file, folder)
        # Modules are found as in this process; the repository's root is no place for them.
        package = pathlib.Path(keras_vit.__file__).resolve().parent.parent
        path = {} if python == sys.executable else {"PYTHONPATH": str(package)}
        done = subprocess.run(
            [python, "-P", PROGRAM, file.name, str(COUNT)],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **path},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        # Nothing lies anywhere but the file itself.
        assert [entry.name for entry in folder.iterdir()] == [file.name]
        assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == ["folder"]
        assert (folder / file.name).read_bytes() == file.read_bytes()
        result = json.loads(done.stdout.splitlines()[-1])
        assert result.get("refused", 0) + result.get("read", 0) == COUNT
        assert "other shapes" not in result
        assert result["seconds"] < 10
        assert result["bytes"] < 2**31
        assert result["message"] < 5000
        return result

    return run


@pytest.mark.parametrize(
    "file",
    [pytest.param(name, marks=pytest.mark.slow) for name in ("keras_2.h5", "keras_3.weights.h5")],
)
def test_hdf5_files_of_keras(file, golden, outcomes):
    # HDF5 has no checksums: a bit among the values is another value.
    assert outcomes(golden("vit_keras").folder / file)["refused"] > 40


@pytest.mark.slow
def test_keras_files_of_keras_hub(golden, outcomes):
    assert outcomes(golden("keras_hub").folder / "classifier.keras")["refused"] > 150


@pytest.mark.slow  # It starts TensorFlow with a limited memory: 15 seconds.
def test_keras_files_of_classifiers(tmp_path, model_of, outcomes):
    path = tmp_path / "model.keras"
    model_of("vit_gap").save(path)
    assert outcomes(path)["refused"] > 150


def test_a_classifier_with_weights_that_are_no_numbers_is_refused(tmp_path, model_of):
    model = model_of("vit_gap")
    gamma = model.get_layer("encoder_norm").gamma
    gamma.assign(np.full(gamma.shape, np.nan, "float32"))
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="finite numbers.*encoder_norm/gamma"):
        read_model(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="finite numbers.*encoder_norm/gamma"):
        keras_vit.load_checkpoint(model_of("vit_gap"), tmp_path / "model.weights.h5")


def test_a_group_that_holds_itself_is_refused(golden, tmp_path):
    shutil.copy(golden("vit_keras").folder / "keras_3.weights.h5", tmp_path / "a.weights.h5")
    with h5py.File(tmp_path / "a.weights.h5", "a") as file:
        file["layers/dense/again"] = file["layers"]
    with pytest.raises(ValueError, match="every group and array once"):
        open_checkpoint(tmp_path / "a.weights.h5")


def test_groups_that_are_nested_too_deeply_are_refused(golden, tmp_path):
    shutil.copy(golden("vit_keras").folder / "keras_3.weights.h5", tmp_path / "a.weights.h5")
    with h5py.File(tmp_path / "a.weights.h5", "a") as file:
        file.create_group("layers" + "/again" * 40)
    with pytest.raises(ValueError, match="no deeper than 32"):
        open_checkpoint(tmp_path / "a.weights.h5")
