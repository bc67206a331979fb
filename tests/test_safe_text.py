"""Text of others in a terminal, a log, Markdown, CSV and JSON."""

import csv
import io
import json
import os
import pathlib
import re
import sys

import pytest
from PIL import Image

from keras_vit.command_line import main
from keras_vit.reports.report import markdown_table
from keras_vit.training.data.corrections import read_table
from keras_vit.training.data.spec import table_lines
from keras_vit.utils.safe_text import for_csv, for_line, for_markdown, for_output, safe_output

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTROL = ["\x1b]0;title\x07", "\x9b31m", "\x00", "\x7f", "\u202e", "\udc80", "\x1b", "\x08"]
CURSOR = ["\x1b[A", "\r", "a\x1b[A\x1b[A"]
ENDS = ["\n", "\r\n", "\u2028", "\x85", "\x0c"]


@pytest.mark.parametrize("make_safe", [for_output, for_line, for_markdown, for_csv])
@pytest.mark.parametrize("unsafe", [*CONTROL, *CURSOR])
def test_control_characters_are_escaped_as_json_escapes_them(unsafe, make_safe):
    shown = make_safe(f"cat{unsafe}.jpg")
    assert shown.isprintable()
    assert json.loads(f'"{shown}"') == f"cat{unsafe}.jpg"


@pytest.mark.parametrize("end", ENDS)
def test_a_text_ends_no_line(end):
    for make_safe in (for_line, for_markdown, for_csv):
        assert make_safe(f"cat{end}keras-vit: dog").splitlines()[1:] == []


@pytest.mark.parametrize(
    "text", ["Gürteltier\t猫\u200d😀 = 1\n", "\r 5/10 steps", "\x1b[A", "\n\x1b[A"]
)
def test_lines_and_progress_bars_are_printed_as_they_are(text):
    assert for_output(text) == text


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("a | b", "a \\| b"),
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)>"),
        ("![x](https://tracker/)", "![x]\\(https://tracker/)"),
        ("cat\n\n# Title", "cat\\u000a\\u000a# Title"),
        ("mlp_dim [1, 2] (a*b)", "mlp_dim [1, 2] (a*b)"),
    ],
)
def test_a_name_is_a_cell_of_a_markdown_table(name, cell):
    assert for_markdown(name) == cell
    assert markdown_table([["class"], [name]]).splitlines()[-1] == f"| {cell} |"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        (" =1+1", "' =1+1"),
        ("a;=cmd|' /C calc'!A0", "a;'=cmd|' /C calc'!A0"),
        ("a; @SUM(1);b;+c", "a;' @SUM(1);b;'+c"),
        ("a\t=1", "a\t'=1"),
        ("\t=1", "'\t'=1"),
        ("\t\t =1", "'\t\t' =1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("a;\uff0b1", "a;'\uff0b1"),
        ("\uff0dSUM(1)", "'\uff0dSUM(1)"),
        ("\u3000\uff20SUM(1)", "'\u3000\uff20SUM(1)"),
        ("\r=1", "\\u000d=1"),
        ("a\n=1", "a\\u000a=1"),
        ("-1.5", "-1.5"),
        ("a-b;c=d", "a-b;c=d"),
    ],
)
def test_a_cell_of_csv_is_no_formula_also_where_semicolons_separate(text, cell):
    assert for_csv(text) == cell


@pytest.mark.parametrize("text", ["\t" * 300_000, " \t" * 150_000 + "x", ";" * 300_000])
def test_the_time_of_a_cell_grows_with_its_length_alone(text):
    assert for_csv(text) == text  # With the square it is an hour.


def test_a_path_in_a_table_that_is_read_again_is_no_formula_and_the_same_path():
    rows = {"=1+1.png": "train", "a;=cmd|x.png": "test", "d.png": "test"}
    lines = table_lines(rows, "split")
    assert not [cell for line in lines for cell in [*line.split(","), line] if cell[0] in "=+-@"]
    assert '"./a;=cmd|x.png","test"' in lines
    assert read_table(list(rows), lines, "split") == rows
    assert table_lines({"d.png": "test"}, "split") == ("path,split", "d.png,test")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_file_name_prints_no_line_of_its_own(tiny, tmp_path, capsys):
    path = tmp_path / "\rcat\nkeras-vit: dog\x1b[A.png"
    Image.new("RGB", (8, 8)).save(path)
    for name in ("text", "csv", "json"):
        assert main(["predict", str(tiny), str(path), "--top", "1", "--format", name]) == 0
        printed = capsys.readouterr().out
        assert not re.search("[\r\x1b]|^keras-vit: dog", printed, re.MULTILINE)
        assert "\\u001b[A.png" in printed
    assert len(list(csv.reader(printed.splitlines()))) == 3


def test_all_that_a_command_prints_is_escaped_also_what_the_output_cannot_encode(
    monkeypatch, capsys
):
    with safe_output():
        print("a\x1bb")
        print("c\x1bd", file=sys.stderr)
        assert not sys.stdout.isatty()
    assert capsys.readouterr() == ("a\\u001bb\n", "c\\u001bd\n")
    assert main(["predict", "cifar10", "no\x1b[31m such folder"]) == 2
    assert "no\\u001b[31m such folder" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    with safe_output():
        print("caf\u00e9 \u043a", flush=True)
    assert sys.stdout.buffer.getvalue() == b"caf\xe9 \\u043a\n"


def test_every_table_is_written_by_these_functions():
    code = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("keras_vit", "training", "export")
        for path in (ROOT / folder).rglob("*.py")
    }
    written = {p for p, text in code.items() if re.search(r"csv\.(Dict)?[wW]riter\(", text)}
    assert written == {
        "keras_vit/utils/files.py",
        "keras_vit/commands/predict.py",  # By `csv_row`.
        "training/data/spec.py",  # Lines that are read again; see the test of formulas.
    }
    assert [path for path, text in code.items() if "'---'" in text or '"---"' in text] == [
        "keras_vit/reports/report.py"
    ]
