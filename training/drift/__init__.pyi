from .drift_report import DriftReport as DriftReport
from .folder_drift import find_drift as find_drift
