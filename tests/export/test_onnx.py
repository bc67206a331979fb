import pathlib
import re

import numpy as np
import onnx
import onnxruntime
import pytest
import tf2onnx

import keras_vit.export
from keras_vit.classifier import Classifier
from keras_vit.configs import BiTConfig
from keras_vit.export.onnx import onnx_content, quantize
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report(report_of):
    return report_of("onnx", "float32")


@pytest.fixture(scope="module")
def int8(report_of):
    return report_of("onnx", "int8")


def graph_of(report):
    graph = onnx.load(report.path).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return graph.node, arrays


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


@pytest.mark.slow
def test_int8_has_the_weights_of_the_blocks_by_channel(report, int8):
    _, floats = graph_of(report)
    nodes, arrays = graph_of(int8)
    weights = [node for node in nodes if arrays.get(node.input[0], np.zeros(0)).dtype == np.int8]
    matrices = [node for node in weights if arrays[node.input[0]].ndim == 2]
    assert len(matrices) == 6 * 2  # The patch embedding and the head stay float.
    for node in matrices:
        quantized, scales, zeros = (arrays[name] for name in node.input)
        weight = floats[node.input[0].removesuffix("_quantized")]
        np.testing.assert_allclose(scales, np.abs(weight).max(axis=0) / 64, rtol=0.02)  # 7 bits.
        assert not zeros.any()
        # Half a step, and what float32 adds to it.
        assert np.all(np.abs(quantized * scales - weight) <= 0.501 * scales)


@pytest.mark.slow
def test_int8_computes_products_with_weights_only(int8):
    nodes, arrays = graph_of(int8)
    made_by = {name: node for node in nodes for name in node.output}

    def is_integer(name):
        return name in made_by and made_by[name].op_type == "DequantizeLinear"

    in_integers, in_float = [], []
    for node in nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            continue
        (in_integers if all(map(is_integer, node.input)) else in_float).append(node)
    assert {node.op_type for node in in_integers} == {"Gemm"}  # With the bias.
    assert len(in_integers) == 6 * 2
    assert all(len(node.input) == 3 for node in in_integers)
    products = [node.name for node in in_float if node.op_type in ("MatMul", "Gemm")]
    assert len(products) == 2 * 2 + 2  # Attention, the patch embedding and the head.
    # Their results are float32, as ONNX Runtime's products with a bias give them.
    results = {node.output[0] for node in in_integers}
    assert not [n for n in nodes if n.op_type == "QuantizeLinear" and n.input[0] in results]


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
    small = Classifier(model, ("a", "b", "c"), Preprocessing((32, 32)))
    images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
    path = str(tmp_path / "int8.onnx")
    onnx.save(quantize(onnx_content(small, "float"), images), path)
    operations = fused(path)
    counts = {name: operations.count(name) for name in ("QLinearConv", "QGemm")}
    assert {name: count for name, count in counts.items() if count} == integer


def test_calibration_images_can_be_given_and_must_be_readable(classifier, files, tmp_path):
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    options = {"precision": "int8", "calibration_images": [tmp_path / "cut.jpg"]}
    with pytest.raises(ValueError, match=r"cut.jpg cannot be read as an image\. The file is"):
        keras_vit.export.onnx(classifier, tmp_path / "x.onnx", **options)
    options["calibration_images"] = files[:3]
    report = keras_vit.export.onnx(classifier, tmp_path / "x.onnx", **options)
    assert report.num_images == 10
    assert "Ranges of activations from 3 images." in report.notes


def test_the_converter_gets_no_weights_to_copy(classifier, tmp_path, monkeypatch):
    convert, seen = tf2onnx.convert.from_function, []

    def watched(*arguments, **options):
        content, storage = convert(*arguments, **options)
        seen.append(sum(len(tensor.raw_data) for tensor in content.graph.initializer))
        return content, storage

    monkeypatch.setattr(tf2onnx.convert, "from_function", watched)
    report = keras_vit.export.onnx(classifier, tmp_path / "animals.onnx", input="float")
    assert seen[0] < 2000  # Bytes.
    stored = onnx.load(report.path).graph.initializer
    # All 19,171 parameters, or as many after constant folding.
    assert sum(np.prod(tensor.dims) for tensor in stored) > 19_000


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
