"""The hook that registers layers, optimizers and the trainer; and files that need them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from xla_flags import FAST_COMPILATION

# A module of one line is in Keras's place.
PROGRAM = """
import importlib.util, sys, types
from keras_vit import _installation

sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != _installation.__name__]
before = list(sys.meta_path)
expected = importlib.util.find_spec("keras").loader
_installation.when_imported(("keras",), "layers")
importlib.util.find_spec("keras")  # As TensorFlow does, which loads it later.
assert "layers" not in sys.modules
import keras
assert "layers" in sys.modules
assert sys.meta_path == before
assert keras.__loader__ is keras.__spec__.loader
assert type(keras.__loader__) is type(expected)
assert vars(keras.__loader__) == vars(expected)
"""


def test_nothing_of_the_hook_stays_once_keras_is_imported(tmp_path):
    (tmp_path / "keras.py").write_text("loaded = True\n")
    (tmp_path / "layers.py").write_text("from keras import loaded\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_keras_is_pythons_own_error(tmp_path):
    code = (
        "import sys\n"
        "from keras_vit._installation import when_imported\n"
        "sys.path[:] = [p for p in sys.path if 'packages' not in p]\n"
        "when_imported(('keras',), 'layers')\n"
        "import keras\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert "ModuleNotFoundError: No module named 'keras'" in done.stderr


FIRST = (
    "keras_vit.keras_private",
    "keras_vit.layers.base_layers",
    "keras_vit.training.trainer.losses",
    "keras_vit.description.description",
    "keras_vit.opening",
)


@pytest.mark.parametrize("module", FIRST)
def test_the_trainer_is_registered_whichever_module_is_the_first_to_import_keras(module):
    code = (
        f"import sys, {module}, keras\n"
        "assert keras.saving.get_registered_object('keras_vit>Trainer')\n"
        "assert not any(type(f).__module__ == 'keras_vit._installation' for f in sys.meta_path)\n"
    )
    environment = {**os.environ, "KERAS_BACKEND": "jax"}  # It starts sooner.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]


TRAINED = pathlib.Path(__file__).parent / "programs" / "open_saved_training.py"


def run_on(backend, *arguments):
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_FLAGS": FAST_COMPILATION,
    }
    done = subprocess.run(
        [sys.executable, str(TRAINED), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with compiled models, and a trainer, as TensorFlow wrote them."""
    folder = tmp_path_factory.mktemp("trained")
    run_on("tensorflow", "write", folder)
    return folder


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_compiled_models_are_opened_after_the_import_of_the_package_alone(backend, trained):
    pytest.importorskip(backend)
    opened = json.loads(run_on(backend, "open", trained).splitlines()[-1])
    assert opened.pop("difference") < 1e-5  # float32, one block.
    assert opened == {
        "sgd": ["Functional", "SGD", "SoftmaxCrossentropy", 1],
        "adam": ["Trainer", "Adam", "SigmoidCrossentropy", 1],
        "muon": ["Functional", "Muon", "SoftmaxCrossentropy", 1],
        "tensorflow": backend == "tensorflow",
    }
