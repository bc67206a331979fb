"""Attention, position embeddings and filters of a model: figures 6, 7, 10, 11, 14 of the paper.

Functions return NumPy arrays; for each there is a function `draw_*` that returns a
`matplotlib.figure.Figure`. Images are preprocessed, `(B, H, W, C)`, as
`Classifier.preprocess` returns them. The modules `rollouts` and `position_embeddings` are not
named like the functions `rollout` and `position_similarity`, which would hide them.
"""

from keras_vit.inspection.attention_probabilities import (
    TokenLayout,
    attention_by_layer,
    attention_maps,
    token_layout,
)
from keras_vit.inspection.distance import (
    attention_distance,
    draw_attention_distance,
    mean_attention_distance,
)
from keras_vit.inspection.filters import draw_filters, filter_components
from keras_vit.inspection.heads import (
    axial_attention,
    axial_head_maps,
    draw_axial_heads,
    draw_heads,
    head_maps,
)
from keras_vit.inspection.html_report import FIGURES, write_report
from keras_vit.inspection.position_embeddings import draw_position_similarity, position_similarity
from keras_vit.inspection.rollouts import attention_rollout, draw_rollout, rollout

__all__ = [
    "FIGURES",
    "TokenLayout",
    "attention_by_layer",
    "attention_distance",
    "attention_maps",
    "attention_rollout",
    "axial_attention",
    "axial_head_maps",
    "draw_attention_distance",
    "draw_axial_heads",
    "draw_filters",
    "draw_heads",
    "draw_position_similarity",
    "draw_rollout",
    "filter_components",
    "head_maps",
    "mean_attention_distance",
    "position_similarity",
    "rollout",
    "token_layout",
    "write_report",
]
