"""Exports to SavedModel, TFLite, ONNX and OpenVINO, and conversion of weights."""

import lazy_loader

from keras_vit._installation import check_installation

# Not at their first use, as the others: a module that is imported later would take its name.
# In the order of `FORMATS`: the first are those that servers read.
# isort: off
from .onnx import onnx as onnx
from .tflite import tflite as tflite
from .openvino import openvino as openvino
from .saved_model import saved_model as saved_model
from .html import html as html
# isort: on

litert = tflite  # As Keras and Google call it now.

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

check_installation()
