import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.utils.quiet_tensorflow import JAX, UNUSED, without_unused_packages
from makers import encode


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_wrong_input_is_one_line_though_tensorflow_was_loaded(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(b"")
    code = (
        "import sys\n"
        "from keras_vit.command_line import main\n"
        f"code = main(['finetune', '--data', {str(tmp_path)!r}, '--output', 'x'])\n"
        "assert 'tensorflow' in sys.modules\n"
        "sys.exit(code)\n"
    )
    done = run(code)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("keras-vit: There must be images")


COMMANDS = {
    "finetune": ["finetune", "--output", "x", "--data"],
    "pretrain": ["pretrain", "--output", "x", "--data"],
    "sweep": ["sweep", "--output", "x", "--data"],
    "records": ["records", "--output", "x", "--data"],
    "few-shot": ["few-shot", "cifar10", "--data"],
    "evaluate": ["evaluate", "cifar10", "--data"],
    "calibrate": ["calibrate", "cifar10", "--max-error", "0.1", "--data"],
    "compare": ["compare", "cifar10", "cifar10", "--data"],
    "check": ["check"],
}


def errors_of(commands, folder):
    """The line of each wrong command, run in a folder by one process without TensorFlow."""
    code = (
        "import os, sys\n"
        "from keras_vit.command_line import main\n"
        f"os.chdir({str(folder)!r})\n"
        f"for words in {[*commands.values()]!r}:\n"
        "    assert main(words) == 2\n"
        "assert not {'tensorflow', 'keras', 'torch'} & sys.modules.keys()\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    return dict(zip(commands, done.stderr.splitlines(), strict=True))


@pytest.fixture(scope="module")
def errors_without_tensorflow(tmp_path_factory):
    """The error of each command for a table without a header, in a process without TensorFlow."""
    table = tmp_path_factory.mktemp("tables") / "labels.csv"
    table.write_text("cat.jpg,cat\n")
    return errors_of({name: [*words, str(table)] for name, words in COMMANDS.items()}, table.parent)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_is_read_before_tensorflow_is_started(errors_without_tensorflow, command):
    assert "name the columns" in errors_without_tensorflow[command]


WRONG = {
    "one class": (["finetune", "one", "--output", "x"], "at least two classes"),
    "one class to check": (["check", "one"], "at least two classes"),
    "nothing to evaluate": (["evaluate", "cifar10", "empty"], "There must be images"),
    "nothing to calibrate": (["calibrate", "cifar10", "empty"], "There must be images"),
    "no image": (["predict", "cifar10", "none.jpg"], "existing file or folder"),
    "no image to embed": (["embed", "cifar10", "none.jpg", "--output", "x.npz"], "existing file"),
    "no image to inspect": (["inspect", "cifar10", "none.jpg", "--output", "x"], "existing file"),
    "no classifier": (["predict", "runs/none", "one"], "No such folder or file: runs/none"),
    "a slip": (["predict", "imagnet", "one"], "No such folder or file: imagnet. Nearest: imagenet"),
    "another name": (["predict", "imagenet1k", "one"], "imagenet1k is called imagenet here. "),
    "no new classifier": (
        ["compare", "cifar10", "none/x", "one"],
        "No such folder or file: none/x",
    ),
    "no weights": (["finetune", "two", "--weights", "none/x", "--output", "x"], "file: none/x"),
    "no teacher": (["sweep", "two", "--teacher", "none/x", "--output", "x"], "file: none/x"),
    "weights as data": (["evaluate", "one", "cifar10"], "keras-vit evaluate cifar10 PHOTOS"),
    "weights as photos": (["finetune", "cifar10", "--output", "x"], "PHOTOS --weights cifar10"),
    "no features": (["few-shot", "none/x", "two"], "No such folder or file: none/x"),
}


@pytest.fixture(scope="module")
def errors_of_wrong_input(tmp_path_factory):
    """The error of each command of `WRONG`, in a process without TensorFlow."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("empty", "one/cat", "two/cat", "two/dog"):
        (folder / name).mkdir(parents=True)
    for name in ("one/cat", "two/cat", "two/dog"):
        (folder / name / "0.jpg").write_bytes(b"")
    return errors_of({name: words for name, (words, _) in WRONG.items()}, folder)


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_before_tensorflow_is_started(errors_of_wrong_input, case):
    assert WRONG[case][1] in errors_of_wrong_input[case]


@pytest.mark.parametrize(
    ("text", "words", "match"),
    [
        ("path,breed\nx.jpg,cat\n", ["--label-column", "race"], "must have the columns path,race"),
        ("path,label\nx.jpg,cat\n", [], "no such file"),
        (None, [], "there is no such folder or file"),
    ],
)
def test_columns_and_files_are_looked_at_before_tensorflow_is_started(tmp_path, text, words, match):
    table = tmp_path / "labels.csv"
    if text is not None:
        table.write_text(text)
    words = ["finetune", "--output", "x", "--data", str(table), *words]
    done = run(
        "import sys\n"
        "from keras_vit.command_line import main\n"
        f"assert main({words!r}) == 2\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    assert done.returncode == 0, done.stderr
    assert match in done.stderr


def folders_of(*names):
    return [f"{name}/{label}" for name in names for label in ("cat", "dog")]


FOLDERS = {
    "a folder around the data": (folders_of("archive/pets"), "--data {data}/archive/pets reads"),
    "parts of other names": (folders_of("Training", "Testing"), "--folders parts reads these"),
    "a part of another name": (folders_of("Test", "more"), "--folders parts reads these"),
    "a folder beside the parts": (folders_of("train", "extra"), "no other folder: extra must be"),
    "two names of one part": (folders_of("train", "val", "valid"), "which are both validation"),
    "classes at two depths": (folders_of("north", "south"), "give --folders classes; if they are"),
    "photos without folders": (["."], "--label-by REGEX reads classes"),
}


@pytest.fixture(scope="module")
def errors_of_folders(tmp_path_factory):
    """The error of `finetune` for each of `FOLDERS`, in one process without TensorFlow."""
    root = tmp_path_factory.mktemp("folders")
    places = [root / str(number) for number in range(len(FOLDERS))]
    for place, (folders, _) in zip(places, FOLDERS.values(), strict=True):
        for folder in folders:
            (place / folder).mkdir(parents=True, exist_ok=True)
            (place / folder / "0.png").write_bytes(b"")
    code = (
        "import sys\n"
        "from keras_vit.command_line import main\n"
        f"for data in {[*map(str, places)]!r}:\n"
        "    assert main(['finetune', '--output', 'x', '--data', data]) == 2\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    lines = zip(places, done.stderr.splitlines(), strict=True)
    return dict(zip(FOLDERS, lines, strict=True))


@pytest.mark.parametrize("kind", FOLDERS)
def test_folders_are_looked_at_before_tensorflow_is_started(errors_of_folders, kind):
    data, line = errors_of_folders[kind]
    assert FOLDERS[kind][1].format(data=data) in line


def test_what_tensorflow_prints_is_seen_only_if_it_cannot_be_imported(tmp_path):
    fake = tmp_path / "tensorflow.py"
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly as quietly\n"
        "quietly()\n"
    )
    greets = "import os\nos.write(2, b'I0000 oneDNN custom operations are on.')\n"
    fake.write_text(greets)
    assert run(code).stderr == ""
    fake.write_text(f"{greets}raise ImportError('no such library')\n")
    printed = run(code).stderr
    assert "oneDNN" in printed
    assert "ImportError: no such library" in printed


def test_a_command_imports_no_package_that_only_keras_has_a_use_for(tmp_path):
    photo = tmp_path / "photo.png"
    photo.write_bytes(encode(np.zeros((8, 8, 3), "uint8")))
    code = (
        "import sys\n"
        "from keras_vit.command_line import main\n"
        "from keras_vit.utils.quiet_tensorflow import JAX, UNUSED\n"
        f"assert main(['predict', 'cifar10', {str(photo)!r}]) == 0\n"
        "assert 'keras' in sys.modules\n"
        "imported = set(sys.modules).intersection([*UNUSED, JAX])\n"
        "assert not imported, imported\n"
        "import jax.numpy, matplotlib.figure, sklearn\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_keras_still_imports_packages_that_it_may_not_need():
    code = (
        "import keras, sys\n"
        "from keras_vit.utils.quiet_tensorflow import JAX, UNUSED\n"
        "print(*sorted(set(sys.modules).intersection([*UNUSED, JAX])))\n"
    )
    installed = [name for name in sorted([*UNUSED, JAX]) if importlib.util.find_spec(name)]
    assert installed
    assert run(code).stdout.split() == installed  # Else one can leave `UNUSED`.


@pytest.mark.parametrize(
    ("variables", "text", "is_hidden"),
    [
        ({}, None, True),
        ({}, '{"backend": "tensorflow"}', True),
        ({}, '{"backend": "jax"}', False),
        ({"KERAS_BACKEND": "torch"}, '{"backend": "jax"}', True),
        ({"KERAS_BACKEND": "jax"}, None, False),
    ],
)
def test_jax_is_hidden_unless_keras_runs_on_it(tmp_path, monkeypatch, variables, text, is_hidden):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, JAX, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if text is not None:
        (tmp_path / "keras.json").write_text(text)
    with without_unused_packages():
        assert (JAX in sys.modules) == is_hidden
    assert JAX not in sys.modules


def test_nothing_is_collected_while_tensorflow_is_imported_and_what_was_imported_stays():
    code = (
        "import gc, sys\n"
        "from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly\n"
        "before = gc.get_stats()[2]['collections']\n"
        "import_tensorflow_quietly()\n"
        "assert gc.get_stats()[2]['collections'] == before\n"
        "assert gc.isenabled()\n"
        "frozen = gc.get_freeze_count()\n"
        "assert frozen > 10**5\n"
        "garbage = []; garbage.append(garbage); del garbage\n"
        "import_tensorflow_quietly()\n"
        "assert gc.get_freeze_count() == frozen\n"  # Else garbage of a long process would stay.
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
