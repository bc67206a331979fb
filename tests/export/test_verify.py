import dataclasses
import shutil
import types

import numpy as np
import pytest

from keras_vit.classifier import Classifier
from keras_vit.export import job, verify


def reference(probabilities):
    return verify.Reference(("a", "b"), np.zeros(0), np.array(probabilities), np.array([0.004]))


def test_agreement_counts_equal_first_classes():
    expected = reference([[0.6, 0.4], [0.4, 0.6], [0.9, 0.1], [0.2, 0.8]])
    received = np.array([[0.7, 0.3], [0.6, 0.4], [0.9, 0.1], [0.2, 0.8]])
    check = verify.compare("serve", expected, received, np.array([0.001, 0.003, 0.002, 0.002]))
    assert check.agreement == 0.75
    assert check.largest_difference == pytest.approx(0.2)
    assert check.mean_difference == pytest.approx((2 * 0.1 + 2 * 0.2) / 8)
    assert (check.milliseconds, check.keras_milliseconds) == pytest.approx((2, 4))


def test_a_row_that_is_not_finite_agrees_with_nothing():
    received = np.array([[np.nan, 0.4], [0.4, 0.6]])
    check = verify.compare("serve", reference([[0.6, 0.4], [0.4, 0.6]]), received, np.ones(2))
    assert check.agreement == 0.5


def test_the_table_shows_size_agreement_differences_and_both_times(tflite):
    text = str(tflite["float32"])
    assert f"{tflite['float32'].size / 1e6:.2f} MB, checked on 10 images" in text
    for word in ("agreement", "largest", "mean", "ms/image", "Keras ms", "100.00%"):
        assert word in text


def test_an_export_that_disagrees_leaves_nothing(tflite, classifier, files, tmp_path):
    # The artefact is another model's: the same but for the order of its classes.
    turned = Classifier(classifier.model, classifier.class_names[::-1], classifier.preprocessing)
    turned.model = types.SimpleNamespace(
        predict_on_batch=lambda images: classifier.model.predict_on_batch(images)[:, ::-1]
    )
    with pytest.raises(ValueError, match=r"99.0% of the images.*Received: \d+.0% of 10 images"):
        job.run(
            turned,
            tmp_path / "x.tflite",
            "tflite",
            write=lambda path: shutil.copy(tflite["float32"].path, path),
            record=lambda path, report: None,
            files=files,
            minimum_agreement=0.99,
            overwrite=False,
        )
    assert not list(tmp_path.iterdir())


def test_an_export_that_does_not_run_leaves_nothing_and_says_why(classifier, files, tmp_path):
    with pytest.raises(
        ValueError, match="does not run in its own runtime: .*not a valid Flatbuffer"
    ):
        job.run(
            classifier,
            tmp_path / "x.tflite",
            "tflite",
            write=lambda path: path.write_bytes(b"no model"),
            record=lambda path, report: None,
            files=files,
            minimum_agreement=0.99,
            overwrite=False,
        )
    assert not list(tmp_path.iterdir())


def test_a_large_folder_is_checked_on_an_even_choice(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "MAX_IMAGES", 3)
    for index in range(9):
        (tmp_path / f"{index}.png").touch()
    chosen = job.check_files(classifier, tmp_path)
    assert [path[-5] for path in chosen] == ["0", "3", "6"]


def test_without_images_to_check_on_nothing_is_exported(model, classifier):
    bare = Classifier(model, classifier.class_names, classifier.preprocessing)
    with pytest.raises(ValueError, match="--check-images"):
        job.check_files(bare)


@pytest.mark.parametrize("name", ["x.tflite", "x.onnx", "1"])
def test_what_is_there_is_replaced_only_on_request(name, tmp_path):
    format_name = {"1": "saved_model"}.get(name, name[2:])
    path = tmp_path / name
    if format_name == "saved_model":
        path.mkdir()
        (path / "saved_model.pb").touch()
    else:
        path.touch()
    with pytest.raises(ValueError, match="--overwrite"):
        job.check_output(path, format_name)
    job.check_output(path, format_name, overwrite=True)


def test_overwriting_replaces_a_whole_folder(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    (tmp_path / "1" / "left over").touch()
    with job.new_output(tmp_path / "1", "saved_model", overwrite=True) as scratch:
        (scratch / "saved_model.pb").write_text("new")
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["saved_model.pb"]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_folder_of_anything_else_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="remove this one by hand"):
        job.check_output(tmp_path, "saved_model", overwrite=True)


def test_a_wrong_suffix_is_told(tmp_path):
    with pytest.raises(ValueError, match="must end with .onnx"):
        job.check_output(tmp_path / "x.tflite", "onnx")


def test_a_model_above_two_gib_is_refused_before_work_starts():
    huge = types.SimpleNamespace(count_params=lambda: 2**29)
    with pytest.raises(ValueError, match="saved_model instead. Received: a model of 2.00 GiB"):
        job.check_file_size(huge, "onnx")


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(
        ImportError, match=r"needs no_such_thing: pip install 'keras-vit\[export\]'"
    ):
        job.needed("no_such_thing.at_all")


def test_figures_do_not_tell_where_the_file_was(tflite):
    assert "path" not in tflite["float32"].figures()
    assert dataclasses.asdict(tflite["float32"])["path"].endswith("float32.tflite")
