from .artefacts import (
    load_artefact as load_artefact,
)
from .comparison import (
    ExportReport as ExportReport,
)
from .conversion import (
    convert as convert,
)
from .export_functions import (
    html as html,
    onnx as onnx,
    openvino as openvino,
    saved_model as saved_model,
    tflite as tflite,
)
from .check import (
    verify as verify,
)
