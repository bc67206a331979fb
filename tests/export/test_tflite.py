import pathlib
import zipfile

import flatbuffers
import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

import keras_vit.export
from keras_vit.classifier import Classifier
from keras_vit.export.tflite import TFLite, finished, image_classifier_metadata


def read(report):
    return pathlib.Path(report.path).read_bytes()


def tensors(report):
    interpreter = Interpreter(report.path)
    interpreter.allocate_tensors()
    return interpreter.get_tensor_details()


def test_the_only_output_is_the_one_that_mediapipe_expects(tflite):
    run = Interpreter(tflite["int8"].path).get_signature_runner("serve")
    assert list(run.get_output_details()) == ["probabilities"]


@pytest.mark.parametrize("precision", ["dynamic_int8", "int8"])
def test_integer_weights_have_a_scale_for_each_channel(tflite, precision):
    kernels = [
        tensor
        for tensor in tensors(tflite[precision])
        if tensor["dtype"] == np.int8 and len(tensor["quantization_parameters"]["scales"]) > 1
    ]
    for tensor in kernels:
        scales = tensor["quantization_parameters"]["scales"]
        axis = tensor["quantization_parameters"]["quantized_dimension"]
        assert len(scales) == tensor["shape"][axis]
    # Six matrices a block; the patch embedding and the head stay float.
    assert len(kernels) == 6 * 2


def test_int8_has_fixed_ranges_except_for_the_residual_stream_and_its_products(tflite):
    interpreter = Interpreter(tflite["int8"].path)
    interpreter.allocate_tensors()
    dtypes = {tensor["index"]: tensor["dtype"] for tensor in interpreter.get_tensor_details()}
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(read(tflite["int8"]), 0))
    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if name.isupper()}
    first = {}
    for operator in model.subgraphs[0].operators:
        name = names[model.operatorCodes[operator.opcodeIndex].builtinCode]
        first.setdefault(name, []).append(dtypes[operator.inputs[0]])
    # In each block key, query, value and the MLP's first have ranges of the calibration images.
    block = [*[np.int8] * 3, np.float32, np.int8, np.float32]
    assert first["FULLY_CONNECTED"] == [np.float32, *block * 2, np.float32]
    for name in ("GELU", "BATCH_MATMUL", "SOFTMAX", "ADD"):
        assert set(first[name]) == {np.float32}


@pytest.mark.parametrize("precision", TFLite.precisions)
def test_operations_are_builtin_and_the_batch_is_fixed(tflite, precision):
    finished(read(tflite[precision]))
    (images,) = Interpreter(tflite[precision].path).get_input_details()
    assert images["shape_signature"].tolist() == [1, 32, 24, 3]


@pytest.mark.parametrize(
    ("function", "shape", "message"),
    [
        (lambda x: tf.reshape(x, (1, 2, 2, 2, 2)) + 1, (1, 16), "rank 4"),
        (tf.linalg.det, (1, 4, 4), "builtin operations only.*FlexMatrixDeterminant"),
    ],
)
def test_rank_five_and_operations_of_tensorflow_are_refused(function, shape, message):
    concrete = tf.function(function).get_concrete_function(tf.TensorSpec(shape, "float32"))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module())
    converter.target_spec.supported_ops.add(tf.lite.OpsSet.SELECT_TF_OPS)
    with pytest.raises(ValueError, match=message):
        finished(converter.convert())


def test_the_file_is_an_archive_with_labels(tflite, classifier):
    with zipfile.ZipFile(tflite["int8"].path) as archive:
        labels = archive.read("labels.txt").decode().splitlines()
    assert labels == list(classifier.class_names)


