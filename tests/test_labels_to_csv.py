"""The program that makes one table of the lists that other tools write."""

import pathlib
import subprocess
import sys

import numpy as np

from keras_vit.training.data import DataSpec, open_source
from makers import encode

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "examples" / "labels_to_csv.py"


def run(folder, *words):
    done = subprocess.run(
        [sys.executable, PROGRAM, "labels.csv", *words], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def test_lists_without_a_header_become_parts_with_names_in_place_of_numbers(tmp_path):
    (tmp_path / "train.txt").write_text("train/0.jpg, 7, 0\ntrain/1.jpg, 8, 1\n")
    (tmp_path / "test.txt").write_text("test/2.jpg, 9, 1\n")
    (tmp_path / "classes.csv").write_text('Class,Number\nApple,0\n"Kiwi, green",1\n')
    words = ["train=train.txt", "test=test.txt", "--columns", "path,,label"]
    code, printed, _ = run(tmp_path, *words, "--names", "classes.csv")
    assert code == 0
    assert (tmp_path / "labels.csv").read_text().splitlines() == [
        "path,label,split",
        "train/0.jpg,Apple,train",
        'train/1.jpg,"Kiwi, green",train',
        'test/2.jpg,"Kiwi, green",test',
    ]
    assert "train.txt: 2 rows, cells between ',', part train" in printed
    assert "2 classes: Apple, Kiwi, green" in printed


def test_a_table_with_other_columns_is_read_by_their_names(tmp_path):
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), "uint8")
        (tmp_path / f"{number}.png").write_bytes(encode(pixels))
    rows = [f"302;{n}.png;{'ANGER' if n % 2 else 'neutral'}" for n in range(4)]
    (tmp_path / "legend.csv").write_text("\n".join(["\ufeffuser.id;image;emotion", *rows]))
    code, *_ = run(tmp_path, "legend.csv", "--path", "image", "--label", "emotion")
    assert code == 0
    source = open_source(DataSpec(tmp_path / "labels.csv", holdout=0.0))
    assert source.class_line == "ANGER 2, neutral 2"


def test_a_missing_column_is_named_with_those_that_there_are(tmp_path):
    (tmp_path / "legend.csv").write_text("image,emotion\na.png,sad\n")
    code, _, error = run(tmp_path, "legend.csv")
    assert code == 1
    assert error == "legend.csv must have the column label. Received: image, emotion\n"
