"""The hook that registers the layers after Keras; a module of one line is in Keras's place."""

import subprocess
import sys

PROGRAM = """
import importlib.util, sys, types
from keras_vit import _installation

sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != _installation.__name__]
before = list(sys.meta_path)
expected = importlib.util.find_spec("keras").loader
_installation.when_keras_is_imported("layers")
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
        "from keras_vit._installation import when_keras_is_imported\n"
        "sys.path[:] = [p for p in sys.path if 'packages' not in p]\n"
        "when_keras_is_imported('layers')\n"
        "import keras\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert "ModuleNotFoundError: No module named 'keras'" in done.stderr
