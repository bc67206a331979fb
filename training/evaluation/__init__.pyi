from . import (
    classification as classification,
    features as features,
    few_shot as few_shot,
    measures as measures,
    predictions as predictions,
    protocols as protocols,
    results as results,
)