class Reader:
    """Reads a flatbuffer by places of fields, as the schema numbers them."""

    def __init__(self, table):
        self.table = table

    @classmethod
    def root(cls, content):
        offset = flatbuffers.encode.Get(flatbuffers.packer.uoffset, content, 0)
        return cls(flatbuffers.table.Table(content, offset))

    def _offset(self, place):
        return self.table.Offset(4 + 2 * place)

    def text(self, place):
        return self.table.String(self._offset(place) + self.table.Pos).decode()

    def number(self, place):
        offset = self._offset(place) + self.table.Pos
        return self.table.Get(flatbuffers.number_types.Int8Flags, offset)

    def inside(self, place):
        position = self.table.Indirect(self._offset(place) + self.table.Pos)
        return Reader(flatbuffers.table.Table(self.table.Bytes, position))

    def items(self, place):
        start = self.table.Vector(self._offset(place))
        return [
            Reader(flatbuffers.table.Table(self.table.Bytes, self.table.Indirect(start + 4 * k)))
            for k in range(self.table.VectorLen(self._offset(place)))
        ]

    def floats(self, place):
        kind = flatbuffers.number_types.Float32Flags
        return self.table.GetVectorAsNumpy(kind, self._offset(place)).tolist()


def metadata(content):
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    (entry,) = [entry for entry in model.metadata if entry.name == b"TFLITE_METADATA"]
    return bytes(model.buffers[entry.buffer].data)


def test_metadata_has_the_normalisation_and_the_file_of_labels(tflite):
    content = metadata(read(tflite["int8"]))
    assert content[4:8] == b"M001"
    (graph,) = Reader.root(content).items(3)
    (images,), (probabilities,) = graph.items(2), graph.items(3)
    (unit,) = images.items(4)
    assert (unit.number(0), unit.inside(1).floats(0), unit.inside(1).floats(1)) == (
        1,  # NormalizationOptions.
        [127.5],
        [127.5],
    )
    assert (images.text(0), images.inside(3).number(0)) == ("images", 2)  # ImageProperties.
    (labels,) = probabilities.items(6)
    assert (labels.text(0), labels.number(2)) == ("labels.txt", 2)  # TENSOR_AXIS_LABELS.


def test_metadata_normalises_to_any_range():
    (graph,) = Reader.root(image_classifier_metadata("model", (0.0, 1.0))).items(3)
    (unit,) = graph.items(2)[0].items(4)
    assert (unit.inside(1).floats(0), unit.inside(1).floats(1)) == ([0.0], [255.0])


@pytest.mark.parametrize("batch_size", [pytest.param(4, marks=pytest.mark.slow), None])
def test_other_batches_are_as_good(classifier, expected, tmp_path, batch_size):
    report = keras_vit.export.tflite(
        classifier, tmp_path / "x.tflite", precision="int8", input="float", batch_size=batch_size
    )
    assert report.agreement == 1
    (images,) = Interpreter(report.path).get_input_details()
    assert images["shape_signature"][0] == (batch_size or -1)


def test_a_mixed_precision_model_is_exported_in_float32(classifier, model, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        config = keras_vit.ViTConfig(patch_size=8, width=32, depth=2, mlp_dim=64, num_heads=2)
        mixed = keras_vit.build(config, classes=3, input_shape=(32, 24, 3))
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(model.get_weights())
    mixed = Classifier(
        mixed, classifier.class_names, classifier.preprocessing, folder=classifier.folder
    )
    report = keras_vit.export.tflite(
        mixed, tmp_path / "x.tflite", input="float", minimum_agreement=0.8
    )
    assert "float32 copy" in str(report)
    # bfloat16 keeps 8 bits: the copy is the float32 model, not the mixed one, to rounding.
    images = np.random.default_rng(0).uniform(-1, 1, (1, 32, 24, 3)).astype("float32")
    answer = Interpreter(report.path).get_signature_runner("serve")(images=images)
    np.testing.assert_allclose(answer["probabilities"], model.predict(images, verbose=0), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"precision": "int4"}, "precision must be one of"),
        ({"batch_size": 0}, "batch_size must be positive"),
        ({"minimum_agreement": 98}, "share in"),
    ],
)
def test_wrong_arguments_are_errors(classifier, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.export.tflite(classifier, tmp_path / "x.tflite", **arguments)
