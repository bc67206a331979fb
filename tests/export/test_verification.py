"""Exports that are damaged or changed: `verify` names the part, in one line."""

import base64
import io
import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
import PIL.Image
import pytest
from onnx import TensorProto, helper

import keras_vit.export
from keras_vit import command_line
from keras_vit.export.check import check_parts, checksums, golden_json
from keras_vit.export.check_images import golden_files
from keras_vit.export.formats import FORMATS, format_of
from keras_vit.export.html import HTML
from keras_vit.export.publish import texts_of
from keras_vit.utils.files import CLASSES
from makers import encode

WITH_RUNTIME = ("onnx", "openvino", "tflite", "saved_model")  # Run by the default tests.


@pytest.fixture(scope="module")
def exports(classifier, files, path_of, tmp_path_factory):
    """The path of an export by format; the page without its runtime."""
    folder = tmp_path_factory.mktemp("exports")
    paths = {name: path_of(name) for name in WITH_RUNTIME}
    with pytest.MonkeyPatch.context() as patch:
        without_playwright(patch)
        contents = {"classifier.js": b"// A module.", "model.onnx": paths["onnx"].read_bytes()}
        patch.setattr(sys.modules[HTML.__module__], "classifier_files", lambda *_: contents)
        path = paths["html"] = folder / "page.html"
        HTML().write(path, classifier, files)
        samples, synthetic, _ = golden_files(folder, classifier)
        golden = golden_json(samples, {}, synthetic=synthetic)
        seal(path, {**texts_of(classifier), "golden.json": golden})
    return paths


def without_playwright(patch):
    """Lets exports for browsers be read where no browser can be started."""
    patch.setattr(sys.modules[HTML.__module__], "import_playwright", lambda: None)


@pytest.fixture
def copied(exports, tmp_path, monkeypatch):
    """Returns a function that copies an export by its format."""
    without_playwright(monkeypatch)

    def copy(name):
        path = exports[name]
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


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x40
    path.write_bytes(content)


def weights_of(path):
    """The file of the weights of an export, and where in it they lie."""
    if path.suffix == ".html":
        return path, path.read_bytes().index(b"application/gzip"), model_bytes(path)
    names = ("variables/variables.data-00000-of-00001", "model.bin", "model.onnx")
    file = next((path / name for name in names if (path / name).is_file()), path)
    size = file.stat().st_size if path.is_dir() else model_bytes(path)
    return file, size // 10, size


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
    file, start, stop = weights_of(path)
    part = file.relative_to(path).as_posix() if path.is_dir() else "model"
    good = file.read_bytes()
    for place in np.linspace(start, stop - 1, 15).astype(int):
        flip(file, place)
        # A graph that ONNX Runtime does not load is refused before its checksum is compared.
        loads = "|Load model from" if name == "onnx" else ""
        with pytest.raises(ValueError, match=f"Received: {part} is changed{loads}"):
            keras_vit.export.verify(path)
        file.write_bytes(good)


TEXTS = ("preprocessing.json", "origin.json", "golden.json")


@pytest.mark.parametrize("name", FORMATS)
def test_a_text_that_is_changed_or_gone_is_named(copied, name, capsys):
    path = copied(name)
    before = dict(format_of(path).open(path).texts)
    names = before[CLASSES].splitlines(keepends=True)
    rewrite(path, {CLASSES: "".join(reversed(names))})
    assert "classes.txt is changed" in refused(path, capsys)
    for text in TEXTS:
        rewrite(path, {**before, text: None})
        error = refused(path, capsys)
        assert f"{text} is missing" in error or f"Missing: {text}" in error


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_a_text_that_was_added_is_named_and_a_file_of_the_system_is_no_part(copied, name, capsys):
    path = copied(name)
    if path.is_dir():
        (path / ".DS_Store").write_bytes(b"x")
        check_parts(path, format_of(path).open(path).texts)
    rewrite(path, {"task.json": "{}"})
    assert "task.json is added" in refused(path, capsys)


@pytest.mark.parametrize("text", ["[]", "{}", "null", '"x"', "{", '{"model": 1}', None])
def test_checksums_that_are_none_are_refused(copied, text, capsys):
    path = copied("onnx")
    rewrite(path, {"checksums.json": text})
    refused(path, capsys)


@pytest.mark.parametrize("name", WITH_RUNTIME)
def test_an_export_is_verified_in_a_process_of_its_own(copied, name, own_process):
    assert keras_vit.export.verify(copied(name)).agreement == 1


# Golden samples


def golden_of(path):
    return json.loads(format_of(path).open(path).texts["golden.json"])


