from .conversion import (
    convert as convert,
)
from .to_litert import (
    tflite as tflite,
)
from .to_onnx import (
    onnx as onnx,
)
from .to_saved_model import (
    saved_model as saved_model,
)
from .verify import (
    Report as Report,
)
