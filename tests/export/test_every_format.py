"""Each format and precision in its own runtime, compared with Keras, and the texts in it."""

import json

import numpy as np
import onnxruntime
import pytest

from keras_vit.export.formats.artefacts import load_artefact, open_export
from keras_vit.export.formats.export_format import INTEGER_PRECISIONS
from keras_vit.export.formats.onnx import onnx_content
from keras_vit.inspection import attention_rollout
from keras_vit.utils.files import CLASSES


def slow(*row):
    return pytest.param(*row, marks=pytest.mark.slow)


# Float32 rounds, at depth 2; weights and, in int8, activations have 8 bits.
every_format = pytest.mark.parametrize(
    ("name", "precision", "tolerance"),
    [
        ("saved_model", "float32", 1e-5),
        ("onnx", "float32", 1e-5),
        slow("onnx", "float16", 3e-3),
        slow("onnx", "int8", 0.2),
        ("tflite", "float32", 1e-5),
        ("tflite", "float16", 3e-3),
        ("tflite", "dynamic_int8", 0.2),
        ("tflite", "int8", 0.2),
        slow("openvino", "float32", 1e-5),
        slow("openvino", "int8", 0.2),
    ],
)


@every_format
def test_the_check_finds_the_models_answers(report_of, name, precision, tolerance):
    integer = precision in INTEGER_PRECISIONS
    assert len(report_of(name, precision).checks)
    for check in report_of(name, precision).checks:
        assert check.agreement == 1 or integer
        assert check.largest_difference < (0.1 if integer else tolerance)


@every_format
def test_batches_get_the_models_probabilities(
    report_of, classifier, not_finite, name, precision, tolerance
):
    export = load_artefact(report_of(name, precision).path)
    images = np.random.default_rng(0).uniform(-1, 1, (7, 32, 24, 3)).astype("float32")
    expected = classifier.model.predict(images, verbose=0)
    np.testing.assert_allclose(export.model.predict_on_batch(images), expected, atol=tolerance)
    # Images with a pixel that is no number get no probabilities, and the others theirs.
    received = export.model.predict_on_batch(not_finite)
    np.testing.assert_array_equal(np.isnan(received).all(axis=1), [False, True, True, True])
    expected = classifier.model.predict(not_finite[:1], verbose=0)
    np.testing.assert_allclose(received[:1], expected, atol=tolerance)


@every_format
def test_the_file_holds_the_facts(report_of, classifier, name, precision, tolerance):
    report = report_of(name, precision)
    texts = open_export(report.path).texts
    assert texts[CLASSES].splitlines() == list(classifier.class_names)
    assert texts["preprocessing.json"] == classifier.preprocessing.to_json()
    assert json.loads(texts["origin.json"])["recipe"] == {"seed": 7}
    # Half of the samples gave the ranges.
    assert report.num_images == (5 if precision == "int8" else 10)
    assert json.loads(texts["check.json"])["num_images"] == report.num_images


@pytest.mark.parametrize(("name", "saved"), [("tflite", 0.9), slow("onnx", 0.8)])
def test_float16_stores_matrices_in_half_the_bytes(report_of, name, saved):
    # Half of the 4 bytes of 19,171 parameters, less what the graph and its texts take.
    sizes = [report_of(name, precision).size for precision in ("float32", "float16")]
    assert sizes[0] - sizes[1] > saved * 2 * 19_171


def test_the_attention_of_a_web_page_is_the_rollout_of_keras(classifier):
    images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 24, 3)).astype("float32")
    content = onnx_content(classifier, "float", attention=True).SerializeToString()
    session = onnxruntime.InferenceSession(content)
    probabilities, attention = session.run(["probabilities", "attention"], {"images": images})
    expected = classifier.model.predict_on_batch(images)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)  # float32, depth 2
    np.testing.assert_allclose(attention, attention_rollout(classifier.model, images), atol=1e-5)
