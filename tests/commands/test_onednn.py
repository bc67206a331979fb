"""oneDNN: a command turns it on where TensorFlow leaves it off, and a run goes on as it began."""

import json
import os
import platform
import subprocess
import sys

import pytest

from keras_vit.utils.quiet_tensorflow import ONEDNN_VARIABLE as VARIABLE
from makers import write_classes

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="Linux on x86-64"
)

BEFORE = """
import json, os, pathlib, sys
from keras_vit.command_line import main
from keras_vit.utils import quiet_tensorflow
from keras_vit.utils.quiet_tensorflow import ONEDNN_VARIABLE as VARIABLE

def chosen(flags, output=None, given=None):
    os.environ.pop(VARIABLE, None)
    if given is not None:
        os.environ[VARIABLE] = given
    quiet_tensorflow.PROCESSOR = pathlib.Path("cpuinfo")
    quiet_tensorflow.PROCESSOR.write_text(f"processor : 0\\nflags\\t\\t: fpu {flags} ht\\n")
    quiet_tensorflow.choose_onednn(output)
    return os.environ.get(VARIABLE)
"""


def run(code, folder):
    """Returns what a program prints in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CHOICES = {
    "avx2 alone": ("'avx avx2 fma'", "1"),
    "avx512 alone": ("'avx avx2 avx512f'", "1"),
    "avx512 with vnni": ("'avx avx2 avx512f avx512_vnni'", None),
    "avx vnni": ("'avx avx2 avx_vnni'", None),
    "neither": ("'avx'", None),
    "the user's 0": ("'avx avx2', given='0'", "0"),
    "the user's 1": ("'avx', given='1'", "1"),
    "a run with it": ("'avx', 'with'", "1"),
    "a run without it": ("'avx avx2', 'without'", "0"),
    "an older run": ("'avx avx2', 'older'", None),
    "a sweep's run without it": ("'avx avx2', 'sweep'", "0"),
    "a new output": ("'avx avx2', 'new'", "1"),
    "the user's 1 for a run without it": ("'avx avx2', 'without', given='1'", "1"),
}

RUNS = {
    "with": {"oneDNN": "on"},
    "without": {"oneDNN": "off"},
    "older": {"numpy": "2.0"},
    "sweep/learning_rates/0.01": {"oneDNN": "off"},
}


@pytest.fixture(scope="module")
def choices(tmp_path_factory):
    """The variable after each of `CHOICES`, in a process without TensorFlow."""
    folder = tmp_path_factory.mktemp("choices")
    for name, versions in RUNS.items():
        states = folder / f"{name}.partial" / ".states"
        states.mkdir(parents=True)
        (states / "recipe.json").write_text(json.dumps({"versions": versions}))
    calls = ", ".join(f"chosen({arguments})" for arguments, _ in CHOICES.values())
    printed = run(f"print(json.dumps([{calls}]))", folder)
    return dict(zip(CHOICES, json.loads(printed), strict=True))


@pytest.mark.parametrize("case", CHOICES)
def test_the_variable_is_set_before_tensorflow_is_imported(choices, case):
    assert choices[case] == CHOICES[case][1]


def test_the_plan_says_that_the_command_turned_it_on(tmp_path):
    write_classes(tmp_path / "photos", 10)
    code = """
chosen("avx2")
os.environ.pop(VARIABLE)
arguments = "--data photos --weights cifar10 --output runs --steps 9 --dry-run"
assert main(["finetune", *arguments.split()]) == 0
from keras_vit.keras_private import has_onednn
assert has_onednn()
"""
    printed = run(code, tmp_path)
    (line,) = [line for line in printed.splitlines() if "oneDNN" in line]
    assert line.split()[1:3] == ["on", "(this"], printed


def test_the_state_is_what_tensorflow_does(tmp_path):
    code = """
os.environ[VARIABLE] = "0"
from keras_vit.keras_private import has_onednn
print(has_onednn())
"""
    assert run(code, tmp_path).splitlines()[-1] == "False"
