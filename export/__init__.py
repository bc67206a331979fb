"""Exports to SavedModel, TFLite, ONNX and OpenVINO, and conversion of weights."""

import lazy_loader

from keras_vit._installation import check_installation

# Not at their first use, as the others: a module that is imported later would take its name.
from .html import html as html
from .onnx import onnx as onnx
from .openvino import openvino as openvino
from .saved_model import saved_model as saved_model
from .tflite import tflite as tflite

litert = tflite  # As Keras and Google call it now.

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

check_installation()
