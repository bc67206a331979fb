"""Exports that are damaged or changed: `verify` names the part, in one line."""

import base64
import io
import json
import pathlib
import shutil

import numpy as np
import onnx
import PIL.Image
import pytest

import keras_vit.export
from keras_vit import command_line
from keras_vit.export.checksums import check_parts, checksums
from keras_vit.export.formats.table import format_of
from keras_vit.export.formats.tflite import TFLite
from keras_vit.utils.files import CLASSES
from makers import encode

FORMATS = ("onnx", "openvino", "tflite", "saved_model")  # A web page keeps its texts as these do.


@pytest.fixture
def copied(path_of, tmp_path):
    """Returns a function that copies an export by its format."""

    def copy(name):
        path = path_of(name)
        if path.is_dir():
            return shutil.copytree(path, tmp_path / "case" / path.name)
        (tmp_path / "case").mkdir()
        return shutil.copy(path, tmp_path / "case" / path.name)

    return copy


def seal(path, texts):
    """Adds texts to a new export, and the checksums of its parts."""
    known, size = format_of(path), path.stat().st_size
    known.add_texts(path, texts)
    sums = checksums(path, known.open(path).texts, size if path.is_file() else None)
    known.add_texts(path, {"checksums.json": json.dumps(sums)})


def rewrite(path, changes, sealed=False):
    """Changes texts of an export: by their names their new content, or None to remove them.

    The checksums stay as before, unless it is sealed.
    """
    known = format_of(path)
    before = dict(known.open(path).texts)
    texts = {name: text for name, text in (before | changes).items() if text is not None}
    if path.is_dir():
        for name in before:
            for file in path.rglob(name):
                file.unlink()
    else:
        path.write_bytes(path.read_bytes()[: model_bytes(path)])
    if sealed:
        seal(path, {name: text for name, text in texts.items() if name != "checksums.json"})
    else:
        known.add_texts(path, texts)


def model_bytes(path):
    return json.loads(format_of(path).open(path).texts["checksums.json"])["model_bytes"]


