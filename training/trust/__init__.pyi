from .calibrated_classifier import (
    calibrate as calibrate,
)
from .check_report import CheckReport as CheckReport
from .classifier_comparison import (
    Comparison as Comparison,
    compare_classifiers as compare_classifiers,
)
from .photo_check import check_photos as check_photos
