import inspect
import re
import shlex
import subprocess
import sys

import pytest

from keras_vit import command_line
from keras_vit.command_line import COMMANDS, command_type
from keras_vit.utils.fields import flag_of, flat_fields


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
def test_the_help_has_its_options_in_groups_that_can_be_read(command, name):
    flag = "--help-all" if command_type(name).common_flags else "--help"
    groups = re.split(r"(?m)^\S.*:$", command(name, flag).out)
    assert max(len(re.findall(r"(?m)^  -", group)) for group in groups) <= 20


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_listed_and_an_unknown_argument_is_an_error_of_one_line(command, name):
    summary = COMMANDS[name]
    assert inspect.getdoc(command_type(name)).partition("\n\n")[0] == summary
    (line,) = re.findall(rf"^    {name}\s+(.*)", command("--help").out, re.MULTILINE)
    assert command(name, "--help").out.count(line) == 1
    outcome = command(name, "--no-such-argument")
    assert outcome.code == 2
    assert outcome.err.startswith(f"keras-vit {name}: ")
    assert outcome.err.endswith(" --help\n")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("finetune --output o --img-size 8", "--img-size is called --image-size here"),
        ("finetune --output o --batchsize 8", "--batchsize, the nearest: --batch-size"),
        (
            "finetune --output o --zz 0 --stepz 3",
            "unrecognized arguments: --zz; --stepz, the nearest: --steps",
        ),
        ("finetune photos --data others --output o", "unrecognized argument: photos"),
        (
            "finetune photos --output-dir o --steps 3",
            "required: --output; unrecognized argument: --output-dir is called --output here",
        ),
        (
            "export runs/pets --format tflite --output=o",
            "required: --to; unrecognized argument: --format is called --to here",
        ),
        (
            "finetune photos --lr 1e-4 -b 32 --output o",
            "arguments: --lr is called --learning-rate here; -b is called --batch-size here",
        ),
        (
            "finetune photos --optimizer adamw -b 32 --output o",
            "'muon'); adamw: here adam, whose weight_decay is decoupled, of kernels alone; "
            "unrecognized argument: -b is called --batch-size here",
        ),
        ("models --image-size 224,224", "for height x width. Received: 224,224"),
        ("finetun", "no such command: 'finetun'. Nearest: finetune"),
        ("zzz", "inspect, export, verify, convert, push"),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest(command, words, message):
    outcome = command(*words.split())
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"{message}. See keras-vit" in outcome.err


@pytest.mark.parametrize(
    "words",
    [
        "finetune photos --output out",
        "finetune --output out --steps 3 photos",
        "evaluate model photos",
        "compare old new photos",
    ],
)
def test_the_data_may_be_given_without_their_flag(command, words, monkeypatch):
    called = []
    run = lambda name, arguments: called.append(arguments) or 0  # noqa: E731
    monkeypatch.setattr(command_line, "run_command", run)
    outcome = command(*words.split())
    assert outcome.code == 0, outcome.err
    assert (called[0].data, "data" in called[0].given) == ("photos", True)


def test_without_arguments_the_help_is_shown_with_commands_to_begin_with(command, monkeypatch):
    outcome = command()
    assert outcome.code == 0
    lines = [line for line in outcome.out.splitlines() if line.startswith("  keras-vit ")]
    calls = [line.partition("  (")[0] for line in map(str.strip, lines)]
    assert len(calls) == 3
    monkeypatch.setattr(command_line, "run_command", lambda name, arguments: 0)
    for call in calls:
        _, *words = shlex.split(call)
        assert command(*words).code == 0, call


def test_a_reader_that_has_seen_enough_is_no_error():
    code = "import sys; from keras_vit.command_line import main; sys.exit(main(['models']))"
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.close()  # Before anything is printed.
    assert running.stderr.read() == b""
    assert running.wait() == 141


def test_the_help_of_finetune_has_the_fifteen_flags_that_people_use(command):
    flags = re.findall(r"(?m)^  (--[a-z-]+)", command("finetune", "--help").out)
    flags = [flag for flag in flags if flag not in ("--traceback", "--help-all")]
    assert sorted(flags) == sorted(command_type("finetune").common_flags)
    assert len(flags) == 15


def test_help_all_has_every_flag_of_finetune(command):
    text = command("finetune", "--help-all").out
    fields = [field for field, *_ in flat_fields(command_type("finetune"))]
    assert {flag_of(field) for field in fields} <= {*re.findall(r"--[a-z0-9-]+", text)}
