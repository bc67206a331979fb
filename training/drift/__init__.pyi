from .folder_drift import Drift as Drift, find_drift as find_drift
