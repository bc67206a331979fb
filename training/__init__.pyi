from . import (
    data as data,
    evaluation as evaluation,
    recipes as recipes,
    trust as trust,
)
from .data.spec import (
    DataSpec as DataSpec,
)
from .run.distillation import (
    DistillationTrainer as DistillationTrainer,
)
from .run.finetune import (
    finetune as finetune,
    pretrain as pretrain,
    pretrain_masked_patches as pretrain_masked_patches,
)
from .run.folder import (
    Checkpoints as Checkpoints,
)
from .settings import (
    DecisionSettings as DecisionSettings,
    FineTuning as FineTuning,
    MaskedPatches as MaskedPatches,
    PreTraining as PreTraining,
)
from .trainer.devices import (
    split_batch as split_batch,
    strategy as strategy,
)
from .trainer.losses import (
    SigmoidCrossentropy as SigmoidCrossentropy,
    SoftmaxCrossentropy as SoftmaxCrossentropy,
)
from .trainer.optimizer import (
    SGD as SGD,
    Adam as Adam,
    Muon as Muon,
    warmup_schedule as warmup_schedule,
)
from .trainer.trainer import (
    NonFiniteError as NonFiniteError,
    Trainer as Trainer,
)
