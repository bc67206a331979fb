from .calibrated_classifier import (
    calibrate as calibrate,
)
from .fingerprints import (
    Duplicate as Duplicate,
    DuplicateIndex as DuplicateIndex,
    Fingerprint as Fingerprint,
    fingerprint as fingerprint,
    fingerprint_or_reason as fingerprint_or_reason,
)
