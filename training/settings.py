"""Settings of fine-tuning and pre-training, each written once; imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from typing import Any, ClassVar, Self, get_args

from keras_vit.configs import BiTConfig, Gelu, ViTConfig, config_fields
from keras_vit.fields import (
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_NUMBER,
    SHARE,
    changed,
    check_fields,
    check_json,
    check_used,
    documented,
    field_info,
    required,
    setting,
)
from keras_vit.position_resize import RULES
from keras_vit.preprocessing import EVALUATIONS, NORMALIZATIONS
from keras_vit.recognition import config_of_json
from keras_vit.tasks import MULTICLASS, MULTILABEL

from . import recipes

OPTIMIZERS = ("sgd", "adam")
DECAYS = ("cosine", "linear", "rsqrt", "staircase", "constant")
WEIGHT_DECAY_TIMES = ("learning_rate", "schedule")
LOSSES = ("softmax", "sigmoid")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
STRATEGIES = ("auto", "cpu", "mirrored", "multiworker", "tpu")
TRAINED = ("all", "head", "lora")
TARGETS = ("mean-colour", "downsized", "patch")
OBJECTIVE = "masked-patches"  # Pre-training without classes, in commands and recipe.json.
HEADS = ("keep", "extend", "new")
SAMPLINGS = ("images", "classes")
DISTILLATIONS = ("soft", "hard")
HIGHER_RESOLUTION = 384  # Pixels per side of fine-tuning; paper, Table 4.
RESIZED_CROP = "resize_random_crop"  # The augmentation that uses the setting `resize`.


def check_data_service(address: str | None) -> None:
    """Checks the address of a `tf.data` service.

    Raises:
        ValueError: If it is not of the form "grpc://host:port"; None is allowed.
    """
    if address is not None and not re.fullmatch(r"grpc://.+:\d+", address):
        raise ValueError(
            "data_service must be an address such as grpc://host:5000. "
            f"Received: data_service={address!r}"
        )


@documented
@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings that fine-tuning and pre-training share.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    recipe: str | None = setting(
        None,
        "a recipe of the paper; other options win over it (see keras-vit recipes)",
        unit="NAME",
        absent="none",
        completion=("recipes",),
    )
    recipe_source: str | None = setting(
        None, "where the recipe's numbers are from", flag="", line="recipe"
    )
    scale: float = setting(
        1.0,
        "share of the recipe's images, in (0, 1]: fewer steps of smaller batches, with a lower "
        "learning rate",
        unit="SHARE",
        line="recipe",
    )
    model: Any = setting(
        None,
        "a model's name, see keras-vit models; in Python also a config",
        unit="NAME",
        absent="the model of the weights, or ViT-B/16",
        completion=("models",),
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
        "micro-batches of a step, which change no result",
        unit="N",
        absent="as few as the memory allows",
        limits=POSITIVE,
        line="steps",
    )
    # The optimizer and its schedule.
    optimizer: str = setting(
        "sgd", "the optimizer", choices=OPTIMIZERS, source="paper, Table 4", column="optimizer"
    )
    learning_rate: float = setting(
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
    boundaries: tuple[int, ...] | None = setting(
        (),
        "steps after which the decay staircase falls to a tenth",
        unit="STEP",
        absent="by BiT's HyperRule",
        off=((), None),
    )
    timescale: float = setting(
        10_000,
        "steps after which the decay rsqrt has fallen to 0.71",
        unit="STEPS",
        limits=POSITIVE,
        used=lambda settings: settings.decay == "rsqrt",
        needs="--decay rsqrt",
    )
    cooldown_steps: int = setting(
        0, "steps at the end over which the decay rsqrt falls to 0", unit="STEPS", off=(0,)
    )
    momentum: float = setting(
        0.9,
        "momentum of the optimizer sgd",
        unit="FACTOR",
        source="paper, Table 4",
        used=lambda settings: settings.optimizer == "sgd",
        needs="--optimizer sgd",
    )
    beta_1: float = setting(
        0.9,
        "decay of Adam's first moment",
        source="paper, Table 3",
        flag="",
        used=lambda settings: settings.optimizer == "adam",
        needs="--optimizer adam",
    )
    beta_2: float = setting(
        0.999,
        "decay of Adam's second moment",
        source="paper, Table 3",
        flag="",
        used=lambda settings: settings.optimizer == "adam",
        needs="--optimizer adam",
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
        used=lambda settings: settings.weight_decay,
        needs="--weight-decay",
    )
    clip_norm: float | None = setting(
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
    averaging: float | None = setting(
        None,
        "factor of Polyak averaging, 0.9999 in the paper; the averages are kept in place of the "
        "weights, and the weights of the last step in last.keras",
        unit="FACTOR",
        none=0,
        absent="no averaging",
        off=(0, None),
    )
    skip_nonfinite_steps: int = setting(
        0,
        "steps with NaN or infinity that are left out before the run stops",
        unit="STEPS",
        off=(0,),
    )
    # The loss and regularisation.
    loss: str | None = setting(
        None,
        "cross-entropy; sigmoid sums over the classes",
        choices=LOSSES,
        absent="softmax, or sigmoid for multi-label data",
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
    class_weights: str | None = setting(
        None,
        "weights of the classes in the loss: balanced, so that each class weighs the same, or a "
        "CSV file of class,weight",
        unit="balanced|FILE",
        absent="none",
        off=(None,),
    )
    dropout_rate: float = setting(
        0.0, "share of units dropped", unit="RATE", flag="dropout", limits=SHARE
    )
    stochastic_depth_rate: float = setting(
        0.0,
        "share of examples that skip a part of the last block, fewer the blocks before it; 0.1 in "
        "AugReg",
        unit="RATE",
        flag="stochastic-depth",
        limits=SHARE,
        off=(0, None),
    )
    # The images.
    sampling: str = setting(
        "images",
        "what is drawn equally often in training: images, or classes (images of small classes "
        "again and again)",
        choices=SAMPLINGS,
        off=("images",),
    )
    augmentation: str = setting(
        "inception_crop",
        "augmentation of training images, a name of keras_vit.training.data.AUGMENTATIONS",
        unit="NAME",
        source="the official code",
    )
    mixup: float | None = setting(
        None,
        "parameter of mixup's beta distribution, 0 for none",
        unit="P",
        absent="the augmentation's own",
        limits=NOT_NEGATIVE,
        off=(0, None),
    )
    resize: tuple[int, int] | None = setting(
        None,
        "size before the crop of the augmentation resize_random_crop",
        unit="PIXELS",
        absent="a fifteenth more than the image size",
        limits=POSITIVE,
        off=((), None),
    )
    evaluation: str | None = setting(
        None,
        "how an image gets its size in evaluation",
        choices=EVALUATIONS,
        absent="as for the weights, or resize",
    )
    # Validation.
    validation: float | None = setting(
        None,
        "share of the training images that chooses the best weights; 0 keeps the last",
        unit="SHARE",
        absent="0.1, 0.02 or 0.01 by the number of images",
        source="paper, Table 4",
        limits=SHARE,
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
    seed: int = setting(0, "seed of weights, image order, augmentation and dropout", unit="N")
    # The computation; changes no result except for rounding.
    precision: str = setting("float32", "type of the computation", choices=PRECISIONS)
    remat: bool = setting(
        False,
        "recompute activations in the backward pass: less memory, about a third more time",
        off=(False, None),
    )
    strategy: str | None = setting(
        None,
        "where to run: one device, all GPUs, several machines (not on JAX), a TPU, or the best "
        "available",
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
    data_service: str | None = setting(
        None,
        "grpc://HOST:PORT of a tf.data service that reads, decodes and augments",
        unit="ADDRESS",
        absent="this machine",
        off=(None,),
    )

    command: ClassVar[str]  # The command of `keras-vit`, with its objective.

    def __post_init__(self):
        for name in ("image_size", "resize"):
            size = getattr(self, name)
            if size is not None:
                size = (size, size) if isinstance(size, int) else tuple(size)
                object.__setattr__(self, name, size)
        if self.boundaries is not None:
            object.__setattr__(self, "boundaries", tuple(self.boundaries))
        check_fields(self)
        check_data_service(self.data_service)
        if self.accumulate and self.batch_size % self.accumulate:
            raise ValueError(
                "accumulate must divide the batch size. "
                f"Received: accumulate={self.accumulate}, batch_size={self.batch_size}"
            )
        if self.label_smoothing and self.loss == "sigmoid":
            raise ValueError(
                'label_smoothing is for loss="softmax". Received: '
                f"label_smoothing={self.label_smoothing}, loss={self.loss!r}"
            )
        if self.resize and self.augmentation != RESIZED_CROP:
            raise ValueError(
                f"resize is for augmentation={RESIZED_CROP!r}. Received: resize={self.resize}, "
                f"augmentation={self.augmentation!r}"
            )
        if self.resize and self.image_size and any(map(operator.lt, self.resize, self.image_size)):
            raise ValueError(
                "resize must not be less than the image size. "
                f"Received: resize={self.resize}, image_size={self.image_size}"
            )
        if self.warmup_steps is not None and self.steps is not None:
            _check_warmup(self.warmup_steps, self.steps)

    @classmethod
    def from_options(
        cls, *, recipe: str | None = None, scale: float | None = None, **given: Any
    ) -> Self:
        """Returns the settings from the flags of a command.

        Args:
            recipe: A name for `from_recipe`.
            scale: See `from_recipe`.
            **given: Fields and their values; the recipe or the defaults have the others.

        Raises:
            ValueError: If there is a scale without a recipe, a value has no effect, or as
                `from_recipe`.
        """
        if recipe is None and scale is not None:
            raise ValueError(
                "--scale needs a recipe (--recipe); without one, --steps and --batch-size make a "
                f"run smaller. Received: --scale {scale:g} alone"
            )
        if recipe is None:
            settings = cls(**given)
        else:
            settings = cls.from_recipe(recipe, 1.0 if scale is None else scale, **given)
        check_used(settings, given)
        return settings

    @classmethod
    def from_recipe(cls, name: str, scale: float = 1.0, **given: Any) -> Self:
        """Returns the settings of one of the paper's recipes.

        Given values win over the recipe's. With other `steps` the warm-up and the boundaries
        keep their share of the run; with another `decay` the boundaries are dropped.

        Args:
            name: A name for `find_recipe`, or "BiT HyperRule", whose values `resolve` fills
                in from the data.
            scale: In (0, 1], for a smaller machine; see `scaled`.
            **given: Fields and their values.

        Raises:
            ValueError: If there is no such recipe, it is for another command, or a value is
                out of range.
        """
        by_rule = name.lower() == recipes.HYPER_RULE_NAME.lower()
        recipe = recipes.bit_hyper_rule(1, (1, 1)) if by_rule else recipes.find_recipe(name)
        if recipe.command != cls.command:
            raise ValueError(
                f"The recipe must be one for keras-vit {cls.command}; this one is for "
                f"keras-vit {recipe.command}. Received: {recipe.name!r}"
            )
        settings = cls(**recipe.settings, recipe=recipe.name, recipe_source=recipe.source).scaled(
            scale
        )
        changes: dict[str, Any] = {}
        if by_rule:
            changes |= dict.fromkeys(recipes.BY_HYPER_RULE)
        elif given.get("steps"):
            changes |= settings._with_steps(given["steps"])
        if given.get("decay", settings.decay) != settings.decay:
            changes["boundaries"] = ()
        return dataclasses.replace(settings, **(changes | given))

    def scaled(self, scale: float) -> Self:
        """Returns the settings for a smaller machine, to see `scale` times as many images.

        Steps and batch shrink alike, each by about sqrt(scale): the batch to a power of two,
        8 at least, the steps by the rest. The warm-up keeps its share of the steps. The
        learning rate follows the batch, in proportion for SGD, by its square root for Adam.

        Args:
            scale: In (0, 1].

        Raises:
            ValueError: If `scale` is out of range.
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale must be in (0, 1]. Received: scale={scale}")
        if scale == 1:
            return self
        wanted = self.batch_size * math.sqrt(scale)
        batch_size = min(self.batch_size, max(8, 2 ** round(math.log2(wanted))))
        share = batch_size / self.batch_size
        steps = max(1, round(required(self.steps, "steps") * scale / share))
        return dataclasses.replace(
            self,
            scale=self.scale * scale,
            steps=steps,
            batch_size=batch_size,
            learning_rate=self.learning_rate
            * (share if self.optimizer == "sgd" else math.sqrt(share)),
            **self._with_steps(steps),
        )

    def resolve(
        self,
        num_images: int,
        data_size: tuple[int, int] | None = None,
        task: str = MULTICLASS,
    ) -> Self:
        """Returns the settings with every value that depends on the data filled in.

        Args:
            num_images: Images to train with, including the validation images.
            data_size: Pixels (height, width) of the images; only for BiT's HyperRule.
            task: "multiclass" or "multilabel".

        Raises:
            ValueError: If the loss is not for the task, or steps do not fit each other.
        """
        settings = self
        if task == MULTILABEL and self.loss == "softmax":
            raise ValueError(
                "Multi-label data need the loss sigmoid (--loss, loss=), as the "
                'probabilities of a softmax sum to 1. Received: loss="softmax"'
            )
        if self.recipe == recipes.HYPER_RULE_NAME:
            settings = self._by_hyper_rule(num_images, data_size)
        steps = settings.steps
        if steps is None:
            steps = recipes.finetuning_of_size(num_images).settings["steps"]
        warmup_steps = settings.warmup_steps
        if warmup_steps is None:
            warmup_steps = recipes.finetuning_warmup(steps)
        executed = settings.steps_per_execution
        evaluate_every = settings.evaluate_every or math.ceil(steps / 10 / executed) * executed
        _check_warmup(warmup_steps, steps)
        if steps % executed or evaluate_every % executed:
            raise ValueError(
                "steps_per_execution must divide the steps of the run and those between two "
                f"validations. Received: steps_per_execution={executed}, steps={steps}, "
                f"evaluate_every={evaluate_every}"
            )
        return dataclasses.replace(
            settings,
            steps=steps,
            warmup_steps=warmup_steps,
            validation=settings.validation_share(num_images),
            evaluate_every=evaluate_every,
            loss=settings.loss or ("sigmoid" if task == MULTILABEL else "softmax"),
        )

    def validation_share(self, num_images: int) -> float:
        """Returns the share of a number of training images that is kept for validation."""
        if self.validation is not None:
            return self.validation
        return recipes.finetuning_of_size(num_images).settings["validation"]

    @property
    def micro_batch_size(self) -> int:
        """Images in memory at once."""
        return self.batch_size // (self.accumulate or 1)

    def to_json(self) -> dict:
        """Returns the fields as JSON can hold them."""
        fields = dataclasses.asdict(self)
        if isinstance(self.model, (ViTConfig, BiTConfig)):
            fields["model"] = {"config": type(self.model).__name__, **config_fields(self.model)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
        }

    @classmethod
    def from_json(cls, fields: dict) -> Self:
        """Returns the settings that `to_json` wrote.

        Raises:
            ValueError: If a field is unknown or its value is wrong.
        """
        check_json(cls, fields, "the recipe")
        model = fields.get("model")
        if isinstance(model, dict):
            values = {name: value for name, value in model.items() if name != "config"}
            fields = {**fields, "model": config_of_json(values, model.get("config"))}
        return cls(**fields)

    def in_use(self) -> dict[str, Any]:
        """Returns the settings that change something, by name, as JSON can hold them."""
        values = self.to_json()
        return {
            field.name: values[field.name]
            for field in dataclasses.fields(self)
            if not field_info(field).is_off(self, getattr(self, field.name))
        }

    def _with_steps(self, steps):
        """Returns warm-up and boundaries as the same shares of other steps."""
        share = steps / self.steps
        return {
            "warmup_steps": min(round(self.warmup_steps * share), steps - 1),
            "boundaries": tuple(round(boundary * share) for boundary in self.boundaries or ()),
        }

    def _by_hyper_rule(self, num_images, data_size):
        size = data_size or self.image_size
        if size is None:
            raise ValueError("BiT's HyperRule needs the size of the images. Received: None")
        rule = type(self)(**recipes.bit_hyper_rule(num_images, size).settings).scaled(self.scale)
        values = {name: getattr(rule, name) for name in recipes.BY_HYPER_RULE}
        if self.steps is not None:
            values |= rule._with_steps(self.steps)
        if self.image_size is not None:
            share = required(rule.resize, "resize")[0] / required(rule.image_size, "image_size")[0]
            values["resize"] = tuple(round(share * side) for side in self.image_size)
        if self.augmentation != RESIZED_CROP:
            values["resize"] = None
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)


