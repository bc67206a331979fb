"""A way to call a command as the shell does."""

import collections
import contextlib
import io

import pytest

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
