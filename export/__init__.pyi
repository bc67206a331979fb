from .check import (
    ExportReport as ExportReport,
    verify as verify,
)
from .conversion import (
    convert as convert,
)
from .functions import (
    html as html,
    litert as litert,
    onnx as onnx,
    openvino as openvino,
    saved_model as saved_model,
    tflite as tflite,
)