@documented
@dataclasses.dataclass(frozen=True)
class FineTuning(Settings):
    """The paper's fine-tuning; Table 4, section 4.1, and the official code for the rest.

    By default 500 steps with fewer than 20,000 images, 10,000 with fewer than 500,000, else
    20,000: the rows of Table 4. A tenth, a fiftieth or a hundredth of the training images
    is kept for validation, as there.
    """

    image_size: tuple[int, int] | None = changed(
        Settings,
        "image_size",
        None,
        absent="384 for weights of 224 pixels, else the weights' size",
    )
    weights: str | None = setting(
        "imagenet21k",
        "the weights to start from: imagenet21k, imagenet, a name of the catalogue, a file, a "
        "classifier's folder, or none for random values",
        unit="WEIGHTS",
        none="none",
        completion=("weights",),
    )
    head: str | None = setting(
        None,
        "keep the rows of the weights' head for classes of the same name; extend it, so that all "
        "classes of the weights stay in addition to the data's; or a new head of zeros",
        choices=HEADS,
        absent="keep where the weights name a class of the data",
        off=(None,),
        line="head",
    )
    replay: str | None = setting(
        None,
        "images of the classes that the weights know, which are trained on again so that they are "
        "not forgotten; as --data, and extends the head",
        unit="DATA",
        absent="none",
        off=(None,),
    )
    replay_share: float = setting(
        0.2,
        "share of the images of each step that are replayed",
        unit="SHARE",
        limits=("in (0, 1)", lambda value: 0 < value < 1),
        used=lambda settings: settings.replay is not None,
        needs="--replay",
    )
    normalization: str | None = setting(
        None,
        "range of the pixels: half is -1 to 1, imagenet ImageNet's mean and standard deviation",
        choices=tuple(NORMALIZATIONS),
        absent="as in the weights",
        off=(None,),
        line="pixels",
    )
    gelu: str | None = setting(
        None,
        "form of GELU, where the weights do not state it",
        choices=get_args(Gelu),
        absent="as in the weights",
        off=(None,),
        line="gelu",
    )
    num_heads: int | None = setting(
        None,
        "attention heads, where the weights do not show them",
        unit="N",
        absent="as in the weights",
        limits=POSITIVE,
        off=(None,),
    )
    position_resize: str | None = setting(
        None,
        "how position embeddings are resized to another image size",
        choices=tuple(RULES),
        absent="the rule of the weights' code base",
        off=(None,),
        line="position_resize",
    )
    train: str = setting(
        "all",
        "all; the head alone, a linear probe; or lora, the head and small additions to the "
        "attention",
        choices=TRAINED,
    )
    lora_rank: int = setting(
        8,
        "columns that LoRA adds for each head",
        unit="COLUMNS",
        limits=POSITIVE,
        used=lambda settings: settings.train == "lora",
        needs="--train lora",
    )
    lora_alpha: float | None = setting(
        None,
        "strength of LoRA's addition",
        unit="STRENGTH",
        absent="the rank",
        used=lambda settings: settings.train == "lora",
        needs="--train lora",
    )
    teacher: str | None = setting(
        None,
        "a classifier to learn from in addition to the labels: its folder, or cifar10",
        unit="FOLDER",
        absent="none",
        off=(None,),
        line="teacher",
        completion=("classifiers",),
    )
    distillation: str = setting(
        "soft",
        "what is learned from the teacher: its probabilities, or its class",
        choices=DISTILLATIONS,
        source="Hinton et al. 2015; hard is DeiT's",
        used=lambda settings: settings.teacher,
        needs="--teacher",
    )
    distillation_weight: float = setting(
        0.5,
        "share of the teacher in the loss; the labels have the rest",
        unit="SHARE",
        source="DeiT, equation 3",
        limits=("in [0, 1]", lambda value: 0 <= value <= 1),
        used=lambda settings: settings.teacher,
        needs="--teacher",
    )
    temperature: float = setting(
        3.0,
        "what the logits of both are divided by in the distillation soft",
        unit="T",
        source="Hinton et al. 2015: 2.5 to 4 for small students",
        limits=POSITIVE_NUMBER,
        used=lambda settings: settings.teacher and settings.distillation == "soft",
        needs="--teacher and --distillation soft",
    )

    command = "finetune"

    def __post_init__(self):
        super().__post_init__()
        if self.teacher is not None and self.loss == "sigmoid":
            raise ValueError(
                "The loss must be softmax, for one class an image, to learn from a teacher. "
                f'Received: teacher={self.teacher!r}, loss="sigmoid"'
            )
        if self.train == "head" and self.layer_decay != 1:
            raise ValueError(
                'layer_decay needs more than one layer to train, but train="head" trains the '
                f"last. Received: layer_decay={self.layer_decay}"
            )
        if self.replay is not None and (self.head not in (None, "extend") or self.weights is None):
            raise ValueError(
                "Replayed images need weights, and extend their head. "
                f"Received: replay={self.replay}, head={self.head!r}, weights={self.weights}"
            )
        if self.replay is not None and (self.class_weights or self.sampling != "images"):
            raise ValueError(
                "replay decides how often classes are seen: leave out class_weights and sampling. "
                f"Received: class_weights={self.class_weights}, sampling={self.sampling!r}"
            )


