import pytest

from keras_vit import command_line
from keras_vit.export.onnx import OPSET
from keras_vit.export.tflite import TFLite


def call(*arguments):
    return command_line.main(["export", *map(str, arguments)])


def test_a_classifier_is_exported_and_the_table_printed(classifier, tmp_path, capsys, own_process):
    path = tmp_path / "animals.tflite"
    code = call(
        classifier.folder, "--to", "tflite", "--output", path,
        "--precision", "float16", "--batch-size", "free", "--check-images", classifier.folder,
    )  # fmt: skip
    assert code == 0
    table = capsys.readouterr().out
    assert str(path) in table
    assert "checked on 10 images" in table
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--to", "saved_model", "--precision", "int8"),
            "--precision is for --to onnx, tflite or openvino. Received: --to saved_model",
        ),
        (
            ("--to", "openvino", "--precision", "float16"),
            "precision must be one of ('float32', 'int8') for openvino. Received: ",
        ),
        (
            ("--to", "onnx", "--precision", "dynamic_int8"),
            "('float32', 'float16', 'int8') for onnx",
        ),
        (("--to", "openvino", "--opset", "17"), "--opset is for --to onnx"),
        (("--to", "tflite", "--warm-up"), "--warm-up is for --to saved_model"),
        (("--to", "tflite"), "must end with .tflite"),
        (("--to", "tflite", "--batch-size", "0"), "--batch-size must be positive"),
        (("--to", "onnx", "--minimum-agreement", "99"), "share in [0, 1]"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(classifier, tmp_path, capsys, arguments, message):
    assert call(classifier.folder, "--output", tmp_path / "x", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_classifier_is_an_error(tmp_path, capsys):
    assert call(tmp_path, "--to", "saved_model", "--output", tmp_path / "1") == 2
    error = capsys.readouterr().err
    assert "A folder must hold one of" in error
    assert "'model.keras'" in error


def test_help_has_the_precisions_and_the_default_opset(capsys):
    with pytest.raises(SystemExit):
        call("--help")
    text = capsys.readouterr().out
    assert f"{{{','.join(TFLite.precisions)}}}" in text
    assert f"(default: {OPSET})" in text


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--image-sizes", "48x", "must be pixels, such as 384"),
        ("--batch-size", "many", 'must be a number or "free"'),
    ],
)
def test_a_malformed_value_is_an_error(classifier, tmp_path, capsys, option, value, message):
    with pytest.raises(SystemExit, match="2"):
        call(classifier.folder, "--to", "tflite", "--output", tmp_path / "x", option, value)
    assert message in capsys.readouterr().err
