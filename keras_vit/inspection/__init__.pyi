from .attention_probabilities import (
    TokenLayout as TokenLayout,
    attention_by_layer as attention_by_layer,
    attention_maps as attention_maps,
    token_layout as token_layout,
)
from .distance import (
    attention_distance as attention_distance,
    draw_attention_distance as draw_attention_distance,
    mean_attention_distance as mean_attention_distance,
)
from .embedding_weights import (
    draw_filters as draw_filters,
    draw_position_similarity as draw_position_similarity,
    filter_components as filter_components,
    position_similarity as position_similarity,
)
from .html_report import write_report as write_report
from .rollout_pictures import draw_rollout as draw_rollout
from .rollouts import (
    attention_rollout as attention_rollout,
    rollout as rollout,
)
