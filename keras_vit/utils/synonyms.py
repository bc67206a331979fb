"""Answers to unknown names: what they are called here, or the names that a typing error meant.

The synonyms are of timm, transformers, KerasHub, Keras and others. Each table has a row for a name:
the name elsewhere, the libraries that use it, and the name here or a few words. Errors answer with
them, and pages can be made from them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

Function = TypeVar("Function", bound=Callable)


class Synonym(NamedTuple):
    """A name of other libraries.

    Args:
        name: The name there.
        libraries: The libraries, for a page.
        here: The name here, or a few words where it is not the same thing by another name.
    """

    name: str
    libraries: str
    here: str

    def answer(self) -> str:
        """Returns the part of an error that says what a name is here."""
        if " " in self.here:
            return f"{self.name}: {self.here}"
        return f"{self.name} is called {self.here} here"


def _table(*rows: tuple[str, str, str]) -> dict[str, Synonym]:
    return {row[0]: Synonym(*row) for row in rows}


TIMM, HF, HUB, KERAS = "timm", "transformers", "KerasHub", "Keras"
_NO_BIASES = "queries, keys and values always have biases, as in the paper"
_PREDICT_ALL = "the model is functional: take model.get_layer(name).output"

# Arguments of models and fields of their configs.
ARGUMENTS = _table(
    # The size of images and the number of classes.
    ("img_size", TIMM, "here the first two numbers of input_shape=(height, width, channels)"),
    ("image_size", HF, "here the first two numbers of input_shape=(height, width, channels)"),
    ("image_shape", HUB, "input_shape"),
    ("in_chans", TIMM, "here the third number of input_shape=(height, width, channels)"),
    ("in_channels", "torch", "here the third number of input_shape=(height, width, channels)"),
    ("num_channels", HF, "here the third number of input_shape=(height, width, channels)"),
    ("dynamic_img_size", TIMM, "here input_shape=(None, None, 3) with include_top=False"),
    ("interpolate_pos_encoding", HF, "here any input_shape resizes the positions of weights"),
    ("num_classes", f"{TIMM}, {HUB}", "classes"),
    ("num_labels", HF, "classes"),
    ("id2label", HF, "here class_names of keras_vit.save_classifier"),
    ("label2id", HF, "here class_names of keras_vit.save_classifier"),
    # Weights and files.
    ("pretrained", TIMM, 'here weights="imagenet" or "imagenet21k"; without: weights=None'),
    ("load_weights", HUB, 'here weights="imagenet" or "imagenet21k"; without: weights=None'),
    ("checkpoint_path", TIMM, "weights"),
    ("pretrained_cfg", TIMM, "here weights, a path or a key of keras_vit.list_weights()"),
    ("pretrained_model_name_or_path", HF, "weights"),
    ("preset", HUB, "here name_or_config, and weights"),
    ("model_name", TIMM, "name_or_config"),
    ("architecture", TIMM, "name_or_config"),
    ("config", HF, "name_or_config"),
    ("ignore_mismatched_sizes", HF, "here classes that the weights do not have give a new head"),
    ("dtype", f"{TIMM}, {HF}, {HUB}", "here keras.config.set_dtype_policy() before build"),
    ("torch_dtype", HF, "here keras.config.set_dtype_policy() before build"),
    # What the model gives.
    ("features_only", TIMM, "here keras_vit.features(model, at=(3, 7, 11)), maps of the patches"),
    ("out_indices", TIMM, "here keras_vit.features(model, at=(3, 7, 11)), maps of the patches"),
    ("output_hidden_states", HF, _PREDICT_ALL),
    ("output_attentions", HF, "here keras_vit.inspection.attention_maps(classifier, images)"),
    ("global_pool", TIMM, 'here classifier="token", "gap" or "map"; without the head: pooling'),
    ("pool_type", "big_vision", 'here classifier="token", "gap" or "map"'),
    ("class_token", TIMM, 'here classifier="token", and classifier="gap" for none'),
    ("use_class_token", HUB, 'here classifier="token", and classifier="gap" for none'),
    ("add_pooling_layer", HF, "here representation_size, the units of that layer"),
    ("pooler_output_size", HF, "representation_size"),
    ("activation", HUB, "classifier_activation"),
    ("final_activation", "others", "classifier_activation"),
    ("head_dtype", HUB, "here the head always computes in float32"),
    ("preprocessor", HUB, "here keras_vit.describe(model).preprocessing"),
    ("include_rescaling", KERAS, "include_preprocessing"),
    # The encoder.
    ("embed_dim", TIMM, "width"),
    ("hidden_size", HF, "width"),
    ("hidden_dim", HUB, "width"),
    ("num_hidden_layers", HF, "depth"),
    ("num_layers", HUB, "depth"),
    ("num_attention_heads", HF, "num_heads"),
    ("intermediate_size", HF, "mlp_dim"),
    ("mlp_ratio", TIMM, "here mlp_dim, the ratio times width"),
    ("qkv_bias", f"{TIMM}, {HF}", _NO_BIASES),
    ("use_qkv_bias", HUB, _NO_BIASES),
    ("use_mha_bias", HUB, _NO_BIASES),
    ("use_mlp_bias", HUB, "the MLP always has biases, as in the paper"),
    ("init_values", TIMM, "here layer_scale=True"),
    ("layerscale_value", HF, "here layer_scale=True"),
    ("act_layer", TIMM, 'here gelu="tanh" or "exact"'),
    ("hidden_act", HF, 'here gelu="tanh" or "exact"'),
    ("hidden_activation", HUB, 'here gelu="tanh" or "exact"'),
    ("norm_layer", TIMM, "here always LayerNorm, with norm_epsilon"),
    ("layer_norm_eps", HF, "norm_epsilon"),
    ("layer_norm_epsilon", HUB, "norm_epsilon"),
    ("drop_rate", TIMM, "the head has no dropout; dropout_rate is of the encoder"),
    ("pos_drop_rate", TIMM, "here dropout_rate, which is after each dense layer"),
    ("proj_drop_rate", TIMM, "here dropout_rate, which is after each dense layer"),
    ("hidden_dropout_prob", HF, "dropout_rate"),
    ("dropout", f"{HUB}, torch", "dropout_rate"),
    ("attn_drop_rate", TIMM, "attention_dropout_rate"),
    ("attention_probs_dropout_prob", HF, "attention_dropout_rate"),
    ("attention_dropout", HUB, "attention_dropout_rate"),
    ("drop_path_rate", f"{TIMM}, {HF}", "stochastic_depth_rate"),
    ("drop_path", TIMM, "stochastic_depth_rate"),
    ("patch_drop_rate", TIMM, "patches are not dropped; stochastic_depth_rate drops blocks"),
    ("reg_tokens", TIMM, "num_registers"),
    ("num_register_tokens", HF, "num_registers"),
    ("pos_embed", TIMM, 'here position_embedding="learned_1d", "learned_2d", "relative", "none"'),
    ("pre_norm", TIMM, "embedding_norm"),
    ("fc_norm", TIMM, 'here final_norm="pooled"'),
    ("grad_checkpointing", TIMM, "remat"),
    ("gradient_checkpointing", HF, "remat"),
)

# Commands, as other command lines and people call them; keras-vit COMMAND.
COMMANDS = _table(
    ("train", "timm, ultralytics", "finetune"),
    ("fit", KERAS, "finetune"),
    ("fine-tune", "others", "finetune"),
    ("tune", "others", "here sweep, over learning rates; finetune trains once"),
    ("distill", "others", "here finetune --teacher"),
    ("eval", "others", "evaluate"),
    ("test", "others", "evaluate"),
    ("val", "ultralytics", "evaluate"),
    ("validate", TIMM, "evaluate"),
    ("classify", "ultralytics", "predict"),
    ("infer", "others", "predict"),
    ("inference", TIMM, "predict"),
    ("serve", "others", "here export, and examples/serve.py answers by HTTP"),
    ("quantize", "others", "here export --precision int8"),
    ("extract", "others", "embed"),
    ("features", "others", "embed"),
    ("upload", HF, "push"),
    ("list", "others", "models"),
    ("version", "others", "here keras-vit --version"),
    ("help", "others", "here keras-vit --help"),
)

# Flags of other command lines; the same flags here begin with two dashes, too.
FLAGS = _table(
    ("--img-size", TIMM, "--image-size"),
    ("--imgsz", "ultralytics", "--image-size"),
    ("--train-dir", HF, "--data"),
    ("--opt", TIMM, "--optimizer"),
    ("--lr", TIMM, "--learning-rate"),
    ("--num-classes", TIMM, "here --data, whose folders are the classes"),
    ("--wd", "big_vision", "--weight-decay"),
    ("--warmup-epochs", TIMM, "here --warmup-steps, in steps"),
    ("--clip-grad", TIMM, "--global-clipnorm"),
    ("--grad-accum-steps", TIMM, "--accumulate"),
    ("--model-ema-decay", TIMM, "--ema-momentum"),
    ("--smoothing", TIMM, "--label-smoothing"),
    ("--drop-path", TIMM, "--stochastic-depth-rate"),
    ("--drop", TIMM, "--dropout-rate"),
    ("--dropout", f"{HUB}, torch", "--dropout-rate"),
    ("--stochastic-depth", HUB, "--stochastic-depth-rate"),
    ("--aa", TIMM, "--augmentation"),
    ("--reprob", TIMM, "here --layers RandomErasing"),
    ("--cutmix", TIMM, "here --layers CutMix"),
    ("--pretrained", TIMM, "here --weights, a model or a file"),
    ("--checkpoint", TIMM, "--weights"),
    ("--topk", TIMM, "--top"),
    ("--num-epochs", "others", "--epochs"),
    ("--num-train-epochs", HF, "--epochs"),
    ("--max-steps", HF, "--steps"),
    ("--batch", "ultralytics", "--batch-size"),
    ("-b", TIMM, "--batch-size"),
    ("--per-device-train-batch-size", HF, "--batch-size"),
    ("--optim", HF, "--optimizer"),
    ("--output-dir", HF, "--output"),
    ("--random-state", "scikit-learn", "--seed"),
    ("--validation-split", KERAS, "here --validation, a share of the training images"),
    ("--val-split", TIMM, "here --validation, a share of the training images; not a part's name"),
    ("--lora", "PEFT", 'here --train, whose value "lora" trains the head and small additions'),
    ("--freeze-backbone", "others", 'here --train, whose value "head" trains the head alone'),
    ("--freeze-layers", TIMM, 'here --train, whose value "head" trains the head alone'),
    ("--freeze", "ultralytics", 'here --train, whose value "head" trains the head alone'),
    ("--device", "ultralytics", "--strategy"),
    ("--dataset", TIMM, "--data"),
    ("--sched", TIMM, "--decay"),
    ("--model-ema", TIMM, "here --ema-momentum, 0.99 for 500 steps, 0.97 for 100"),
    ("--model-ema-warmup", TIMM, "here --ema-momentum alone, 0.99 for 500 steps, 0.97 for 100"),
    ("--min-lr", TIMM, "here --decay, whose cosine ends at 0"),
    ("--input-size", TIMM, "here --image-size, of three channels"),
    ("--crop-pct", TIMM, "here --evaluation, whose values are ways of resizing and cropping"),
    ("--no-aug", TIMM, 'here --augmentation, whose value "none" changes no image'),
    ("--bce-loss", TIMM, 'here --loss, whose value "sigmoid" is binary cross-entropy'),
    ("--torchcompile", TIMM, "here --jit-compile, of XLA"),
    ("--amp", TIMM, "here --precision, whose value mixed_bfloat16 computes in 16 bits"),
    ("--initial-checkpoint", TIMM, "--weights"),
    ("--patience-epochs", TIMM, "here --patience, in validations"),
    ("--mean", TIMM, "here --normalization, whose values are half and imagenet"),
    ("--std", TIMM, "here --normalization, whose values are half and imagenet"),
    ("--arch", "torchvision", "--model"),
    # Exports.
    ("--format", "ultralytics", "--to"),
    ("--quantize", "others", "--precision"),
    ("--quantization", "others", "--precision"),
    ("--int8", "ultralytics", 'here --precision, whose value "int8" is of 8-bit weights'),
    ("--half", "ultralytics", 'here --precision, whose value "float16" is of 16-bit weights'),
)

# Arguments of functions, which are no flags.
CALLS = _table(
    ("quantize", "others", 'here precision, such as precision="int8"'),
    ("int8", "ultralytics", 'here precision, such as precision="int8"'),
    ("half", "ultralytics", 'here precision, such as precision="float16"'),
    (
        "label_mode",
        KERAS,
        "here keras_vit.image_datasets gives numbers of classes, for sparse losses and metrics",
    ),
    ("verbose", KERAS, "here log, a function that receives the lines, and None for silence"),
    ("progress", "others", "here log, a function that receives the lines, and None for silence"),
)

_SAVED = "here keras_vit.save_classifier(folder, model, class_names), or keras-vit convert"

# Functions and classes, as attributes of the package.
FUNCTIONS = _table(
    ("create_model", TIMM, 'here keras_vit.build("ViT-B/16", weights="imagenet")'),
    ("from_pretrained", HF, "here keras_vit.load_classifier('hf:OWNER/NAME') or build(weights=)"),
    ("from_preset", HUB, 'here keras_vit.build("ViT-B/16", weights="imagenet21k")'),
    ("load_model", KERAS, "here keras_vit.load_classifier(name), or keras.saving.load_model"),
    ("load", "others", "here keras_vit.load_classifier(name), or build(weights=name)"),
    ("save_model", KERAS, _SAVED),
    ("save_pretrained", HF, _SAVED),
    ("save_to_preset", HUB, _SAVED),
    ("list_pretrained", TIMM, "list_weights"),
    ("is_model", TIMM, "here name in keras_vit.list_models()"),
    ("reset_classifier", TIMM, "with_new_head"),
    ("forward_features", TIMM, 'here model.get_layer("encoder_norm").output'),
    ("resolve_data_config", TIMM, "here keras_vit.describe(model).preprocessing"),
    ("create_transform", TIMM, "here keras_vit.Preprocessing, or keras_vit.describe(model)"),
    ("AutoImageProcessor", HF, "here keras_vit.describe(model).preprocessing"),
    ("ViTImageProcessor", HF, "here keras_vit.describe(model).preprocessing"),
    ("AutoModelForImageClassification", HF, "here keras_vit.load_classifier('hf:OWNER/NAME')"),
    ("ViTForImageClassification", HF, "here keras_vit.build(weights=folder)"),
    ("ViTModel", HF, "here keras_vit.build(weights=folder, include_top=False)"),
    ("ViTBackbone", HUB, 'here keras_vit.build("ViT-B/16", include_top=False)'),
    ("ViTImageClassifier", HUB, 'here keras_vit.build("ViT-B/16")'),
    ("ImageClassifier", HUB, "here keras_vit.load_classifier('imagenet')"),
    ("VisionTransformer", TIMM, "here keras_vit.build(keras_vit.ViTConfig(...))"),
    ("pipeline", HF, "here keras_vit.load_classifier('imagenet')(photos)"),
    ("push_to_hub", HF, "here keras_vit.load_classifier(folder).push('OWNER/NAME')"),
    ("push_to_hf_hub", TIMM, "here keras_vit.load_classifier(folder).push('OWNER/NAME')"),
    ("Trainer", HF, "here keras_vit.training.Trainer"),
    ("TrainingArguments", HF, "here keras_vit.training.FineTuning"),
    ("SGD", KERAS, "here keras_vit.training.SGD"),
    ("Adam", KERAS, "here keras_vit.training.Adam"),
    ("fit", KERAS, "here keras_vit.finetune(data, output), or model.fit"),
    ("train", "others", "here keras_vit.finetune(data, output)"),
    ("predict", KERAS, "here keras_vit.load_classifier(name).predict(paths)"),
)

# Values of arguments.
VALUES = _table(
    ("adamw", f"{TIMM}, {KERAS}", "here adam, whose weight_decay is decoupled, of kernels alone"),
)

# Names of weights.
WEIGHTS = _table(
    ("imagenet1k", "torchvision", "imagenet"),
    ("imagenet-1k", "others", "imagenet"),
    ("in1k", TIMM, "imagenet"),
    ("DEFAULT", "torchvision", "imagenet"),
    ("imagenet-21k", "others", "imagenet21k"),
    ("in21k", TIMM, "imagenet21k"),
)

_PREPROCESS = (
    "here classifier.preprocess(images), which keras_vit.describe(classifier).preprocessing "
    "describes"
)
_PROBABILITIES = (
    "here classifier.model.predict(classifier.preprocess(images)); the last column is "
    '"unknown" if the classifier may answer so'
)

# Attributes of a `Classifier`.
ATTRIBUTES = _table(
    ("classes", "fastai", "class_names"),
    ("classes_", "scikit-learn", "class_names"),
    ("names", "ultralytics", "here class_names, in the order of the model's outputs"),
    ("labels", "others", "here class_names, of all classes; an answer has .label"),
    ("vocab", "fastai", "class_names"),
    ("num_classes", TIMM, "here len(classifier.class_names)"),
    ("num_labels", HF, "here len(classifier.class_names)"),
    ("preprocessing", "others", _PREPROCESS),
    ("preprocessor", HUB, _PREPROCESS),
    ("processor", HF, _PREPROCESS),
    ("image_processor", HF, _PREPROCESS),
    ("transform", "torchvision", _PREPROCESS),
    ("image_size", "others", "here keras_vit.describe(classifier).preprocessing.image_size"),
    ("config", HF, "here keras_vit.describe(classifier), which has .config"),
    ("description", "others", "here keras_vit.describe(classifier)"),
    ("task", "others", "here keras_vit.describe(classifier).labels.task"),
    ("thresholds", "others", "here keras_vit.describe(classifier).labels.thresholds"),
    ("predict_proba", "scikit-learn", _PROBABILITIES),
    ("score", "scikit-learn", "here classifier.evaluate(data).top_1"),
    ("fit", f"{KERAS}, scikit-learn", "here keras_vit.finetune(data, output, weights=folder)"),
    ("compile", KERAS, "here classifier.model.compile(...)"),
    ("summary", KERAS, "here classifier.model.summary()"),
    ("input_shape", KERAS, "here classifier.model.input_shape"),
    ("output_shape", KERAS, "here classifier.model.output_shape"),
    ("layers", KERAS, "here classifier.model.layers"),
    ("get_layer", KERAS, "here classifier.model.get_layer(name)"),
    ("weights", KERAS, "here classifier.model.weights"),
    ("get_weights", KERAS, "here classifier.model.get_weights()"),
    ("count_params", KERAS, "here classifier.model.count_params()"),
    ("features", "others", "here keras_vit.features(classifier)"),
    ("save_pretrained", HF, "save"),
    ("push_to_hub", HF, "push"),
)

# The packages in keras_vit that have other public names, by a pattern of the names.
MODULES = {
    r"ViT(Mini|[SBL])(4|8|14)|(R\d*ViT|BiTR|Axial(ViT|ResNet))\w+": "applications",
    r"(Axial|AxialResNet|BiT)Config|(ResNet|Pooling)Stem": "configs",
    r"Description|Labels": "description",
}


_ALIKE = 0.9  # A ratio of `difflib`, from 0 to 1 (equal): two slips in a long name.


def nearest_names(name: str, known: Collection[str], cutoff: float = _ALIKE) -> str:
    """Returns a part of an error: "Nearest: A, B", or "Known: ..." if no name is near.

    Args:
        name: The unknown name.
        known: All names.
        cutoff: See `near_names`.
    """
    nearest = near_names(name, known, cutoff)
    return f"Nearest: {', '.join(nearest)}" if nearest else f"Known: {', '.join(known)}"


def near_names(name: str, known: Collection[str], cutoff: float = _ALIKE) -> list[str]:
    """Returns at most three names of which `name` is a typing error, the most alike first.

    Another word for the same thing is no typing error, but a synonym.

    Args:
        name: The unknown name.
        known: All names.
        cutoff: How alike more than one slip may be, from 0 to 1 (equal); see `difflib`.
    """
    folded = {other.lower(): other for other in sorted(known, reverse=True)}
    slips = [other for other in folded if _is_slip(name.lower(), other)]
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=cutoff)
    return [folded[match] for match in dict.fromkeys([*close, *slips])][:3]


def _is_slip(word, other):
    """Whether a letter is missing, added or another, or two neighbours are in the other order."""
    if min(len(word), len(other)) < 4:
        return False
    start = len(os.path.commonprefix([word, other]))
    word, other = word[start:][::-1], other[start:][::-1]
    end = len(os.path.commonprefix([word, other]))
    word, other = word[end:], other[end:]
    is_swapped = len(word) == 2 and word == other[::-1]
    return is_swapped or max(len(word), len(other)) <= 1


def argument_here(name: str, known: Collection[str], flags: Mapping[str, str] | None = None) -> str:
    """Returns what an unknown argument of a function is called here; "" if that is not known.

    A row answers if it begins with an argument of the function. Other rows of `ARGUMENTS` are about
    `keras_vit.build`, and their answer says so.

    Args:
        name: The unknown argument.
        known: The function's arguments.
        flags: The arguments by their flags, which may have other names.
    """
    flag = f"--{name.replace('_', '-')}"
    by_flag = {f"--{each.replace('_', '-')}": each for each in known} | dict(flags or {})
    if flag in by_flag:
        return f"{name} is called {by_flag[flag]} here"
    for row in filter(None, (CALLS.get(name), ARGUMENTS.get(name), FLAGS.get(flag))):
        here = re.sub(r"--[a-z][a-z-]*", lambda found: by_flag.get(found[0], found[0]), row.here)
        subject = re.split(r"[^\w.]", here.removeprefix("here "))[0]
        if subject in known or subject.startswith("keras_vit."):
            return row._replace(name=name, here=here).answer()
    if name in ARGUMENTS:
        return f"In keras_vit.build, {ARGUMENTS[name].answer()}"
    near = near_names(name, known)
    return f"The nearest: {', '.join(near)}" if near else ""


def value_here(value: str, choices: Collection[str]) -> str:
    """Returns what a value of an argument is here; "" if that is not known or not a choice."""
    row = VALUES.get(value.lower())
    is_choice = row is not None and row.here.split()[1].strip(",") in choices
    return row.answer() if row and is_choice else ""


def no_such_arguments(
    function: str,
    names: Iterable[str],
    known: Collection[str],
    flags: Mapping[str, str] | None = None,
) -> TypeError:
    """Returns the error of unknown arguments of a function.

    Args:
        function: The function's name.
        names: The unknown arguments.
        known: See `argument_here`.
        flags: See `argument_here`.
    """
    names = list(names)
    others = "{} is none of those that help() lists".format
    answers = "; ".join(argument_here(name, known, flags) or others(name) for name in names)
    return TypeError(f"keras_vit.{function} has no argument {', '.join(names)}. {answers}")


def answers_synonyms(function: Function, changes: Mapping[str, str] | None = None) -> Function:
    """Answers unknown arguments with their names here; a decorator of functions and dataclasses.

    Args:
        function: The function or dataclass.
        changes: What to call instead, by other arguments.
    """
    if isinstance(function, type):
        function.__init__ = answers_synonyms(vars(function)["__init__"])  # type: ignore[misc]
        return function
    known, instead = list(inspect.signature(function).parameters), changes or {}
    name = function.__qualname__.removesuffix(".__init__").rpartition("<locals>.")[2]

    @functools.wraps(function)
    def called(*args, **kwargs):
        if unknown := [argument for argument in kwargs if argument not in known]:
            if known_elsewhere := next(filter(instead.get, unknown), None):
                raise TypeError(
                    f"keras_vit.{name} has no argument {known_elsewhere}: "
                    f"{instead[known_elsewhere]} has it"
                )
            raise no_such_arguments(name, unknown, known)
        return function(*args, **kwargs)

    return cast(Function, called)  # It has the arguments and the result of the function.


_SIZES = {
    "tiny": "Ti",
    "small": "S",
    "base": "B",
    "large": "L",
    "huge": "H",
    "ti": "Ti",
    "s": "S",
    "b": "B",
    "l": "L",
    "h": "H",
}
_STEMS = {
    "r_s16_p8": ("R", "16"),
    "r26_s32": ("R26", "32"),
    "r50_s16": ("R50", "16"),
    "r50_s32": ("R50", "32"),
}
_SIZE = r"(tiny|small|base|large|huge)"
# Names of models of timm, transformers, KerasHub and torchvision, and of their repositories.
_PATCHES = re.compile(rf"(?:vit|deit3?|flexivit)_(?:mae_)?{_SIZE}_patch(\d+)(?:_|$)")
_HYBRID = re.compile(rf"vit_{_SIZE}_(r_s16_p8|r26_s32|r50_s16|r50_s32)(?:_|$)")
_SHORT = re.compile(r"vit_?(ti|s|b|l|h)_?(\d+)(?:_|$)")
_BIT = re.compile(r"resnetv2_(\d+x\d)_bit")


def timm_name_of(name: str) -> str:
    """Returns timm's name of a plain Vision Transformer of the paper; "" of other models."""
    found = re.fullmatch(r"ViT-(Ti|S|B|L|H)/(\d+)", name)
    if found is None:
        return ""
    (size,) = (long for long, short in _SIZES.items() if short == found[1] and len(long) > 2)
    return f"vit_{size}_patch{found[2]}_224"


def paper_name_of(name: str) -> str:
    """Returns the name in the paper of another library's model; "" if it is none.

    Args:
        name: Such as "vit_base_patch16_224.augreg_in21k" or "google/vit-base-patch16-224".
    """
    name = name.lower().rpartition("/")[2] if "/vit" in name.lower() or "/d" in name else name
    name = re.sub(r"[^a-z0-9]+", "_", name.lower())
    if found := _PATCHES.match(name):
        return f"ViT-{_SIZES[found[1]]}/{found[2]}"
    if found := _HYBRID.match(name):
        stem, stride = _STEMS[found[2]]
        return f"{stem}+ViT-{_SIZES[found[1]]}/{stride}"
    if name.startswith("vit_hybrid_base_bit"):
        return "R50+ViT-B/16"
    if found := re.match(rf"dinov2_(?:with_registers_)?{_SIZE}", name):
        return f"ViT-{_SIZES[found[1]]}/14"
    if found := _SHORT.match(name):
        return f"ViT-{_SIZES[found[1]]}/{found[2]}"
    if found := _BIT.match(name):
        return f"BiT-R{found[1]}"
    return ""
