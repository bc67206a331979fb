from .classifier_comparison import (
    Comparison as Comparison,
    compare_classifiers as compare_classifiers,
)
