"""What is printed cannot change the terminal, whatever the names of files and classes."""

import io
import json
import sys

import pytest

from keras_vit.command_line import main
from keras_vit.terminal import escaped, safe_output


@pytest.mark.parametrize(
    "unsafe",
    ["\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "\x00", "\x7f", "\u202e", "\udc80", "\x1b", "\x08"],
)
def test_control_characters_are_escaped_as_json_escapes_them(unsafe):
    shown = escaped(f"cat{unsafe}.jpg")
    assert shown.isprintable()
    assert json.loads(f'"{shown}"') == f"cat{unsafe}.jpg"


def test_text_and_progress_bars_are_not_changed():
    text = "Gürteltier\t猫\u200d😀 = 1\r\n\x1b[A"
    assert escaped(text) == text


def test_all_that_is_printed_is_escaped(monkeypatch):
    outputs = {name: io.StringIO() for name in ("stdout", "stderr")}
    for name, stream in outputs.items():
        monkeypatch.setattr(sys, name, stream)
    with safe_output():
        print("a\x1bb", file=sys.stdout)
        sys.stderr.writelines(["c\x1b", "d"])
        assert not sys.stdout.isatty()
    assert sys.stdout is outputs["stdout"]
    assert outputs["stdout"].getvalue() == "a\\u001bb\n"
    assert outputs["stderr"].getvalue() == "c\\u001bd"


def test_an_error_of_a_command_is_escaped(capsys):
    assert main(["report", "no\x1b[31m such folder"]) == 2
    assert "no\\u001b[31m such folder" in capsys.readouterr().err
