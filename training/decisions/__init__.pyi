from .classifier_decision import (
    calibrate as calibrate,
)
