"""What is printed cannot change the terminal, whatever the names of files and classes."""

import io
import sys

from keras_vit.command_line import main
from keras_vit.utils.safe_text import safe_output


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


def test_text_that_the_output_cannot_encode_is_escaped(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    with safe_output():
        print("caf\u00e9 \u043a", flush=True)
    assert sys.stdout.buffer.getvalue() == b"caf\xe9 \\u043a\n"


def test_an_error_of_a_command_is_escaped(capsys):
    assert main(["predict", "cifar10", "no\x1b[31m such folder"]) == 2
    assert "no\\u001b[31m such folder" in capsys.readouterr().err
