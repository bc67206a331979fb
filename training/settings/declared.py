"""The fields of the settings that fine-tuning and pre-training share."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from keras_vit.preprocessing import EVALUATIONS
from keras_vit.utils.fields import (
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_NUMBER,
    SEED,
    SHARE,
    Rule,
    check_fields,
    setting,
)

if TYPE_CHECKING:
    import keras

OPTIMIZERS = ("sgd", "adam", "muon")
DECAYS = ("cosine", "linear", "rsqrt", "constant")
WEIGHT_DECAY_TIMES = ("learning_rate", "schedule")
LOSSES = ("softmax", "sigmoid")
AUTO = "auto"
PRECISIONS = (AUTO, "float32", "mixed_bfloat16", "mixed_float16")
STRATEGIES = ("auto", "cpu", "mirrored", "multiworker", "tpu")
MODEL_GROUP = "model and weights"  # A title in `--help`.
HIGHER_RESOLUTION = 384  # Pixels per side of fine-tuning; paper, Table 4.
# By name: the dimensions of an image that are reversed at random, 0 for rows and 1 for columns.
FLIPS: dict[str, tuple[int, ...]] = {"never": (), "horizontal": (1,), "both": (1, 0)}


@dataclasses.dataclass(frozen=True)
class DeclaredSettings:
    """The fields of `Settings`, in the order of `--help`, and which values fit each other.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    recipe: str | None = setting(
        None,
        "a recipe of the paper; other options win over it (see keras-vit recipes)",
        unit="NAME",
        absent="none",
        group=MODEL_GROUP,
    )
    recipe_source: str | None = setting(
        None, "where the recipe's numbers are from", flag="", line="recipe"
    )
    model: Any = setting(
        None,
        "a model's name, see keras-vit models; in Python also a config",
        unit="NAME",
        absent="the model of the weights, or ViT-B/16",
        python="str | ViTConfig | BiTConfig | None",
    )
    image_size: tuple[int, int] | None = setting(
        (HIGHER_RESOLUTION, HIGHER_RESOLUTION),
        "384, or 384x512 for height x width",
        unit="PIXELS",
        source="paper, Table 4",
        limits=POSITIVE,
        line="model",
        column="pixels",
    )
    steps: int | None = setting(
        None,
        "optimizer steps",
        unit="STEPS",
        absent="500 with fewer than 20,000 images, 10,000 with fewer than 500,000, else 20,000",
        source="paper, Table 4",
        limits=POSITIVE,
        column="steps",
        group="steps and batches",
    )
    epochs: float | None = setting(
        None,
        "how often each training image is seen",
        unit="N",
        absent="by the steps",
        limits=POSITIVE_NUMBER,
        off=(None,),
    )
    batch_size: int = setting(
        512,
        "images of an optimizer step",
        unit="IMAGES",
        source="paper, Table 4",
        limits=POSITIVE,
        line="steps",
        column="batch",
    )
    accumulate: int | None = setting(
        None,
        "micro-batches that the batch of a step is divided into, which change no result; Keras's "
        "gradient_accumulation_steps multiplies the batch instead",
        unit="N",
        absent="as few as the memory allows",
        limits=POSITIVE,
        line="steps",
    )
    optimizer: str = setting(
        "sgd",
        "the optimizer",
        choices=OPTIMIZERS,
        source="paper, Table 4",
        column="optimizer",
        group="optimizer and schedule",
    )
    learning_rate: float | None = setting(
        0.03,
        "the highest learning rate, after warm-up",
        unit="RATE",
        source="the official code, within the paper's sweep",
        limits=POSITIVE_NUMBER,
        column="learning rate",
    )
    warmup_steps: int | None = setting(
        None,
        "steps of linear warm-up",
        unit="STEPS",
        absent="500, or a fifth of a short run",
        source="the official code",
        column="warm-up",
    )
    decay: str = setting(
        "cosine",
        "decay of the learning rate after warm-up",
        choices=DECAYS,
        source="paper, Table 4",
        column="decay",
    )
    momentum: float = setting(
        0.9,
        "momentum of the optimizers sgd and muon",
        unit="FACTOR",
        source="paper, Table 4",
        used=lambda settings: settings.optimizer in ("sgd", "muon"),
        needs="--optimizer sgd or muon",
    )
    weight_decay: float = setting(
        0.0,
        "decoupled weight decay, of kernels alone",
        unit="STRENGTH",
        source="paper, Table 4",
        column="weight decay",
    )
    weight_decay_times: str = setting(
        "learning_rate",
        "factor of the weight decay: the learning rate, as in the paper and Keras, or its schedule "
        "alone (a share of the highest), as in big_vision",
        choices=WEIGHT_DECAY_TIMES,
        used=lambda settings: settings.weight_decay != 0,
        needs="--weight-decay",
    )
    global_clipnorm: float | None = setting(
        1.0,
        "largest norm of all gradients together; 0 does not clip",
        unit="NORM",
        none=0,
        source="paper, Table 4",
        limits=POSITIVE,
    )
    layer_decay: float = setting(
        1.0,
        "ratio of a layer's learning rate to the next layer's, such as 0.75",
        unit="RATIO",
        limits=("in (0, 1]", lambda value: 0 < value <= 1),
        off=(1,),
    )
    ema_momentum: float | None = setting(
        None,
        "factor of Polyak averaging, 0.9999 in the paper; the averages are kept in place of the "
        "weights",
        unit="FACTOR",
        none=0,
        absent="no averaging",
        off=(0, None),
    )
    loss: str | None = setting(
        None,
        "cross-entropy; sigmoid sums over the classes",
        choices=LOSSES,
        absent="softmax, or sigmoid for multi-label data",
        group="loss and regularisation",
    )
    head_bias: float = setting(
        0.0,
        "logit of every class at the start: with the loss sigmoid about -10 for 21,000 classes, "
        "-6.9 for 1000",
        unit="LOGIT",
        off=(0, None),
    )
    label_smoothing: float = setting(
        0.0,
        "share of the label that is spread over all classes",
        unit="SHARE",
        limits=SHARE,
        off=(0,),
    )
    class_weight: str | None = setting(
        None,
        "weights of the classes in the loss: balanced, so that each class weighs the same",
        choices=("balanced",),
        absent="none",
        off=(None,),
    )
    dropout_rate: float = setting(0.0, "share of units dropped", unit="RATE", limits=SHARE)
    stochastic_depth_rate: float = setting(
        0.0,
        "share of examples that skip a part of the last block, fewer the blocks before it; 0.1 in "
        "AugReg",
        unit="RATE",
        limits=SHARE,
        off=(0, None),
    )
    augmentation: str | None = setting(
        "inception_crop",
        "augmentation of training images: inception_crop, resize_small_random_crop, padded_crop, "
        "jitter, flip, none, or AugReg's light1, light2, medium1, medium2, strong1, strong2",
        unit="NAME",
        source="the official code",
        group="images",
    )
    flip: str | None = setting(
        None,
        "how training images are flipped at random, with every augmentation: never where left and "
        "right differ (text, shoes), both where no side is the upper one (cells, aerial images)",
        choices=tuple(FLIPS),
        absent="horizontal, but never with the augmentations jitter and none",
        off=(None,),
    )
    mixup: float | None = setting(
        None,
        "parameter of mixup's beta distribution, 0 for none",
        unit="P",
        absent="the augmentation's own",
        limits=NOT_NEGATIVE,
        off=(0, None),
    )
    layers: tuple[str | dict | Any, ...] = setting(
        (),
        "image layers of keras.layers that are applied after the augmentation, with or without "
        'arguments: RandomErasing "RandomRotation(0.1)" CutMix; in Python also layer objects',
        unit="LAYER",
        off=((),),
    )
    evaluation: str | None = setting(
        None,
        "how an image gets its size in evaluation",
        choices=EVALUATIONS,
        absent="as for the weights, or resize",
    )
    validation: float | None = setting(
        None,
        "share of the training images that chooses the best weights; 0 keeps the last",
        unit="SHARE",
        absent="0.1, 0.02 or 0.01 by the number of images",
        source="paper, Table 4",
        limits=SHARE,
        group="validation, samples and seed",
    )
    keep: str = setting(
        "best",
        "the weights that are kept: the best of all validations, or the last ones",
        choices=("best", "last"),
    )
    evaluate_every: int | None = setting(
        None,
        "optimizer steps between two validations",
        unit="STEPS",
        absent="a tenth of the run",
        limits=POSITIVE,
    )
    patience: int | None = setting(
        None,
        "stop after this many validations in a row without a better one",
        unit="N",
        absent="never",
        limits=POSITIVE,
        off=(0,),
    )
    samples: str | int | None = setting(
        None,
        "photos that travel with the classifier and its exports, without metadata and at the "
        "model's size: a number of the test part's, or none",
        unit="N|none",
        absent="8 of the test part, none where the data have no test part",
        limits=("a number or none", lambda value: value == "none" or value.isdecimal()),
        line="samples",
    )
    seed: int = setting(
        0,
        "seed of weights, image order, augmentation and dropout",
        unit="N",
        limits=SEED,
    )
    precision: str = setting(
        AUTO,
        "type of the computation; auto is mixed_bfloat16 on a GPU that has it (compute capability "
        "8.0), float32 elsewhere",
        choices=PRECISIONS,
        group="computation (changes results by rounding only)",
    )
    remat: bool = setting(
        False,
        "recompute activations in the backward pass: less memory, about a third more time",
        off=(False, None),
    )
    strategy: str | None = setting(
        None,
        "where to run: one device, all GPUs, workers of TF_CONFIG (JAX: see --coordinator), a TPU, "
        "or the best available",
        choices=STRATEGIES,
        absent="the first GPU, or the CPU",
        off=(None,),
    )
    jit_compile: bool | None = setting(
        None, "compile with XLA, or not", absent="where Keras would", off=(False, None)
    )
    steps_per_execution: int = setting(
        1,
        "optimizer steps that are run at once, which saves time on TPUs",
        unit="STEPS",
        limits=POSITIVE,
        off=(1,),
    )
    command: ClassVar[str]  # The command of `keras-vit`, with its objective.
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "accumulate must divide the batch size",
            ("accumulate", "batch_size"),
            lambda s: not s.accumulate or s.batch_size % s.accumulate == 0,
        ),
        Rule(
            "epochs or steps are given, not both",
            ("epochs", "steps"),
            lambda s: s.epochs is None or s.steps is None,
        ),
        Rule(
            'label_smoothing is for loss="softmax"',
            ("label_smoothing", "loss"),
            lambda s: not s.label_smoothing or s.loss != "sigmoid",
        ),
    )

    def __post_init__(self):
        if self.image_size is not None:
            is_square = isinstance(self.image_size, int)
            size = (self.image_size,) * 2 if is_square else tuple(self.image_size)
            object.__setattr__(self, "image_size", size)
        object.__setattr__(self, "layers", stored_layers(self.layers))
        if self.samples is not None:
            object.__setattr__(self, "samples", str(self.samples))
        check_fields(self)


def stored_layers(
    layers: str | dict | keras.layers.Layer | Sequence[str | dict | keras.layers.Layer],
) -> tuple[str | dict[str, Any], ...]:
    """Returns Keras layers as JSON can hold them: a name as it is, an object as its config.

    Args:
        layers: Names, configs or layer objects, or one of them.
    """
    stored = []
    for layer in layers if isinstance(layers, (tuple, list)) else (layers,):
        if not isinstance(layer, (str, dict)):
            import keras  # Names need no Keras: --help answers without it.

            is_layer = isinstance(layer, keras.layers.Layer)
            layer = keras.saving.serialize_keras_object(layer) if is_layer else str(layer)
        if isinstance(layer, dict):
            layer = json.loads(json.dumps(layer))
            layer["config"].pop("name", None)  # It counts the layers of the process.
        stored.append(layer)
    return tuple(stored)
