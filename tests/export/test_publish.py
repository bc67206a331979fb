"""Steps of every export: check images, comparison, refusals that leave nothing."""

import pathlib
import types

import numpy as np
import pytest

import keras_vit.export
from keras_vit.export import check, publish
from keras_vit.export.check import ExportReport, SignatureCheck
from keras_vit.export.formats import check_images
from keras_vit.export.formats.artefacts import open_export
from keras_vit.export.formats.export_format import INTEGER_PRECISIONS
from keras_vit.export.formats.table import FORMATS
from keras_vit.predictor import Predictor
from keras_vit.reports.pages import report_section


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


def test_a_row_that_is_not_finite_agrees_with_nothing():
    assert compare([[0.6, 0.4], [0.4, 0.6]], [[np.nan, 0.4], [0.4, 0.6]]).agreement == 0.5
    assert compare([[0.9, 0.8]], [[np.nan, 0.8]], thresholds=(0.5, 0.75)).agreement == 0


def test_the_report_of_an_export_has_its_facts_in_every_form():
    serve = SignatureCheck("serve", 0.99, 2.4e-07, 1e-8, 1.5, None)
    report = ExportReport("m.tflite", "tflite", 2_000_000, 100, (serve,), ("in int8",))
    shown = report.report()
    assert str(report).splitlines() == [
        "m.tflite  tflite, 2.00 MB, checked on 100 images",
        "",
        "signature  agreement  largest     mean  ms/image  Keras ms",
        "serve         99.00%  2.4e-07  1.0e-08      1.50         -",
        "Note: in int8",
    ]
    assert "| serve | 99.00% | 2.4e-07 |" in shown.to_markdown()
    assert "99.00%" in report_section(shown)
    assert shown.to_json()["checks"][0]["agreement"] == 0.99
    assert shown.tables["signatures"].rows[0][1] == "99.00%"


def agreement_notes(classifier, precision, agreeing, count, least=None):
    serve = SignatureCheck("serve", agreeing / count, 0.0, 0.0, 0.0, None)
    report = ExportReport("m.tflite", "tflite", 0, count, (serve,))
    return publish.check_agreement(report, classifier, precision, least)


# Binomial shares of at most so many differences, of images that agree on 98%: 1 of 32 in 48% of the
# cases, 3 of 32 in 2.6%; 2 of 16 in 4.0%.
@pytest.mark.parametrize(
    ("precision", "agreeing", "count", "refused"),
    [
        ("float32", 31, 32, True),
        ("dynamic_int8", 31, 32, False),
        ("dynamic_int8", 29, 32, True),
        ("int8", 15, 16, False),
        ("int8", 14, 16, True),
        ("int8", 1, 3, True),
        ("int8", 960, 1000, True),
    ],
)
def test_integers_are_refused_where_the_images_show_that_too_few_answers_stay(
    classifier, precision, agreeing, count, refused
):
    if refused:
        with pytest.raises(ValueError, match=f"{agreeing / count:.1%} of {count} images"):
            agreement_notes(classifier, precision, agreeing, count)
    else:
        agreement_notes(classifier, precision, agreeing, count)


def test_integers_state_the_share_of_answers_that_stay_with_its_interval(classifier):
    (note,) = agreement_notes(classifier, "int8", 31, 32)
    # Clopper and Pearson's, as their table and R's binom.test(31, 32) have it.
    assert note == "Integers keep 96.9% of the answers of 32 images (95% interval 83.8 to 99.9)."
    assert agreement_notes(classifier, "float32", 32, 32) == ()
    with pytest.raises(ValueError, match="100.0%"):
        agreement_notes(classifier, "int8", 31, 32, least=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"), [*(("tflite", name) for name in INTEGER_PRECISIONS), ("onnx", "int8")]
)
def test_a_released_classifier_is_exported_with_integers(tmp_path, name, precision):
    # One of its samples is so near the bound of "unknown" that integers answer it.
    report = getattr(keras_vit.export, name)("cifar10", tmp_path / f"m.{name}", precision=precision)
    assert report.size < 4_000_000
    assert report.agreement > 0.9
    assert "unknown included; the bound on the errors was not tested" in report.notes[-1]


