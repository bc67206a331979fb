"""The program docs/first_screen.py, where scikit-image is installed."""

import pathlib
import subprocess
import sys

import pytest
from PIL import Image

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"


def test_the_picture_of_readme_is_small():
    assert (DOCS / "first_screen.png").stat().st_size < 200_000


@pytest.mark.slow
def test_the_picture_of_readme_has_a_right_answer_and_unknown(tmp_path):
    pytest.importorskip("skimage")
    program = [sys.executable, DOCS / "first_screen.py", "--output", tmp_path / "screen.png"]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    answers = dict(line.split(": ") for line in done.stdout.splitlines()[:-1])
    assert answers == {"a cat": "cat", "a cup of coffee": "unknown", "a rocket": "unknown"}
    with (
        Image.open(tmp_path / "screen.png") as drawn,
        Image.open(DOCS / "first_screen.png") as kept,
    ):
        assert drawn.size == kept.size