def refused(path, capsys, *options):
    """Returns the one line of `keras-vit verify`, which must name the export."""
    assert command_line.main(["verify", str(path), *options]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert str(path) in printed.err
    return printed.err


@pytest.mark.parametrize("name", FORMATS)
def test_one_flipped_byte_in_the_weights_is_found_wherever_it_is(copied, name):
    path = copied(name)
    names = ("variables/variables.data-00000-of-00001", "model.bin")
    file = next((path / name for name in names if (path / name).is_file()), path)
    part = file.relative_to(path).as_posix() if path.is_dir() else "model"
    good = file.read_bytes()
    size = len(good) if path.is_dir() else model_bytes(path)
    for place in np.linspace(size // 10, size - 1, 15).astype(int):
        content = bytearray(good)
        content[place] ^= 0x40
        file.write_bytes(content)
        # A graph that ONNX Runtime does not load is refused before its checksum is compared.
        loads = "|Load model from" if name == "onnx" else ""
        with pytest.raises(ValueError, match=f"{part} is changed{loads}"):
            keras_vit.export.verify(path)
        file.write_bytes(good)


@pytest.mark.parametrize("name", FORMATS)
def test_a_text_that_is_changed_added_or_gone_is_named(copied, name, capsys):
    path = copied(name)
    before = dict(format_of(path).open(path).texts)
    if path.is_dir():
        (path / ".DS_Store").write_bytes(b"x")  # A file of the system is no part.
        check_parts(path, before)
    rewrite(path, {"task.json": "{}"})
    assert "task.json is added" in refused(path, capsys)
    rewrite(path, {"task.json": None})
    names = before[CLASSES].splitlines(keepends=True)
    rewrite(path, {CLASSES: "".join(reversed(names))})
    assert "classes.txt is changed" in refused(path, capsys)
    for text in ("preprocessing.json", "origin.json", "golden.json"):
        rewrite(path, {**before, text: None})
        error = refused(path, capsys)
        assert f"{text} is missing" in error or f"Missing: {text}" in error


@pytest.mark.parametrize("text", ["[]", "{}", "null", '"x"', "{", '{"model": 1}', None])
def test_checksums_that_are_none_are_refused(copied, text, capsys):
    path = copied("onnx")
    rewrite(path, {"checksums.json": text})
    refused(path, capsys)


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_is_verified_in_a_process_of_its_own(copied, name, own_process):
    assert keras_vit.export.verify(copied(name)).agreement == 1


def golden_of(path):
    return json.loads(format_of(path).open(path).texts["golden.json"])


@pytest.mark.parametrize("precision", TFLite.precisions)
def test_an_export_is_compared_with_its_own_answers(tflite, tmp_path, precision):
    path = pathlib.Path(shutil.copy(tflite(precision).path, tmp_path))
    report = keras_vit.export.verify(path)
    assert report.checks[0].largest_difference < 1e-5
    samples = golden_of(path)
    row = samples[0]["answers"]["serve"]
    row[np.argmax(row)] -= 0.002
    rewrite(path, {"golden.json": json.dumps(samples)}, sealed=True)
    with pytest.raises(ValueError, match="1.0e-03.*2.0e-03 .*signature"):
        keras_vit.export.verify(path)


@pytest.mark.parametrize("file_format", ["EPS", "JPEG"])
def test_a_golden_sample_is_a_png_file(copied, file_format, capsys, monkeypatch):
    path = copied("onnx")
    samples = golden_of(path)
    content = io.BytesIO(base64.b64decode(samples[1]["png"]))
    content = encode(PIL.Image.open(content), file_format)
    plugin = {"EPS": PIL.EpsImagePlugin.EpsImageFile, "JPEG": PIL.JpegImagePlugin.JpegImageFile}
    monkeypatch.setattr(plugin[file_format], "_open", pytest.fail)
    samples[0]["png"] = base64.b64encode(content).decode()
    rewrite(path, {"golden.json": json.dumps(samples)}, sealed=True)
    refused(path, capsys)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("Neg", "must give probabilities, numbers from 0 to 1"),
        ("Sqrt", "probabilities of its golden samples within"),
    ],
)
def test_a_graph_that_is_wrong_is_refused_though_its_checksums_are_right(
    copied, operation, message, capsys
):
    path = copied("onnx")
    texts = dict(format_of(path).open(path).texts)
    del texts["checksums.json"]
    content = onnx.load(path)
    del content.metadata_props[:]
    for node in content.graph.node:
        node.output[:] = ["rows" if name == "probabilities" else name for name in node.output]
    content.graph.node.append(onnx.helper.make_node(operation, ["rows"], ["probabilities"]))
    onnx.save(content, path)
    seal(path, texts)
    assert message in refused(path, capsys)


def test_an_export_that_does_not_answer_in_time_is_ended(copied, capsys, own_process):
    error = refused(copied("onnx"), capsys, "--time-limit", "0.01")
    assert "0.01 s (--time-limit)" in error


def damaged_files(path):
    """Yields, after each change of one file of an export, what was changed."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        good = file.read_bytes()
        for what, content in {
            "empty": b"",
            "cut": good[: len(good) // 2],
            "without its end": good[:-1],
            "text": b"damaged",
            "zeros": bytes(len(good)),
            "gone": None,
        }.items():
            file.unlink()
            if content is not None:
                file.write_bytes(content)
            yield file, what
            file.write_bytes(good)


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_that_is_cut_empty_or_gone_is_refused_in_one_line(copied, name, capsys):
    path, count = copied(name), 0
    for file, what in damaged_files(path):
        count += 1
        if file.name != "checksums.json" or what != "without its end":  # A line feed.
            refused(path, capsys)
    assert count