@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "dynamic_int8"])
def test_an_export_is_compared_with_its_own_answers(tflite, tmp_path, precision):
    path = pathlib.Path(shutil.copy(tflite[precision].path, tmp_path))
    report = keras_vit.export.verify(path)
    assert report.checks[0].largest_difference < 1e-5
    samples = golden_of(path)
    row = samples[0]["answers"]["serve"]
    row[np.argmax(row)] -= 0.002
    row[np.argmin(row)] += 0.002
    rewrite(path, {"golden.json": json.dumps(samples)}, sealed=True)
    with pytest.raises(ValueError, match=r"within 1.0e-03. Received: 2.0e-03 of the signature"):
        keras_vit.export.verify(path)


@pytest.mark.parametrize(
    ("file_format", "message"), [("other PNG", "has other pixels"), ("EPS", ""), ("JPEG", "")]
)
def test_a_golden_sample_is_a_png_file_of_the_same_pixels(
    copied, file_format, message, capsys, monkeypatch
):
    path = copied("onnx")
    samples = golden_of(path)
    content = base64.b64decode(samples[1]["png"])
    if file_format != "other PNG":
        content = encode(PIL.Image.open(io.BytesIO(content)), file_format)
        plugin = {"EPS": PIL.EpsImagePlugin.EpsImageFile, "JPEG": PIL.JpegImagePlugin.JpegImageFile}
        monkeypatch.setattr(plugin[file_format], "_open", pytest.fail)
    samples[0]["png"] = base64.b64encode(content).decode()
    rewrite(path, {"golden.json": json.dumps(samples)}, sealed=True)
    assert message in refused(path, capsys)


def test_names_of_another_number_are_refused(copied, capsys):
    path = copied("onnx")
    rewrite(path, {CLASSES: "blå hval\nred fox\n"}, sealed=True)
    assert "classes.txt and description.json do not belong together" in refused(path, capsys)


# Graphs that are wrong, in files whose checksums are right


def with_graph(path, change):
    texts = dict(format_of(path).open(path).texts)
    del texts["checksums.json"]
    content = onnx.load(path)
    del content.metadata_props[:]
    change(content.graph)
    onnx.save(content, path)
    seal(path, texts)
    return path


def last(graph, operation, *inputs, **attributes):
    """Adds an operation behind the probabilities."""
    for node in graph.node:
        node.output[:] = ["rows" if name == "probabilities" else name for name in node.output]
    graph.node.append(helper.make_node(operation, inputs, ["probabilities"], **attributes))


def endless(graph):
    """Adds a loop of 2^62 turns, which begins with the probabilities."""
    value, node = helper.make_tensor_value_info, helper.make_node
    body = helper.make_graph(
        [node("Identity", ["go_on"], ["still"]), node("Sqrt", ["value"], ["next"])],
        "turn",
        [
            value("turn", TensorProto.INT64, []),
            value("go_on", TensorProto.BOOL, []),
            value("value", TensorProto.FLOAT, None),
        ],
        [value("still", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, None)],
    )
    graph.initializer.append(helper.make_tensor("turns", TensorProto.INT64, [], [2**62]))
    graph.initializer.append(helper.make_tensor("start", TensorProto.BOOL, [], [True]))
    last(graph, "Loop", "turns", "start", "rows", body=body)


def test_a_graph_that_never_ends_is_ended(copied, capsys, own_process):
    path = with_graph(copied("onnx"), endless)
    error = refused(path, capsys, "--time-limit", "3")
    assert "does not answer within 3 s (--time-limit)" in error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: last(graph, "Concat", "rows", "rows", axis=0), "a row of probabilities"),
        (lambda graph: last(graph, "Concat", "rows", "rows", axis=1), "Received: shape=(3, 6)"),
        (lambda graph: last(graph, "Neg", "rows"), "must give probabilities, numbers from 0 to 1"),
        (lambda graph: last(graph, "Sqrt", "rows"), "probabilities of its golden samples within"),
    ],
    ids=["rows", "columns", "negative", "other"],
)
def test_answers_that_are_none_are_refused(copied, change, message, capsys):
    assert message in refused(with_graph(copied("onnx"), change), capsys)


# Damage


@pytest.fixture
def mutations(monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[1] / "fuzz")
    import mutations

    yield mutations
    sys.modules.pop("mutations")


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
    path = copied(name)
    for file, what in damaged_files(path):
        if file.name != "checksums.json" or what != "without its end":  # A line feed.
            refused(path, capsys)


@pytest.mark.parametrize("name", WITH_RUNTIME)
def test_random_damage_passes_or_is_refused_in_one_line(copied, name, mutations, tmp_path, capsys):
    path = copied(name)
    codes = []
    for seed in range(25):
        case = tmp_path / f"damaged {seed}" / path.name
        mutations.write_case(path.parent, case.parent, seed)
        codes.append(command_line.main(["verify", str(case), "--time-limit", "60"]))
        error = capsys.readouterr().err
        assert codes[-1] == 0 or (error.count("\n") == 1 and str(case) in error), error
    assert set(codes) <= {0, 2}
    assert codes.count(2) > 20
