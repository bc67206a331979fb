"""`keras-vit export`: formats, their options as flags and arguments, and wrong input."""

import dataclasses
import inspect

import pytest

import keras_vit.export
from keras_vit import command_line
from keras_vit.export.formats.table import ALIASES, FORMATS
from keras_vit.utils.files import EXPORT_MARKERS


def call(*arguments):
    return command_line.main(["export", *map(str, arguments)])


@pytest.fixture
def exported(classifier, tmp_path, capsys, own_process):
    """An exported file, and what the command printed."""
    path = tmp_path / "animals.tflite"
    flags = ("--to", "litert", "--output", path, "--precision", "float16")
    assert call(classifier.folder, *flags, "--check-images", classifier.folder) == 0
    return path, capsys.readouterr().out


def test_a_classifier_is_exported_and_verified(exported):
    path, table = exported
    assert command_line.main(["verify", str(path)]) == 0
    assert str(path) in table
    assert "MB, checked on 10 images" in table
    for word in ("agreement", "largest", "mean", "ms/image", "Keras ms", "100.00%"):
        assert word in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("saved_model --precision int8", "is for --to onnx, tflite or openvino. Received: --to s"),
        ("openvino --precision float16", "precision must be one of ('float32', 'int8') for openv"),
        ("onnx --precision dynamic_int8", "('float32', 'float16', 'int8') for onnx"),
        ("openvino --input-size 40", "--input-size is for --to tflite"),
        ("tflite --max-pixels 9", "--max-pixels is for --to saved_model"),
        ("tflite", "must end with .tflite"),
        ("tflite --input-size 99999", "input_size must be sides from 1 to"),
        ("tflite --input float --input-size 40x48", "input_size is for input='uint8'"),
        ("onnx --minimum-agreement 99", "share in [0, 1]"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(classifier, tmp_path, capsys, arguments, message):
    assert call(classifier.folder, "--output", tmp_path / "x", "--to", *arguments.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_public_function_with_its_options(name):
    function = getattr(keras_vit.export, name)
    assert keras_vit.export.litert is keras_vit.export.tflite
    assert bool(FORMATS[name].suffix) != bool(FORMATS[name].marker)  # A file or a folder.
    first, path, options = inspect.signature(function).parameters.values()
    assert (first.name, path.name, options.kind) == ("classifier", "path", options.VAR_KEYWORD)
    assert f"**options: The fields of `{FORMATS[name].__name__}`." in function.__doc__
    for field in dataclasses.fields(FORMATS[name]):
        assert f"        {field.name}: " in FORMATS[name].__doc__
    with pytest.raises(TypeError, match="no_such_option"):
        function("unused", "unused", no_such_option=1)


def test_the_markers_of_exports_are_known_without_their_modules():
    markers = {format_type.marker for format_type in FORMATS.values()}
    assert markers - {""} == set(EXPORT_MARKERS)


def test_another_name_of_a_format_is_known():
    assert FORMATS[ALIASES["litert"]].name == "tflite"
