from .catalogue import (
    OfficialWeights as OfficialWeights,
    list_weights as list_weights,
)
from .load import (
    LoadReport as LoadReport,
    load_checkpoint as load_checkpoint,
)
