import subprocess
import sys

import pytest

from keras_vit.command_line import COMMANDS


def test_help_of_every_command_loads_neither_tensorflow_nor_keras():
    code = (
        "import contextlib, io, sys\n"
        "from keras_vit.command_line import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as said:\n"
        "        try:\n"
        "            main([name, '--help'])\n"
        "        except SystemExit as stop:\n"
        "            assert stop.code == 0, name\n"
        "    assert 'usage: keras-vit ' + name in said.getvalue(), name\n"
        "    for module in ('tensorflow', 'keras', 'numpy'):\n"
        "        assert module not in sys.modules, (name, module)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_argument_prints_the_usage(command, name):
    outcome = command(name, "--no-such-argument")
    assert outcome.code == 2
    assert "usage: keras-vit" in outcome.err