def export(path, classifier, files, content):
    """Writes a TFLite file of given bytes, as an export of a classifier."""

    class Given(FORMATS["tflite"]):
        def write(self, path, classifier, images):
            path.write_bytes(content)
            return ()

    publish.write_export(Given(input="float", check_images=files), classifier, path)


def test_an_export_that_disagrees_leaves_nothing(tflite, classifier, files, tmp_path):
    # A classifier that differs from the exported one in the order of its classes.
    turned = Predictor(classifier.model, classifier.class_names[::-1], classifier.preprocessing)
    turned.model = types.SimpleNamespace(
        predict_on_batch=lambda images: classifier.model.predict_on_batch(images)[:, ::-1],
        count_params=classifier.model.count_params,
        layers=classifier.model.layers,
        _flatten_layers=classifier.model._flatten_layers,
        name="turned",
    )
    content = pathlib.Path(tflite("float32").path).read_bytes()
    with pytest.raises(ValueError, match=r"99.0% .*\d+.0% of 10 images"):
        export(tmp_path / "x.tflite", turned, files, content)
    assert not list(tmp_path.iterdir())


def test_an_export_that_does_not_run_leaves_nothing_and_names_the_reason(
    classifier, files, tmp_path, own_process
):
    with pytest.raises(ValueError, match="own runtime: .*Flatbuffer"):
        export(tmp_path / "x.tflite", classifier, files, b"no model")
    assert not list(tmp_path.iterdir())


def test_verify_names_the_formats(tmp_path):
    with pytest.raises(ValueError, match="model.xml or saved_model.pb"):
        keras_vit.export.verify(tmp_path)


def test_without_samples_an_export_is_checked_on_synthetic_images_which_do_not_calibrate(
    model, classifier, tmp_path
):
    bare = Predictor(model, classifier.class_names, classifier.preprocessing)
    with check_images.images_of_export(FORMATS["onnx"](), bare) as images:
        read = check_images.load_images(bare, images.files)
    assert read.shape == (3, *bare.preprocessing.image_size, 3)
    assert images.notes[0] == check_images.SYNTHETIC
    with pytest.raises(ValueError, match="real images"):
        keras_vit.export.tflite(bare, tmp_path / "x.tflite", precision="int8")


@pytest.mark.parametrize("kind", ["tflite", "onnx", "saved_model", "openvino"])
def test_an_older_export_is_replaced_only_on_request_and_nothing_else_is(kind, tmp_path):
    known = FORMATS[kind]
    path = tmp_path / f"1{known.suffix}"
    if known.marker:
        path.mkdir()
    (path / known.marker if known.marker else path).touch()
    with pytest.raises(ValueError, match="--overwrite"):
        publish.check_output(path, known)
    publish.check_output(path, known, overwrite=True)
    if known.marker:
        (path / known.marker).rename(path / "thesis.tex")
        with pytest.raises(ValueError, match="by hand"):
            publish.check_output(path, known, overwrite=True)


def test_a_model_above_two_gib_is_refused_before_work_starts(classifier, tmp_path):
    huge = Predictor(classifier.model, classifier.class_names, classifier.preprocessing)
    huge.model = types.SimpleNamespace(count_params=lambda: 2**29)
    with pytest.raises(ValueError, match="saved_model .*2.00 GiB"):
        keras_vit.export.onnx(huge, tmp_path / "x.onnx")


def test_a_saved_model_in_a_folder_that_tensorflow_reads_as_a_pattern_is_refused(tmp_path):
    place = tmp_path / "a [1]" / "model"
    place.mkdir(parents=True)
    (place / "saved_model.pb").write_text("")
    for refused in (
        lambda: publish.check_output(place, FORMATS["saved_model"]),
        lambda: open_export(place),
    ):
        with pytest.raises(ValueError, match=r"pattern: .*a \[1\]/model"):
            refused()
    publish.check_output(place.with_suffix(".onnx"), FORMATS["onnx"])
