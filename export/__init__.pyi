from .artefacts import (
    load_artefact as load_artefact,
)
from .comparison import (
    ExportReport as ExportReport,
)
from .conversion import (
    convert as convert,
)
from .html_page import (
    html as html,
)
from .onnx_file import (
    onnx as onnx,
)
from .openvino_folder import (
    openvino as openvino,
)
from .options import (
    ServingLimits as ServingLimits,
)
from .saved_model_folder import (
    saved_model as saved_model,
)
from .server import (
    serve as serve,
)
from .tflite_file import (
    tflite as tflite,
)
from .verification import (
    verify as verify,
)
from .web_folder import (
    web as web,
)
