import json
import pathlib

import numpy as np
import pytest

import keras_vit.export


@pytest.fixture(scope="module")
def report(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "animals.onnx"
    return keras_vit.export.onnx(classifier, path)


def test_onnx_runtime_gives_the_models_probabilities(report):
    (check,) = report.checks
    assert check.agreement == 1
    assert check.largest_difference < 1e-5  # Float32, depth 2.


def test_any_batch_size_is_accepted(report, classifier):
    import onnxruntime

    session = onnxruntime.InferenceSession(report.path)
    images = np.random.default_rng(0).uniform(-1, 1, (7, 32, 24, 3)).astype("float32")
    (probabilities,) = session.run(["probabilities"], {"images": images})
    np.testing.assert_allclose(
        probabilities, classifier.model.predict(images, verbose=0), atol=1e-5
    )


def test_images_that_are_not_finite_are_not_valid(report, classifier, not_finite):
    import onnxruntime

    session = onnxruntime.InferenceSession(report.path)
    probabilities, valid = session.run(None, {"images": not_finite})
    np.testing.assert_array_equal(valid, [True, False, False, False])
    expected = classifier.model.predict(not_finite[:1], verbose=0)
    np.testing.assert_allclose(probabilities[:1], expected, atol=1e-5)
    assert not probabilities[1:].any()


def test_the_file_has_its_opset_the_class_names_and_the_report(report, classifier):
    import onnx

    model = onnx.load(report.path)
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [18]
    assert "Operator set 18." in report.notes
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(properties["class_names"]) == list(classifier.class_names)
    assert properties["preprocessing"] == classifier.preprocessing.to_json()
    assert json.loads(properties["origin"])["recipe"] == {"seed": 7}
    assert json.loads(properties["check"])["num_images"] == 10


def test_the_converter_gets_no_weights_to_copy(classifier, tmp_path, monkeypatch):
    import onnx
    import tf2onnx

    convert, seen = tf2onnx.convert.from_function, []

    def watched(*arguments, **options):
        content, storage = convert(*arguments, **options)
        seen.append(sum(len(tensor.raw_data) for tensor in content.graph.initializer))
        return content, storage

    monkeypatch.setattr(tf2onnx.convert, "from_function", watched)
    report = keras_vit.export.onnx(classifier, tmp_path / "animals.onnx")
    assert seen[0] < 2000  # Bytes.
    stored = onnx.load(report.path).graph.initializer
    # All 19,171 parameters, or as many after constant folding.
    assert sum(np.prod(tensor.dims) for tensor in stored) > 19_000


def test_only_the_output_file_is_written(report):
    path = pathlib.Path(report.path)
    assert list(path.parent.iterdir()) == [path]


def test_an_unknown_opset_is_an_error(classifier, tmp_path):
    with pytest.raises(ValueError, match="13 to 18. Received: opset=99"):
        keras_vit.export.onnx(classifier, tmp_path / "x.onnx", opset=99)
