"""A tiny classifier, tiny images, and a way to call a command as the shell does."""

import collections
import contextlib
import io

import numpy as np
import pytest

from makers import COLORS, tiny_config, write_classes

Outcome = collections.namedtuple("Outcome", "code out err")


@pytest.fixture(scope="session")
def command():
    """Returns a function from arguments to exit code, standard output and standard error."""
    from keras_vit.command_line import main

    def call(*arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as stop:  # How argparse ends.
                code = stop.code
        return Outcome(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture(scope="session")
def refused(command):
    """Returns a function that calls a command and checks that it is refused in one line."""

    def call(*arguments):
        outcome = command(*arguments)
        assert outcome.code == 2, outcome
        assert "Traceback" not in outcome.err
        lines = [line for line in outcome.err.splitlines() if line.startswith("keras-vit: ")]
        assert len(lines) == 1, outcome.err
        return lines[0]

    return call


@pytest.fixture(scope="session")
def colors(tmp_path_factory):
    """Pictures of three colours, `{train,test}/COLOR/*.png`: four and two of each."""
    return write_classes(tmp_path_factory.mktemp("data") / "colors", {"train": 4, "test": 2})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of a classifier of the three colours, with random weights."""
    import keras

    import keras_vit
    from keras_vit.classifier_folder import save_classifier
    from keras_vit.preprocessing import Preprocessing

    keras.utils.set_random_seed(0)
    folder = tmp_path_factory.mktemp("classifiers") / "tiny"
    config = tiny_config()
    model = keras_vit.build(config, input_shape=(8, 8, 3), classes=3)
    model.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    save_classifier(folder, model, tuple(COLORS), Preprocessing((8, 8)))
    return folder
