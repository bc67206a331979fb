"""The known names that a wrong one may have meant, for error messages."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Collection
from typing import TypeVar

Class = TypeVar("Class", bound=type)

# Words of timm, Hugging Face, Keras and PyTorch that are unlike ours, and what they are called
# here: the first name that the place knows.
WORDS_OF_OTHERS = {
    "num_classes num_labels": ("classes",),
    "pretrained checkpoint model_name_or_path": ("weights",),
    "arch model_name": ("model",),
    "img_size input_size resolution image_size": ("image_size", "input_shape"),
    "in_chans num_channels": ("input_shape",),
    "hidden_size embed_dim": ("width",),
    "num_hidden_layers num_layers": ("depth",),
    "num_attention_heads heads": ("num_heads",),
    "global_pool": ("pooling",),
    "intermediate_size": ("mlp_dim",),
    "drop_rate hidden_dropout_prob": ("dropout_rate",),
    "drop_path drop_path_rate": ("stochastic_depth_rate",),
    "lr base_lr": ("learning_rate",),
    "wd": ("weight_decay",),
    "bs per_device_train_batch_size": ("batch_size",),
    "num_epochs num_train_epochs": ("epochs",),
    "max_steps num_steps": ("steps",),
    "gradient_accumulation_steps": ("accumulate",),
    "clip_grad max_grad_norm": ("clip_norm",),
    "amp fp16 bf16": ("precision",),
    "freeze freeze_backbone": ("train",),
    "train fit": ("finetune",),  # Commands.
    "eval test": ("evaluate",),
}


def our_word(name: str, known: Collection[str]) -> str | None:
    """Returns what a word of another library is called here, or None.

    Args:
        name: The word, of Python or a flag: `--num-epochs` is `num_epochs`.
        known: The names that the place knows, as in Python.
    """
    word = name.strip("-").replace("-", "_").lower()
    for words, ours in WORDS_OF_OTHERS.items():
        if word in words.split():
            return next((our for our in ours if our in known), None)
    return None


def our_name(name: str, known: Collection[str]) -> str | None:
    """Returns `our_word` of a name, or the known name that it may be a slip of; or None."""
    return our_word(name, known) or next(iter(near_names(name, known, 0.75)), None)


def with_hints(settings_type: Class) -> Class:
    """Adds to Python's error of an unknown argument what it is called here; a decorator."""
    made = vars(settings_type)["__init__"]
    names = inspect.signature(settings_type).parameters

    @functools.wraps(made)
    def init(self, *args, **kwargs):
        for name in kwargs.keys() - names.keys():
            if ours := our_name(name, names):
                raise TypeError(f"{settings_type.__name__} has no {name}, here it is {ours}.")
        made(self, *args, **kwargs)

    settings_type.__init__ = init  # type: ignore[misc]
    return settings_type


def nearest_names(name: str, known: Collection[str], cutoff: float = 0.4) -> str:
    """Returns a part of an error: "Nearest: A, B", or "Known: ..." if no name is near.

    Args:
        name: The unknown name.
        known: All names.
        cutoff: How like `name` they must be, from 0 to 1 (equal); see `difflib`.
    """
    nearest = near_names(name, known, cutoff)
    return f"Nearest: {', '.join(nearest)}" if nearest else f"Known: {', '.join(known)}"


def near_names(name: str, known: Collection[str], cutoff: float) -> list[str]:
    """Returns at most three names like `name`, the most alike first; see `nearest_names`."""
    folded = {other.lower(): other for other in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=cutoff)
    return [folded[match] for match in close]
