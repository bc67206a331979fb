import pathlib
import re

import numpy as np
import onnx
import onnxruntime
import pytest

import keras_vit.export
from keras_vit.configs import BiTConfig
from keras_vit.export.formats.onnx import onnx_content, quantize
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report(report_of):
    return report_of("onnx", "float32")


def test_the_file_has_its_opset_and_an_output_that_tells_whether_an_image_is_valid(
    report, not_finite
):
    model = onnx.load(report.path)
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [18]
    session = onnxruntime.InferenceSession(report.path)
    probabilities, valid = session.run(None, {"images": not_finite})
    np.testing.assert_array_equal(valid, [True, False, False, False])
    assert not probabilities[1:].any()
    path = pathlib.Path(report.path)
    assert list(path.parent.iterdir()) == [path]  # Nothing else is written.


def fused(path):
    """The operations that ONNX Runtime makes of a file."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = f"{path}.optimized"
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


# A matrix product of a Vision Transformer is an integer one if it gives float32, a convolution of a
# BiT if it gives 8 bits.
@pytest.mark.parametrize(
    ("config", "integer"), [(tiny_config(), {"QGemm": 6}), (BiTConfig((1,)), {"QLinearConv": 4})]
)
def test_the_pairs_of_int8_are_those_that_onnx_runtime_fuses(tmp_path, config, integer):
    model = keras_vit.build(config, input_shape=(32, 32, 3), classes=3)
    small = Predictor(model, ("a", "b", "c"), Preprocessing((32, 32)))
    images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
    path = str(tmp_path / "int8.onnx")
    onnx.save(quantize(onnx_content(small, "float"), images), path)
    operations = fused(path)
    counts = {name: operations.count(name) for name in ("QLinearConv", "QGemm")}
    assert {name: count for name, count in counts.items() if count} == integer


def test_images_that_calibrate_must_be_readable(classifier, files, tmp_path):
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    options = {"precision": "int8", "check_images": [tmp_path / "cut.jpg", *files[:2]]}
    with pytest.raises(ValueError, match="cut.jpg cannot be read"):
        keras_vit.export.onnx(classifier, tmp_path / "x.onnx", **options)


def test_the_page_configures_triton_with_the_inputs_and_outputs_of_a_file():
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    field = r'(in|out)put { name: "(\w+)" data_type: TYPE_(\w+) dims: \[ (.*?) \]'
    session = onnxruntime.InferenceSession(ROOT / "tests" / "golden" / "export.onnx")
    types = {"tensor(uint8)": "UINT8", "tensor(float)": "FP32", "tensor(bool)": "BOOL"}
    given = [("in", each) for each in session.get_inputs()]
    given += [("out", each) for each in session.get_outputs()]
    # Triton's sizes lack the batch; an output that is one number has the size 1.
    expected = [
        (kind, each.name, types[each.type], len(each.shape[1:]) or 1) for kind, each in given
    ]
    found = re.findall(field, page)
    assert [(*row, len(dims.split(","))) for *row, dims in found] == expected
