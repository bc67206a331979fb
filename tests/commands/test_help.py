import re
import shlex
import subprocess
import sys

import pytest

from keras_vit import command_line, list_weights
from keras_vit.command_line import COMMANDS


def test_help_of_every_command_loads_neither_tensorflow_nor_keras():
    code = (
        "import contextlib, io, sys\n"
        "from keras_vit.command_line import COMMANDS, main\n"
        "for words in [[], *([name] for name in COMMANDS)]:\n"
        "    name = ' '.join(words)\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as printed:\n"
        "        try:\n"
        "            main([*words, '--help'])\n"
        "        except SystemExit as stop:\n"
        "            assert stop.code == 0, name\n"
        "    assert ' '.join(['usage: keras-vit', *words]) in printed.getvalue(), name\n"
        "    for module in ('tensorflow', 'keras', 'numpy'):\n"
        "        assert module not in sys.modules, (name, module)\n"
        "    if not words:  # The list needs none of the commands.\n"
        "        assert 'keras_vit.commands.finetune' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_listed_with_its_summary(command, name):
    (line,) = re.findall(rf"^    {name}\s+(.*)", command("--help").out, re.MULTILINE)
    assert command(name, "--help").out.count(line) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_argument_is_an_error_of_one_line(command, name):
    outcome = command(name, "--no-such-argument")
    assert outcome.code == 2
    assert outcome.err.startswith(f"keras-vit {name}: ") or outcome.err.startswith("keras-vit: ")
    assert outcome.err.endswith(" --help\n")
    assert outcome.err.count("\n") == 1


def test_an_unknown_command_names_the_nearest(command):
    outcome = command("finetun")
    assert outcome.code == 2
    assert outcome.err == (
        "keras-vit: no such command: 'finetun'. Nearest: finetune. See keras-vit --help\n"
    )


@pytest.fixture
def parsed(command, monkeypatch):
    """Returns a function from words to whether keras-vit accepts them; nothing is run."""
    monkeypatch.setattr(command_line, "run_command", lambda name, arguments: 0)

    def accepts(words):
        return command(*words).code == 0

    return accepts


def test_without_arguments_five_commands_are_shown_and_the_exit_code_is_0(command, parsed):
    outcome = command()
    assert outcome.code == 0
    assert "keras-vit --help" in outcome.out.splitlines()[-1]
    calls = [line.strip() for line in outcome.out.splitlines() if line.startswith("  ")]
    assert len(calls) == 5
    for call in calls:
        program, *words = shlex.split(call)
        if program == "python":
            (model,) = re.findall(r"build\('([^']+)', weights='imagenet'\)", words[1])
            assert "imagenet" in list_weights(model)
        else:
            assert parsed(words), call


def test_without_arguments_no_numpy_is_loaded():
    code = (
        "import sys\n"
        "from keras_vit.command_line import main\n"
        "assert main([]) == 0\n"
        "assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    code = "import sys; from keras_vit.command_line import main; sys.exit(main(['models']))"
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.close()  # Before anything is printed.
    assert running.stderr.read() == b""
    assert running.wait() == 141
