"""The program examples/digits.py."""

import json
import os
import pathlib
import runpy
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.images.transcoding import read_image

load_digits = pytest.importorskip("sklearn.datasets").load_digits
PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "examples" / "digits.py"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "images"
    runpy.run_path(str(PROGRAM))["write_digits"](folder, seed=0)
    return folder


def test_every_digit_is_written_once_into_the_folder_of_its_class(images):
    digits, written = load_digits(), {int(path.stem): path for path in images.rglob("*.png")}
    assert sorted(written) == list(range(1797))
    assert all(path.parent.name == str(digits.target[n]) for n, path in written.items())
    expected = np.round(digits.images[100] * 255 / 16).astype("uint8")
    np.testing.assert_array_equal(read_image(written[100]), np.stack([expected] * 3, -1))


def test_a_third_of_each_digit_is_held_out(images):
    for held_out in images.glob("*/test/*"):
        count = len(list(held_out.iterdir()))
        trained_on = len(list((held_out.parents[1] / "train" / held_out.name).iterdir()))
        assert count == (count + trained_on) // 3


def test_an_output_that_exists_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    done = subprocess.run([sys.executable, PROGRAM, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "File exists" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def losses_and_accuracies(backend, *folders):
    """Returns what programs/digits_losses.py printed."""
    program = pathlib.Path(__file__).parent / "programs" / "digits_losses.py"
    done = subprocess.run(
        [sys.executable, "-P", str(program), *map(str, folders)],
        env={**os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_digits_are_learned_alike_on_tensorflow_and_jax(tmp_path):
    pytest.importorskip("jax")
    here = losses_and_accuracies("tensorflow", tmp_path / "tensorflow")
    pretrained = tmp_path / "tensorflow" / "pretrained"
    there = losses_and_accuracies("jax", tmp_path / "jax", pretrained)
    for job in ("pretraining", "transfer"):
        assert len(set(here[job])) > 5  # The losses do move.
        np.testing.assert_allclose(there[job], here[job], atol=1e-4)
    for accuracies in (here["accuracies"], there["accuracies"]):
        assert accuracies["pretrained"] >= 0.996
        assert accuracies["transferred"] >= 0.983
        assert accuracies["agreement"] == 1.0
