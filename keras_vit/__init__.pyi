from . import (
    applications as applications,
    checkpoints as checkpoints,
    export as export,
    inspection as inspection,
    layers as layers,
    training as training,
)
from .applications import (
    AxialResNet50 as AxialResNet50,
    AxialViTB16 as AxialViTB16,
    AxialViTB32 as AxialViTB32,
    BiTR50x1 as BiTR50x1,
    BiTR50x2 as BiTR50x2,
    BiTR50x3 as BiTR50x3,
    BiTR101x1 as BiTR101x1,
    BiTR101x3 as BiTR101x3,
    BiTR152x1 as BiTR152x1,
    BiTR152x2 as BiTR152x2,
    BiTR152x4 as BiTR152x4,
    BiTR200x3 as BiTR200x3,
    R7ViTNano8 as R7ViTNano8,
    R14ViTMicro16 as R14ViTMicro16,
    R26ViTB32 as R26ViTB32,
    R26ViTS32 as R26ViTS32,
    R50ViTB16 as R50ViTB16,
    R50ViTB32 as R50ViTB32,
    R50ViTL16 as R50ViTL16,
    R50ViTL32 as R50ViTL32,
    RViTTi16 as RViTTi16,
    ViTB8 as ViTB8,
    ViTB14 as ViTB14,
    ViTB16 as ViTB16,
    ViTb16 as ViTb16,
    ViTB32 as ViTB32,
    ViTb32 as ViTb32,
    ViTH14 as ViTH14,
    ViTL14 as ViTL14,
    ViTL16 as ViTL16,
    ViTL32 as ViTL32,
    ViTMini4 as ViTMini4,
    ViTS14 as ViTS14,
    ViTS16 as ViTS16,
    ViTS32 as ViTS32,
    ViTTi16 as ViTTi16,
)
from .checkpoints.catalogue import (
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
    AxialConfig as AxialConfig,
    AxialResNetConfig as AxialResNetConfig,
    BiTConfig as BiTConfig,
    PoolingStem as PoolingStem,
    ResNetStem as ResNetStem,
    ViTConfig as ViTConfig,
    list_models as list_models,
)
from .describing import describe as describe
from .description import (
    Description as Description,
    Labels as Labels,
)
from .models.build import (
    build as build,
)
from .models.rebuild import (
    with_new_head as with_new_head,
)
from .models.saving import (
    save_checkpoint as save_checkpoint,
)
from .opening import (
    features as features,
)
from .preprocessing import (
    Preprocessing as Preprocessing,
    decode_predictions as decode_predictions,
    preprocess_input as preprocess_input,
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
