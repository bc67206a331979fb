from . import (
    applications as applications,
    configs as configs,
    export as export,
    inspection as inspection,
    layers as layers,
    training as training,
)
from .applications import (
    ViTB16 as ViTB16,
    ViTB32 as ViTB32,
    ViTH14 as ViTH14,
    ViTL16 as ViTL16,
    ViTL32 as ViTL32,
    ViTS16 as ViTS16,
    ViTS32 as ViTS32,
    ViTTi16 as ViTTi16,
)
from .checkpoints.catalogue import (
    list_models as list_models,
    list_weights as list_weights,
)
from .checkpoints.load import (
    load_checkpoint as load_checkpoint,
)
from .classifier import (
    Classifier as Classifier,
    load_classifier as load_classifier,
    save_classifier as save_classifier,
)
from .configs import (
    ViTConfig as ViTConfig,
)
from .describing import describe as describe
from .models.build import (
    build as build,
)
from .models.rebuild import (
    with_new_head as with_new_head,
)
from .models.saving import (
    save_checkpoint as save_checkpoint,
)
from .preprocessing import (
    Preprocessing as Preprocessing,
    decode_predictions as decode_predictions,
    preprocess_input as preprocess_input,
)
from .representations import (
    features as features,
)
from .training.run.image_datasets import (
    image_datasets as image_datasets,
)
from .verbs import (
    calibrate as calibrate,
    check as check,
    compare as compare,
    convert as convert,
    embed as embed,
    evaluate as evaluate,
    few_shot as few_shot,
    finetune as finetune,
    pretrain as pretrain,
    push as push,
    sweep as sweep,
    verify as verify,
)

__version__: str
