"""The drawn photos of examples/draw_parts.py, and the demonstration that uses them."""

import csv
import itertools
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
PARTS = 12


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A folder that the program wrote."""
    folder = tmp_path_factory.mktemp("parts")
    draw(folder)
    return folder


@pytest.fixture(scope="module")
def truth(parts):
    with open(parts / "truth.csv", newline="") as file:
        return list(csv.DictReader(file))


def draw(folder):
    program = [sys.executable, EXAMPLES / "draw_parts.py", folder, "--parts", str(PARTS)]
    subprocess.run(program, check=True, capture_output=True)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


def test_the_same_arguments_draw_the_same_files(parts, tmp_path):
    draw(tmp_path)
    assert contents(tmp_path) == contents(parts)


def test_the_table_lists_every_photo_once(parts, truth):
    drawn = sorted(path.relative_to(parts).as_posix() for path in parts.rglob("*.jpg"))
    assert sorted(row["path"] for row in truth) == drawn


def test_each_kind_has_its_parts_in_three_shots_each(truth):
    originals = [row for row in truth if row["path"][:6] == "photos" and not row["original"]]
    shots = {
        (kind, part): sorted(row["shot"] for row in rows)
        for (kind, part), rows in itertools.groupby(
            sorted(originals, key=lambda row: (row["kind"], row["part"])),
            key=lambda row: (row["kind"], row["part"]),
        )
    }
    assert len(shots) == 4 * PARTS
    assert all(numbers == ["0", "1", "2"] for numbers in shots.values())


def test_three_photos_lie_in_the_folder_of_another_kind(truth):
    in_folders = [row for row in truth if row["path"].count("/") == 2]
    wrong = [row for row in in_folders if row["path"].split("/")[1] != row["kind"]]
    assert [row["planted"] for row in wrong] == ["wrong label"] * 3
    assert sum(row["planted"] == "wrong label" for row in truth) == 3


def test_eight_photos_are_copies_of_others_under_a_new_number(parts, truth):
    copies = [row for row in truth if row["original"]]
    assert len(copies) == sum(row["planted"] == "copy" for row in truth) == 8
    for row in copies:
        copy, original = (
            np.asarray(Image.open(parts / row[name]).convert("L").resize((40, 40)), "float64")
            for name in ("path", "original")
        )
        assert np.corrcoef(copy.ravel(), original.ravel())[0, 1] > 0.8
        assert pathlib.Path(row["path"]).name[:3] != pathlib.Path(row["original"]).name[:3]


def test_springs_are_among_the_new_photos_alone(truth):
    folders = {row["path"].split("/")[0] for row in truth if row["kind"] == "spring"}
    assert folders == {"new"}


def test_a_part_is_in_one_of_the_three_folders(truth):
    parts_of = {}
    for row in truth:
        parts_of.setdefault(row["path"].split("/")[0], set()).add(row["part"])
    assert not parts_of["photos"] & parts_of["calibration"]
    assert not parts_of["photos"] & parts_of["new"]
    assert not parts_of["calibration"] & parts_of["new"]


def test_an_output_of_the_demonstration_that_exists_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    program = [sys.executable, EXAMPLES / "demo.py", tmp_path]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 1
    assert "File exists" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_the_demonstration_runs_and_counts_what_was_found(tmp_path):
    small = ["demo", "--parts", "20", "--steps", "40", "--max-error", "0.3"]
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", *small], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "tensorflow" not in (done.stdout + done.stderr).lower()
    for pattern, least, most in (
        (r"(\d) of 3 wrong labels", 2, 3),
        (r"(\d) of 8 copies", 6, 8),
        (r"^evaluate: ([\d.]+)%", 70, 100),
        (r"of 12 new parts (\d+) are named right", 7, 12),
        (r"of 12 springs, .* (\d+) are unknown", 0, 12),
    ):
        found = re.search(pattern, done.stdout, re.MULTILINE)
        assert least <= float(found[1]) <= most, done.stdout
    page = pathlib.Path(done.stdout.splitlines()[-1])
    assert page == tmp_path / "demo" / "demo.html"
    for name in re.findall(r'href="([\w/.]+)"', page.read_text()):
        assert (page.parent / name).is_file()
