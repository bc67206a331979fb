import inspect
import re
import shlex
import subprocess
import sys

import pytest

from keras_vit import command_line, list_weights
from keras_vit.command_line import COMMANDS, command_type


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
    _, summary = COMMANDS[name]
    assert inspect.getdoc(command_type(name)).partition("\n\n")[0] == summary
    (line,) = re.findall(rf"^    {name}\s+(.*)", command("--help").out, re.MULTILINE)
    assert command(name, "--help").out.count(line) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_argument_is_an_error_of_one_line(command, name):
    outcome = command(name, "--no-such-argument")
    assert outcome.code == 2
    assert outcome.err.startswith(f"keras-vit {name}: ") or outcome.err.startswith("keras-vit: ")
    assert outcome.err.endswith(" --help\n")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("finetune --lr", "--learning-rate"),
        ("finetune --lr=0.1", "--learning-rate"),
        ("finetune --base-lr", "--learning-rate"),
        ("finetune --wd", "--weight-decay"),
        ("finetune --num_train_epochs", "--epochs"),
        ("finetune --max-steps", "--steps"),
        ("finetune --bs", "--batch-size"),
        ("finetune --per_device_train_batch_size", "--batch-size"),
        ("finetune --gradient_accumulation_steps", "--accumulate"),
        ("finetune --clip-grad", "--clip-norm"),
        ("finetune --drop-path", "--stochastic-depth"),
        ("finetune --drop-rate", "--dropout"),
        ("finetune --img-size", "--image-size"),
        ("finetune --pretrained", "--weights"),
        ("finetune --arch", "--model"),
        ("finetune --sched", "--decay"),
        ("finetune --amp", "--precision"),
        ("finetune --smoothing", "--label-smoothing"),
        ("finetune --model-ema", "--averaging"),
        ("finetune --val-split", "--validation"),
        ("finetune --freeze-backbone", "--train"),
        ("finetune --random-seed", "--seed"),
        ("finetune --early-stopping", "--patience"),
        ("pretrain --num-epochs", "--epochs"),
    ],
)
def test_a_flag_of_another_library_is_answered_with_ours(command, words, answer):
    name, flag = words.split()
    outcome = command(name, "photos", "--output", "out", flag)
    assert outcome.code == 2
    assert outcome.err == (
        f"keras-vit {name}: unrecognized argument: {flag.partition('=')[0]}, here it is {answer}. "
        f"See keras-vit {name} --help\n"
    )


def test_every_unknown_flag_names_the_nearest(command):
    outcome = command("finetune", "--output", "out", "--batchsize", "8", "--stepz", "3")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "--batchsize, the nearest: --batch-size; unrecognized argument: --stepz" in outcome.err
    assert "--stepz, the nearest: --steps" in outcome.err
    assert outcome.err.endswith(". See keras-vit finetune --help\n")


@pytest.mark.parametrize(
    "words",
    [
        "finetune photos --output out",
        "finetune --output out --steps 3 photos",
        "pretrain photos --output out",
        "sweep photos --output out",
        "records photos --output out",
        "evaluate model photos",
        "calibrate model photos --max-error 0.1",
        "compare old new photos",
        "few-shot model photos",
    ],
)
def test_the_data_may_be_given_without_their_flag(command, words, monkeypatch):
    called = []
    run = lambda name, arguments: called.append(arguments) or 0  # noqa: E731
    monkeypatch.setattr(command_line, "run_command", run)
    outcome = command(*words.split())
    assert outcome.code == 0, outcome.err
    assert (called[0].data, "data" in called[0].given) == ("photos", True)


def test_data_are_given_once(command):
    outcome = command("finetune", "photos", "--data", "others", "--output", "out")
    assert outcome.code == 2
    assert "unrecognized argument: photos. See keras-vit finetune --help" in outcome.err


@pytest.mark.parametrize(
    ("word", "answer"), [("train", "finetune"), ("fit", "finetune"), ("eval", "evaluate")]
)
def test_a_command_of_another_library_is_answered_with_ours(command, word, answer):
    outcome = command(word, "photos")
    assert outcome.err == (
        f"keras-vit: no such command: {word!r}. It is {answer} here. See keras-vit --help\n"
    )


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


def test_a_reader_that_has_seen_enough_is_no_error():
    code = "import sys; from keras_vit.command_line import main; sys.exit(main(['models']))"
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.close()  # Before anything is printed.
    assert running.stderr.read() == b""
    assert running.wait() == 141
