"""Looking inside a model: the paper's figures 6, 7, 10, 11 and 14 as arrays and as pictures.

Every function that computes returns NumPy arrays; each has one beside it that draws them and
returns a `matplotlib.figure.Figure`. Images are what the model takes, `(B, H, W, C)`, as
`Classifier.preprocess` returns them.
"""

from keras_vit.inspection.attention import attention_by_layer, attention_maps
from keras_vit.inspection.axial import axial_attention, axial_head_maps, draw_axial_heads
from keras_vit.inspection.distance import (
    attention_distance,
    draw_attention_distance,
    mean_attention_distance,
)
from keras_vit.inspection.filters import draw_filters, filter_components
from keras_vit.inspection.heads import draw_heads, head_maps
from keras_vit.inspection.positions import draw_position_similarity, position_similarity
from keras_vit.inspection.report import FIGURES, write_report
from keras_vit.inspection.rollout import attention_rollout, draw_rollout, rollout
from keras_vit.inspection.tokens import TokenLayout, token_layout

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
