"""Names and defaults of options of `keras-vit export` and `convert`. Imports nothing.

The modules that write the formats are called `*_folder` and `*_file`, because a module
`saved_model` would hide the function `keras_vit.export.saved_model`.
"""

FORMATS = ("saved_model", "tflite", "onnx")

# Least share of check images on which an export must have the Keras model's first class.
MINIMUM_AGREEMENT = 0.99

# The same for each precision of a TFLite file.
TFLITE_PRECISIONS = {"float32": 0.99, "float16": 0.99, "dynamic_int8": 0.98, "int8": 0.98}

ONNX_OPSET = 18  # ONNX 1.13 of 2022, which all current runtimes read.
ONNX_OPSETS = range(13, 19)  # The operator sets that tf2onnx writes.

# Classes that a SavedModel names.
TOP = 5

# Formats that `convert` writes, with the end of the file's name; "" is a folder.
CONVERSION_FORMATS = {
    "classifier": "",
    "official": ".npz",  # As the paper's code.
    "weights": ".weights.h5",  # As Keras.
    "huggingface": "",
    "timm": ".safetensors",  # Or a folder.
}
