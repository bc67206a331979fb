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


def test_every_digit_is_written_once_and_a_third_of_each_is_held_out(images):
    digits, written = load_digits(), {int(path.stem): path for path in images.rglob("*.png")}
    assert sorted(written) == list(range(1797))
    assert all(path.parent.name == str(digits.target[n]) for n, path in written.items())
    assert {path.name for path in (images / "0-4" / "train").iterdir()} == set("01234")
    for held_out in images.glob("*/test/*"):
        count = len(list(held_out.iterdir()))
        trained_on = len(list((held_out.parents[1] / "train" / held_out.name).iterdir()))
        assert count == (count + trained_on) // 3
    expected = np.round(digits.images[100] * 255 / 16).astype("uint8")
    np.testing.assert_array_equal(read_image(written[100]), np.stack([expected] * 3, -1))


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