@documented
@dataclasses.dataclass(frozen=True)
class PreTraining(Settings):
    """The paper's supervised pre-training; Table 3, the row "ViT-*, ImageNet"."""

    image_size: tuple[int, int] | None = changed(
        Settings, "image_size", (224, 224), source="paper, Table 3"
    )
    batch_size: int = changed(Settings, "batch_size", 4096, source="paper, Table 3")
    decay: str = changed(Settings, "decay", "cosine", source="paper, Table 3")
    clip_norm: float | None = changed(Settings, "clip_norm", 1.0, source="paper, Table 3")
    optimizer: str = changed(Settings, "optimizer", "adam", source="paper, Table 3")
    learning_rate: float = changed(Settings, "learning_rate", 3e-3, source="paper, Table 3")
    weight_decay: float = changed(Settings, "weight_decay", 0.3, source="paper, Table 3")
    dropout_rate: float = changed(Settings, "dropout_rate", 0.1, source="paper, Table 3")

    command: ClassVar[str] = "pretrain"


@documented
@dataclasses.dataclass(frozen=True)
class MaskedPatches(PreTraining):
    """The paper's masked patch prediction; Appendix B.1.2, which is silent on the rest.

    By default 1,000,000 steps, of which 10,000 are warm-up (a fifth of a run of less than
    50,000), and all images are trained on: without labels there is nothing to choose the best
    weights by. With `validation` the best weights are chosen by the accuracy of the colours of
    the validation images.
    """

    learning_rate: float = changed(Settings, "learning_rate", 2e-4, source="paper, B.1.2")
    weight_decay: float = changed(Settings, "weight_decay", 0.1, source="paper, section 4.1")
    steps: int | None = changed(Settings, "steps", None, absent="1,000,000", source="paper, B.1.2")
    warmup_steps: int | None = changed(
        Settings,
        "warmup_steps",
        None,
        absent="10,000, or a fifth of a short run",
        source="paper, B.1.2",
    )
    clip_norm: float | None = changed(
        Settings, "clip_norm", None, absent="no clipping", source=None
    )
    dropout_rate: float = changed(Settings, "dropout_rate", 0.0, source="paper, Table 3, JFT-300M")
    validation: float | None = changed(Settings, "validation", 0.0, source=None)
    target: str = setting(
        "mean-colour",
        "what is predicted of a corrupted patch: its mean colour, the colours of its 4x4 version, "
        "or all its pixels",
        choices=TARGETS,
        source="paper, B.1.2",
    )
    corruption: float = setting(
        0.5,
        "share of the patches that is corrupted; the paper also tried 0.15",
        unit="SHARE",
        source="paper, B.1.2",
        limits=("in (0, 1)", lambda value: 0 < value < 1),
    )

    command = f"pretrain --objective {OBJECTIVE}"

    def __post_init__(self):
        super().__post_init__()
        if self.class_weights is not None or self.sampling != "images":
            raise ValueError(
                "Masked patches need no classes: class_weights and sampling must be left out. "
                f"Received: class_weights={self.class_weights}, sampling={self.sampling!r}"
            )

    def resolve(
        self,
        num_images: int,
        data_size: tuple[int, int] | None = None,
        task: str = MULTICLASS,
    ) -> Self:
        """Returns the settings with every value that depends on others filled in.

        Args:
            num_images: Images to train with, including the validation images.
            data_size: Not used.
            task: Not used.
        """
        recipe = recipes.MASKED_PATCHES["ViT-B/16 JFT-300M masked patches"].settings
        steps = recipe["steps"] if self.steps is None else self.steps
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            warmup_steps = min(recipe["warmup_steps"], steps // 5)
        filled = dataclasses.replace(self, steps=steps, warmup_steps=warmup_steps)
        return PreTraining.resolve(filled, num_images, data_size)


def _check_warmup(warmup_steps, steps):
    if not 0 <= warmup_steps < steps:
        raise ValueError(
            "The warm-up must be shorter than the run. "
            f"Received: warmup_steps={warmup_steps}, steps={steps}"
        )
