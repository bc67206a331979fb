from . import (
    calibration as calibration,
    classification as classification,
    features as features,
    few_shot as few_shot,
    multilabel as multilabel,
    predictions as predictions,
    protocols as protocols,
    results as results,
)
