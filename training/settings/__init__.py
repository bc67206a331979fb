"""Settings of fine-tuning and pre-training, each written once; imports no TensorFlow."""

from .declared import (
    AUTO as AUTO,
    DECAYS as DECAYS,
    FLIPS as FLIPS,
    HIGHER_RESOLUTION as HIGHER_RESOLUTION,
    PRECISIONS as PRECISIONS,
    STRATEGIES as STRATEGIES,
    WEIGHT_DECAY_TIMES as WEIGHT_DECAY_TIMES,
)
from .jobs import (
    OBJECTIVE as OBJECTIVE,
    TARGETS as TARGETS,
    UNKNOWN_FACTS as UNKNOWN_FACTS,
    FineTuning as FineTuning,
    MaskedPatches as MaskedPatches,
    PreTraining as PreTraining,
    RunOptions as RunOptions,
)
from .shared import (
    DecisionSettings as DecisionSettings,
    ResolvedSettings as ResolvedSettings,
    Settings as Settings,
)
