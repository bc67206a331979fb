import hashlib
import pathlib

import keras
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer.quantizer import Quantizer

import keras_vit.export
from keras_vit.configs.recognition import config_of
from keras_vit.export.formats.export_format import INTEGER_PRECISIONS
from keras_vit.export.formats.exported_model import exported_model
from keras_vit.export.formats.tflite import (
    TFLite,
    _ranges as ranges,
    convert,
    image_classifier_metadata,
)
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing

# SHA-256 of the metadata of a model that takes values from 0 to 1.
METADATA = "c2b606136886cd14"


def read(report):
    return pathlib.Path(report.path).read_bytes()


def tensors(report):
    interpreter = Interpreter(report.path)
    interpreter.allocate_tensors()
    return interpreter.get_tensor_details()


@pytest.mark.parametrize("precision", INTEGER_PRECISIONS)
def test_integer_weights_have_a_scale_for_each_channel(tflite, precision):
    kernels = [
        tensor
        for tensor in tensors(tflite(precision))
        if tensor["dtype"] == np.int8 and len(tensor["quantization_parameters"]["scales"]) > 1
    ]
    for tensor in kernels:
        scales = tensor["quantization_parameters"]["scales"]
        axis = tensor["quantization_parameters"]["quantized_dimension"]
        assert len(scales) == tensor["shape"][axis]
    # Six matrices a block; the patch embedding and the head stay float.
    assert len(kernels) == 6 * 2


@pytest.mark.parametrize("precision", TFLite.precisions)
def test_operations_are_builtin_and_an_image_has_one_output(tflite, precision):
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(read(tflite(precision)), 0))
    operators = schema.BuiltinOperator
    codes = {max(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes}
    assert {operators.GELU, operators.SOFTMAX, operators.BATCH_MATMUL} < codes
    assert operators.CUSTOM not in codes
    (images,) = Interpreter(tflite(precision).path).get_input_details()
    assert images["shape_signature"].tolist() == [1, 32, 24, 3]
    run = Interpreter(tflite(precision).path).get_signature_runner("serve")
    assert list(run.get_output_details()) == ["probabilities"]  # As MediaPipe expects.


@pytest.mark.parametrize(
    ("precision", "input"), [*((name, "float") for name in TFLite.precisions), ("float32", "uint8")]
)
def test_a_compiled_model_answers_as_the_interpreter_does(report_of, precision, input):
    path = report_of("tflite", precision, input).path
    compiled = CompiledModel.from_file(path)
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (1, 32, 24, 3)).astype("float32")
    if input == "uint8":
        images = rng.integers(0, 256, (1, 40, 50, 3)).astype("uint8")
        compiled.resize_input_tensor_by_name("serve", "images", images.shape)
    (received,), (answer,) = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
    received.write(images)
    compiled.run_by_index(0, [received], [answer])
    expected = Interpreter(path).get_signature_runner("serve")(images=images)["probabilities"]
    np.testing.assert_array_equal(answer.read(3, np.float32), expected[0])


def metadata(content):
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    (entry,) = [entry for entry in model.metadata if entry.name == b"TFLITE_METADATA"]
    return bytes(model.buffers[entry.buffer].data)


def test_metadata_is_that_which_mediapipe_reads(tflite):
    # MediaPipe reads it in test_mediapipe.py: the names, the normalisation and the labels.
    known = image_classifier_metadata("model", (0.0, 1.0))
    assert known[4:8] == b"M001"
    for part in (b"images", b"labels.txt", np.array([0, 255], "float32")[1:].tobytes()):
        assert part in known
    assert hashlib.sha256(known).hexdigest().startswith(METADATA)
    stored = metadata(read(tflite("int8")))
    assert np.array([127.5], "float32").tobytes() in stored
    assert np.array([127.5], "float32").tobytes() not in image_classifier_metadata("model")


def test_a_mixed_precision_model_is_exported_in_float32(classifier, model, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = keras_vit.build(config_of(model), classes=3, input_shape=(32, 24, 3))
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(model.get_weights())
    mixed = Predictor(mixed, classifier.class_names, classifier.preprocessing)
    options = {"input": "float", "minimum_agreement": 0.6}  # There are three synthetic images.
    report = keras_vit.export.tflite(mixed, tmp_path / "x.tflite", **options)
    assert "float32 copy" in str(report)
    # bfloat16 keeps 8 bits: the copy is the float32 model, not the mixed one, to rounding.
    images = np.random.default_rng(0).uniform(-1, 1, (1, 32, 24, 3)).astype("float32")
    answer = Interpreter(report.path).get_signature_runner("serve")(images=images)
    np.testing.assert_allclose(answer["probabilities"], model.predict(images, verbose=0), atol=1e-5)


def test_the_range_of_integers_is_that_of_all_images():
    """A moving average would cut off the values of about every second image."""
    images = keras.Input((4, 4, 3))
    hidden = keras.layers.Dense(5)(keras.layers.Flatten()(images))
    model = keras.Model(images, keras.layers.Dense(2)(hidden))
    content = convert(exported_model(model, Preprocessing((4, 4))), "float32")
    quantizer = Quantizer(bytearray(content))
    quantizer.add_static_config(
        regex=".*", operation_name="FULLY_CONNECTED", activation_num_bits=8, weight_num_bits=8
    )
    recipe = quantizer.get_quantization_recipe()
    rng = np.random.default_rng(0)
    batches = [
        {"images": rng.normal(0, size, (1, 4, 4, 3)).astype("float32")} for size in (1, 9, 3)
    ]
    alone = [ranges(content, recipe, [batch]) for batch in batches]
    together = ranges(content, recipe, batches)
    assert together
    for name, values in together.items():
        np.testing.assert_array_equal(values["min"], min(one[name]["min"] for one in alone))
        np.testing.assert_array_equal(values["max"], max(one[name]["max"] for one in alone))


def test_a_model_that_keras_quantised_is_refused_in_one_line(classifier, model, tmp_path):
    quantised = keras.models.clone_model(model)
    quantised.set_weights(model.get_weights())
    quantised.get_layer("predictions").quantize("int8")
    quantised = Predictor(quantised, classifier.class_names, classifier.preprocessing)
    with pytest.raises(ValueError, match="model.quantize.*predictions is int8") as e:
        keras_vit.export.tflite(quantised, tmp_path / "x.tflite")
    assert "\n" not in str(e.value)
