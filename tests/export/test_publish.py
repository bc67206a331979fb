import pathlib
import types

import numpy as np
import pytest

import keras_vit.export
from keras_vit.classifier import Classifier
from keras_vit.export import check, check_images, publish
from keras_vit.export.artefacts import open_export
from keras_vit.export.formats import FORMATS, Written
from keras_vit.export.publish import check_output


def compare(expected, received, thresholds=None):
    return check.compare(
        "serve",
        np.array(expected),
        np.array(received),
        keras_seconds=np.array([0.004]),
        seconds=np.array([0.001, 0.003, 0.002, 0.002]),
        thresholds=thresholds,
    )


def test_agreement_counts_equal_first_classes():
    check = compare(
        [[0.6, 0.4], [0.4, 0.6], [0.9, 0.1], [0.2, 0.8]],
        [[0.7, 0.3], [0.6, 0.4], [0.9, 0.1], [0.2, 0.8]],
    )
    assert check.agreement == 0.75
    assert check.largest_difference == pytest.approx(0.2)
    assert check.mean_difference == pytest.approx((2 * 0.1 + 2 * 0.2) / 8)
    assert (check.milliseconds, check.keras_milliseconds) == pytest.approx((2, 4))


def test_multi_label_agreement_is_the_share_of_equal_labels():
    check = compare(
        # Labels: both; the first of two; one of each; none, with another first class; none.
        [[0.9, 0.8], [0.9, 0.8], [0.9, 0.1], [0.2, 0.3], [0.2, 0.3]],
        [[0.6, 0.9], [0.9, 0.7], [0.1, 0.9], [0.3, 0.2], [0.1, 0.4]],
        thresholds=(0.5, 0.75),
    )
    assert check.agreement == (1 + 1 / 2 + 0 + 0 + 1) / 5
    assert compare([[0.9, 0.8]], [[np.nan, 0.8]], thresholds=(0.5, 0.75)).agreement == 0


def test_a_row_that_is_not_finite_agrees_with_nothing():
    assert compare([[0.6, 0.4], [0.4, 0.6]], [[np.nan, 0.4], [0.4, 0.6]]).agreement == 0.5


def test_another_number_of_classes_is_an_error():
    with pytest.raises(ValueError, match=r"classifier's 2 probabilities. Received: shape=\(1, 3\)"):
        compare([[0.6, 0.4]], [[0.5, 0.3, 0.2]])


@pytest.mark.slow
def test_verify_repeats_the_check_of_an_export(tflite, classifier):
    report = keras_vit.export.verify(tflite["float32"].path, classifier.folder)
    (check,), (first,) = report.checks, tflite["float32"].checks
    assert (report.format, check.agreement, report.num_images) == ("tflite", 1, 10)
    assert check.largest_difference == pytest.approx(first.largest_difference, abs=1e-6)


def test_verify_names_the_formats(classifier, tmp_path):
    with pytest.raises(ValueError, match=r"model.xml or saved_model.pb, or a file ending"):
        keras_vit.export.verify(tmp_path, classifier)


def test_the_table_shows_size_agreement_differences_and_both_times(tflite):
    report = tflite["float32"]
    assert f"{report.size / 1e6:.2f} MB, checked on 10 images" in str(report)
    for word in ("agreement", "largest", "mean", "ms/image", "Keras ms", "100.00%"):
        assert word in str(report)
    assert "path" not in report.to_json()


def export(path, classifier, files, content):
    """Writes a TFLite file of given bytes, as an export of a classifier."""

    class Given(FORMATS["tflite"]):
        def write(self, path, classifier, files):
            path.write_bytes(content)
            return Written(files)

    publish.write_export(Given(input="float", check_images=files), classifier, path)


def test_an_export_that_disagrees_leaves_nothing(tflite, classifier, files, tmp_path):
    # A classifier that differs from the exported one in the order of its classes.
    turned = Classifier(classifier.model, classifier.class_names[::-1], classifier.preprocessing)
    turned.model = types.SimpleNamespace(
        predict_on_batch=lambda images: classifier.model.predict_on_batch(images)[:, ::-1],
        count_params=classifier.model.count_params,
        name="turned",
    )
    content = pathlib.Path(tflite["float32"].path).read_bytes()
    with pytest.raises(ValueError, match=r"on 99.0% of the.*Received: \d+.0% of 10 images"):
        export(tmp_path / "x.tflite", turned, files, content)
    assert not list(tmp_path.iterdir())


def test_an_export_that_does_not_run_leaves_nothing_and_names_the_reason(
    classifier, files, tmp_path, own_process
):
    with pytest.raises(
        ValueError, match="does not run in its own runtime: .*not a valid Flatbuffer"
    ):
        export(tmp_path / "x.tflite", classifier, files, b"no model")
    assert not list(tmp_path.iterdir())


def test_check_images_are_spread_evenly_over_a_large_folder(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(check_images, "MAX_CHECK_IMAGES", 3)
    for index in range(9):
        (tmp_path / f"{index}.png").touch()
    with check_images.found_check_images(classifier, tmp_path) as (chosen, notes):
        assert [path[-5] for path in chosen] == ["0", "3", "6"]
    assert notes == ()


def test_without_samples_an_export_is_checked_on_synthetic_images_which_do_not_calibrate(
    model, classifier, tmp_path
):
    bare = Classifier(model, classifier.class_names, classifier.preprocessing)
    with check_images.found_check_images(bare) as (files, notes):
        read = check_images.load_images(bare, files)
    assert read.shape == (3, *bare.preprocessing.image_size, 3)
    assert notes == (check_images.SYNTHETIC,)
    with pytest.raises(ValueError, match="int8 needs real images"):
        keras_vit.export.tflite(bare, tmp_path / "x.tflite", precision="int8")


@pytest.mark.parametrize(
    ("name", "kind"), [("x.tflite", "tflite"), ("x.onnx", "onnx"), ("1", "saved_model")]
)
def test_an_older_export_is_replaced_only_on_request(name, kind, tmp_path):
    path = tmp_path / name
    if kind == "saved_model":
        path.mkdir()
    (path / "saved_model.pb" if kind == "saved_model" else path).touch()
    with pytest.raises(ValueError, match="--overwrite"):
        publish.check_output(path, FORMATS[kind])
    publish.check_output(path, FORMATS[kind], overwrite=True)


def test_another_folder_is_never_replaced_and_another_suffix_is_an_error(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="remove this one by hand"):
        publish.check_output(tmp_path, FORMATS["saved_model"], overwrite=True)
    with pytest.raises(ValueError, match="must end with .onnx"):
        publish.check_output(tmp_path / "x.tflite", FORMATS["onnx"])


def test_a_model_above_two_gib_is_refused_before_work_starts():
    huge = types.SimpleNamespace(count_params=lambda: 2**29)
    with pytest.raises(ValueError, match="saved_model instead. Received: a model of 2.00 GiB"):
        publish.check_model_size(huge, FORMATS["onnx"])


def test_a_saved_model_in_a_folder_that_tensorflow_reads_as_a_pattern_is_refused(tmp_path):
    place = tmp_path / "a [1]" / "model"
    with pytest.raises(ValueError, match=r"as a pattern: .* Received: .*a \[1\]/model"):
        check_output(place, FORMATS["saved_model"])
    check_output(place.with_suffix(".onnx"), FORMATS["onnx"])
    place.mkdir(parents=True)
    (place / "saved_model.pb").write_text("")
    with pytest.raises(ValueError, match=r"as a pattern: .* Received: .*a \[1\]/model"):
        open_export(place)
