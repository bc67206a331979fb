import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.images.transcoding import read_image
from keras_vit.training import demo

load_digits = pytest.importorskip("sklearn.datasets").load_digits


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "images"
    assert demo.write_digits(folder, seed=0) == 1797
    return folder


def files(folder):
    return {int(path.stem): path for path in folder.rglob("*.png")}


def test_every_digit_is_written_once_in_its_class(images):
    digits = load_digits()
    written = files(images)
    assert sorted(written) == list(range(1797))
    assert all(path.parent.name == str(digits.target[n]) for n, path in written.items())
    first = {path.name for path in (images / "0-4" / "train").iterdir()}
    assert first == set("01234")


def test_a_third_of_every_digit_is_held_out(images):
    for group in images.iterdir():
        for digit in (group / "test").iterdir():
            held_out = len(list(digit.iterdir()))
            trained_on = len(list((group / "train" / digit.name).iterdir()))
            assert held_out == (held_out + trained_on) // 3


def test_the_pixels_are_those_of_scikit_learn(images):
    number, path = sorted(files(images).items())[100]
    expected = np.round(load_digits().images[number] * 255 / 16).astype("uint8")
    pixels = read_image(path)
    assert pixels.shape == (8, 8, 3)
    for channel in range(3):
        np.testing.assert_array_equal(pixels[..., channel], expected)


def test_a_folder_that_is_no_demonstration_is_not_cleared(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="thesis.tex"):
            demo.demo(tmp_path, overwrite=overwrite)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_whole_demonstration_reaches_97_percent(tmp_path, seed):
    printed = []
    result = demo.demo(tmp_path / "out", seed=seed, log=printed.append)
    assert result.num_test == 297
    assert result.before_transfer == pytest.approx(0.2, abs=0.01)  # Chance.
    assert result.after_transfer >= 0.97
    assert result.export_agreement == 1.0
    table = (tmp_path / "out" / "summary.txt").read_text()
    assert table == f"{result}\n"
    for part in demo.PARTS:
        assert (tmp_path / "out" / part).exists()
        assert str(tmp_path / "out" / part) in table
    assert any("%  5\n" in text for text in printed)  # The prediction of a five.


def demonstration(backend, *folders):
    """Returns what programs/demo_losses.py printed."""
    program = pathlib.Path(__file__).parent / "programs" / "demo_losses.py"
    done = subprocess.run(
        [sys.executable, "-P", str(program), *map(str, folders)],
        env={**os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_demonstration_is_the_same_on_jax(tmp_path):
    pytest.importorskip("jax")
    here = demonstration("tensorflow", tmp_path / "tensorflow")
    pretrained = tmp_path / "tensorflow" / "pretrained"
    there = demonstration("jax", tmp_path / "jax", pretrained)
    assert (here["backend"], there["backend"]) == ("tensorflow", "jax")
    for job in ("pretraining", "transfer"):
        assert len(set(here[job])) > 5  # The losses do move.
        np.testing.assert_allclose(there[job], here[job], atol=1e-4)
    for found in (here, there):
        # The smallest of the README's three seeds.
        pretraining, transfer, agreement = found["accuracies"]
        assert pretraining >= 0.996
        assert transfer >= 0.983
        assert agreement == 1.0
