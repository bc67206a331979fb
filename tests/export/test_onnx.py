import pathlib
import re

import numpy as np
import pytest

import keras_vit.export
from keras_vit.export.onnx import quantize

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report(report_of):
    return report_of("onnx", "float32")


@pytest.fixture(scope="module")
def int8(report_of):
    return report_of("onnx", "int8")


def graph_of(report):
    import onnx

    graph = onnx.load(report.path).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return graph.node, arrays


def test_the_file_has_its_opset_and_an_output_that_tells_whether_an_image_is_valid(
    report, not_finite
):
    import onnx
    import onnxruntime

    model = onnx.load(report.path)
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [18]
    assert "Operator set 18." in report.notes
    session = onnxruntime.InferenceSession(report.path)
    probabilities, valid = session.run(None, {"images": not_finite})
    np.testing.assert_array_equal(valid, [True, False, False, False])
    assert not probabilities[1:].any()


@pytest.mark.slow
def test_float16_has_all_matrices(report_of):
    _, arrays = graph_of(report_of("onnx", "float16"))
    assert {array.dtype for array in arrays.values() if array.ndim > 1} == {np.dtype("float16")}


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
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = f"{path}.optimized"
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


@pytest.mark.parametrize(
    ("last", "integer"), [("MatMul", {"QGemm": 1}), ("Tanh", {"QLinearConv": 2})]
)
def test_the_pairs_of_int8_are_those_that_onnx_runtime_fuses(tmp_path, last, integer):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    rng, make = np.random.default_rng(0), onnx.helper.make_node
    shapes = {"first": (4, 4, 1, 1), "last": (4, 4, 1, 1), "matrix": (64, 8), "bias": (8,)}
    arrays = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    nodes = [
        make("Conv", ["images", "first"], ["a"], "unit/conv_1/convolution"),
        make("Tanh", ["a"], ["b"]),
        make("Conv", ["b", "last"], ["c"], "unit/conv_3/convolution"),
        make("Tanh", ["c"], ["d"]),
        make("Reshape", ["d", "shape"], ["e" if last == "MatMul" else "probabilities"]),
    ]
    if last == "MatMul":
        nodes.append(make("MatMul", ["e", "matrix"], ["f"], "mlp/dense_1/MatMul"))
        nodes.append(make("Add", ["f", "bias"], ["probabilities"]))
    value = onnx.helper.make_tensor_value_info
    constants = {**arrays, "shape": np.array([-1, 64])}
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        [value("images", onnx.TensorProto.FLOAT, ("batch", 4, 8, 8))],
        [value("probabilities", onnx.TensorProto.FLOAT, ("rows", None))],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    content = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10)
    images = rng.random((5, 4, 8, 8)).astype("float32")
    path = str(tmp_path / "int8.onnx")
    onnx.save(quantize(content, images), path)

    operations = fused(path)
    counts = {name: operations.count(name) for name in ("QLinearConv", "QGemm")}
    assert {name: count for name, count in counts.items() if count} == integer
    options = runtime.SessionOptions()  # In float32: convolutions may be cut off without VNNI.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    models = (content.SerializeToString(), path)
    sessions = [runtime.InferenceSession(model, options) for model in models]
    exact, found = (session.run(None, {"images": images})[0] for session in sessions)
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.slow
def test_int8_products_are_integer_ones_in_onnx_runtime(int8):
    operations = fused(int8.path)
    assert operations.count("QGemm") == 6 * 2
    assert "DequantizeLinear" not in operations  # Neither of weights nor of results.
    assert "Ranges of activations from 5 images." in int8.notes


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
    import onnx
    import tf2onnx

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


def test_only_the_output_file_is_written_and_an_unknown_opset_is_an_error(
    report, classifier, tmp_path
):
    path = pathlib.Path(report.path)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match="13 to 18. Received: opset=99"):
        keras_vit.export.onnx(classifier, tmp_path / "x.onnx", opset=99)


def test_the_page_configures_triton_with_the_inputs_and_outputs_of_a_file():
    import onnxruntime

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
