"""Exports as classifiers: the commands and `load_artefact` take them instead of a folder."""

import json
import pathlib
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler

import numpy as np
import onnx
import pytest
from PIL import Image

import keras_vit
import keras_vit.export
from keras_vit import command_line
from keras_vit.configs.recognition import config_of
from keras_vit.export.formats import artefacts
from keras_vit.export.formats.artefacts import RuntimeModel, load_artefact
from keras_vit.export.formats.export_format import Signature
from keras_vit.export.formats.table import FORMATS
from keras_vit.predictor import Predictor
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.utils.files import EXPORT_MARKERS


def slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def photos(classifier, tmp_path_factory):
    """The samples in folders by class, a broken file and a file that only Pillow decodes."""
    folder = tmp_path_factory.mktemp("photos")
    for index, file in enumerate(sorted((classifier.folder / "samples").iterdir())):
        of_class = folder / classifier.class_names[index % 3]
        of_class.mkdir(exist_ok=True)
        shutil.copy(file, of_class)
    Image.open(file).save(of_class / "page.tif")
    (of_class / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nno image")
    return folder


def test_predict_takes_an_export(path_of, photos, capsys):
    path = str(path_of("onnx"))
    assert command_line.main(["predict", path, str(photos), "--format", "json"]) == 1
    predicted = json.loads(capsys.readouterr().out)
    artefact = load_artefact(path)
    assert predicted == [prediction.to_json() for prediction in artefact.predict(photos)]


def test_an_export_is_described_before_its_runtime_is_started(path_of, classifier, monkeypatch):
    monkeypatch.setattr(artefacts, "RuntimeModel", None)
    described = keras_vit.describe(path_of("onnx"))
    assert described.to_json() == classifier.description.to_json()


def test_evaluate_takes_an_export(path_of, photos, classifier, tmp_path):
    arguments = [str(path_of("onnx")), "--data", str(photos), "--output", str(tmp_path)]
    assert command_line.main(["evaluate", *arguments]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    expected = evaluate_classifier(classifier, photos)
    assert metrics["correct"] == expected.correct
    assert metrics["loss"] == pytest.approx(expected.loss, abs=1e-4)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["model"]["weights"] == ".../animals.onnx"
    assert len(result["model"]["weights_sha256"]) == 64


def test_a_multi_label_export_has_its_thresholds(model, classifier, files, tmp_path):
    multilabel = keras_vit.build(
        config_of(model), classes=3, input_shape=(32, 24, 3), classifier_activation="sigmoid"
    )
    multilabel.set_weights(model.get_weights())
    facts = {"task": "multilabel", "thresholds": (0.2, 0.5, 0.9)}
    folder = Predictor(multilabel, classifier.class_names, classifier.preprocessing, **facts)
    path = tmp_path / "labels.onnx"
    keras_vit.export.onnx(folder, path, check_images=files)
    artefact = load_artefact(path)
    assert (artefact.task, artefact.thresholds) == ("multilabel", (0.2, 0.5, 0.9))
    expected = [prediction.labels for prediction in folder.predict(files)]
    assert [prediction.labels for prediction in artefact.predict(files)] == expected
    assert len({len(labels) for labels in expected}) > 1


def without_texts(path, copy):
    """Writes an export of another tool: the same graph without the texts of this package."""
    if path.is_dir():
        shutil.copytree(path, copy)
        shutil.rmtree(copy / "assets")
    elif path.suffix == ".onnx":
        content = onnx.load(path)
        del content.metadata_props[:]
        onnx.save(content, copy)
    else:
        with zipfile.ZipFile(path) as archive:
            copy.write_bytes(path.read_bytes()[: archive.infolist()[0].header_offset])


def not_text(path, copy):
    copy.write_bytes(path.read_bytes().replace(b"red fox", b"red \xff\xfe\xfd"))


def damaged(path, copy):
    copy.write_bytes(b"damaged")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("onnx", without_texts, "class names and the preprocessing"),
        ("tflite", without_texts, "class names and the preprocessing"),
        ("saved_model", without_texts, "class names and the preprocessing"),
        ("onnx", damaged, "x.onnx"),
        ("tflite", damaged, "x.tflite"),
        ("onnx", not_text, ""),
    ],
)
def test_a_file_that_is_no_export_of_this_package_is_refused_in_one_line(
    path_of, name, change, message, tmp_path, files, capsys
):
    copy = tmp_path / f"x{path_of(name).suffix}"
    change(path_of(name), copy)
    assert command_line.main(["predict", str(copy), str(files[0])]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert message in printed.err


@pytest.mark.parametrize(
    ("names", "message"),
    [(["cat", "dog"], "classes.txt and description.json")]
    + [([name, "b", "c"], "one line") for name in ("red\nfox", "red\u2028fox", "", 5)],
    ids=str,
)
def test_class_names_of_an_onnx_file_are_one_line_for_each_output(
    names, message, path_of, tmp_path
):
    content = onnx.load(path_of("onnx"))
    (stored,) = (entry for entry in content.metadata_props if entry.key == "class_names")
    stored.value = json.dumps(names)
    onnx.save(content, tmp_path / "names.onnx")
    with pytest.raises(ValueError, match=message):
        load_artefact(tmp_path / "names.onnx")


@pytest.mark.parametrize("marker", EXPORT_MARKERS)
@pytest.mark.parametrize("command", ["predict {0} {1}", "evaluate {0} --data {1}", "verify {0}"])
def test_a_classifier_that_is_also_an_export_is_refused(
    command, marker, classifier, photos, tmp_path, monkeypatch, capsys
):
    folder = shutil.copytree(classifier.folder, tmp_path / "both")
    (folder / marker).write_bytes(b"a program")
    for known in FORMATS.values():
        monkeypatch.setattr(known, "open", staticmethod(pytest.fail))
    assert command_line.main(command.format(folder, photos).split()) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("keras-vit: A folder")
    assert f"model.keras and {marker}" in line


def test_a_line_tells_once_that_an_export_is_run(path_of, classifier, files, tmp_path, caplog):
    path = shutil.copy(path_of("onnx"), tmp_path / "copy.onnx")
    for model in (classifier.folder, path, path):
        assert command_line.main(["predict", str(model), str(files[0])]) == 0
    (record,) = [r for r in caplog.records if r.name.startswith("keras_vit")]
    assert record.getMessage().startswith(f"{path} is an export and is run as a program")


def test_a_pickled_export_is_opened_again(path_of, files):
    opened = load_artefact(path_of("onnx"))
    again = ForkingPickler.loads(ForkingPickler.dumps(opened))
    assert again.predict(files) == opened.predict(files)


def runtime_model(answer):
    """An export that answers a batch by a function."""
    return RuntimeModel(Signature(answer, takes_pixels=True), (8, 8), [], pathlib.Path("made"))


@pytest.mark.parametrize(
    "answer",
    [
        lambda batch: np.full((len(batch), 3), 1e9, "float32"),
        lambda batch: np.full((len(batch), 3), -1, "float32"),
        lambda batch: np.full((3 * len(batch), 3), 1 / 3, "float32"),
        lambda batch: np.full((len(batch), 3), "cat"),
        lambda batch: np.ones((len(batch), 3), "int64"),
        lambda batch: np.ones(len(batch), "float32"),
    ],
    ids=["1e9", "-1", "three rows", "text", "integers", "no classes"],
)
def test_an_answer_that_is_none_is_an_error_when_an_export_is_opened(answer):
    with pytest.raises(ValueError, match="An export"):
        runtime_model(answer)


def test_an_answer_that_depends_on_the_image_is_checked_too():
    opened = runtime_model(lambda batch: batch.max(axis=(1, 2)).astype("float32"))
    assert np.isnan(opened.predict_on_batch(np.zeros((2, 8, 8, 3), "uint8"))).all()
    with pytest.raises(ValueError, match="0 to 1.*: 7"):
        opened.predict_on_batch(np.full((2, 8, 8, 3), 7, "uint8"))


# The web page holds the ONNX file.
@pytest.mark.parametrize("name", ["keras", "onnx", "tflite", "openvino", slow("saved_model")])
def test_threads_get_the_answers_of_their_own_images(name, classifier, path_of):
    """The batches of the threads have several sizes."""
    answering = classifier if name == "keras" else load_artefact(path_of(name))
    rng = np.random.default_rng(0)
    calls = [list(rng.integers(0, 256, (1 + k % 3, 32, 24, 3), "uint8")) for k in range(24)]
    alone = [answering.predict(images, top=3) for images in calls]
    assert len({repr([answer.top for answer in answers]) for answers in alone}) == 24
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            together = list(pool.map(lambda images: answering.predict(images, top=3), calls))
            for ours, theirs in zip(together, alone, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    assert (one.error, one.labels) == (None, other.labels)
                    assert dict(one.top) == pytest.approx(dict(other.top), abs=1e-6)
