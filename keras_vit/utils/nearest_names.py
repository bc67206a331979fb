"""The known names that a wrong one may have meant, for error messages."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Collection
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)

# Words of timm, Hugging Face, Keras, PyTorch and big_vision, and what they are called here: the
# first name that the place knows.
WORDS_OF_OTHERS = {
    "num_classes classes num_labels nb_classes": ("classes",),
    "pretrained checkpoint ckpt pretrained_model model_name_or_path init": ("weights",),
    "arch architecture backbone model_name": ("model",),
    "img_size input_size imgsz resolution image_size": ("image_size", "input_shape"),
    "in_chans in_channels num_channels": ("input_shape",),
    "global_pool pool": ("pooling",),
    "activation": ("classifier_activation",),
    "hidden_size embed_dim hidden_dim": ("width",),
    "num_hidden_layers num_layers layers": ("depth",),
    "num_attention_heads heads": ("num_heads",),
    "intermediate_size mlp_ratio": ("mlp_dim",),
    "drop_rate dropout hidden_dropout_prob": ("dropout_rate",),
    "drop_path drop_path_rate stochastic_depth": ("stochastic_depth_rate",),
    "lr rate base_lr lr0": ("learning_rate", "learning_rates"),
    "wd": ("weight_decay",),
    "opt optim": ("optimizer",),
    "sched scheduler lr_scheduler lr_scheduler_type schedule": ("decay",),
    "bs batch train_batch_size per_device_train_batch_size": ("batch_size",),
    "epoch num_epochs num_train_epochs": ("epochs",),
    "max_steps total_steps iterations max_iter num_steps": ("steps",),
    "warmup warmup_ratio warmup_epochs": ("warmup_steps",),
    "gradient_accumulation_steps grad_accum_steps accum": ("accumulate",),
    "clip_grad max_grad_norm clipnorm gradient_clip_val grad_clip_norm": ("clip_norm",),
    "smoothing": ("label_smoothing",),
    "class_weight": ("class_weights",),
    "aa auto_augment randaugment augment": ("augmentation",),
    "ema model_ema ema_decay": ("averaging",),
    "gradient_checkpointing grad_checkpointing": ("remat",),
    "fp16 bf16 amp mixed_precision half dtype quantize": ("precision",),
    "val_split validation_split val_size": ("validation",),
    "test_split test_size": ("holdout",),
    "early_stopping": ("patience",),
    "freeze freeze_backbone linear_probe lora": ("train",),
    "device gpus gpu": ("strategy",),
    "random_seed random_state": ("seed",),
    "data_path train_dir dataset dataset_name train_data": ("data",),
    "output_dir out save_dir project": ("output",),
    "resume_from_checkpoint": ("resume",),
    "topk top_k": ("top",),
    "format": ("to",),
    # Commands.
    "train fit fine_tune": ("finetune",),
    "classify infer inference": ("predict",),
    "eval val validate test": ("evaluate",),
    "upload": ("push",),
    "list": ("models",),
    "info summary": ("inspect",),
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


def with_hints(settings_type: Class) -> Class:
    """Adds to Python's error of an unknown argument what it is called here; a decorator."""
    made: Any = vars(settings_type)["__init__"]
    known = inspect.signature(settings_type).parameters

    @functools.wraps(made)
    def init(self, *args, **kwargs):
        for name in kwargs.keys() - known.keys():
            if ours := our_word(name, known):
                raise TypeError(f"{settings_type.__name__} has no {name}, here it is {ours}.")
        made(self, *args, **kwargs)

    settings_type.__init__ = init  # type: ignore[misc]
    return settings_type


def nearest_names(name: str, known: Collection[str], cutoff: float = 0.4) -> str:
    """Returns a part of an error: "Nearest: A, B", or "Known: ..." if no name is near.

    Args:
        name: The unknown name. Its case matters only in the order of the names.
        known: All names.
        cutoff: How like `name` they must be, from 0 to 1 (equal); see `difflib`.
    """
    found = near_names(name, known, cutoff)
    return f"Nearest: {', '.join(found)}" if found else f"Known: {', '.join(known)}"


def near_names(name: str, known: Collection[str], cutoff: float) -> list[str]:
    """Returns at most three names like `name`, the most alike first; see `nearest_names`."""
    folded: dict[str, list[str]] = {}
    for other in known:
        folded.setdefault(other.lower(), []).append(other)  # ViT-b and ViT-B differ in case only.
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=cutoff)
    found = [other for match in close for other in folded[match]]
    return sorted(found, key=lambda other: -difflib.SequenceMatcher(None, name, other).ratio())
