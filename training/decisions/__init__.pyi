from .classifier_decision import (
    calibrate as calibrate,
)
from .quantized_exports import (
    decide_on as decide_on,
)
