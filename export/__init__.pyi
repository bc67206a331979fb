from .check import (
    ExportReport as ExportReport,
    verify as verify,
)
from .conversion import (
    convert as convert,
)
from .html import html as html
from .onnx import onnx as onnx
from .openvino import openvino as openvino
from .saved_model import saved_model as saved_model
from .tflite import tflite as tflite

litert = tflite
