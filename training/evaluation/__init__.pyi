from . import (
    classification as classification,
    few_shot as few_shot,
    measures as measures,
    predictions as predictions,
    results as results,
)
