"""Layer-wise learning-rate decay: the closer to the image, the smaller the step."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Path of a weight: what is added to the number in it to give its layer. The first kind of block
# that a model has counts; what is before the blocks is layer 0.
BLOCKS = (
    ((r"(?:encoder|row|column)_block_(\d+)/", 1), (r"position_embedding_(\d+)/", 0)),
    ((r"block_(\d+)_unit_\d+/", 0),),  # Of a ResNet, whose blocks count from 1.
)
# What follows the last block: one layer more.
HEAD = (
    "encoder_norm",
    "final_norm",
    "map_head",
    "pre_logits",
    "predictions",
    "class_token_head",
    "distillation_token_head",
    "patch_predictions",
)


def layer_numbers(paths: Sequence[str]) -> list[int]:
    """Returns the layer of each weight: 0 at the image, depth + 1 at the head.

    Patch embedding, class token, position embeddings and a hybrid's ResNet are layer 0, the
    encoder block i layer i + 1, the last norm and the head depth + 1, as in BEiT (arXiv
    2106.08254).

    Args:
        paths: The weights' paths.

    Raises:
        ValueError: If no weight is of a block.
    """
    for rules in BLOCKS:
        numbers = [_number(path, rules) for path in paths]
        if any(numbers):
            break
    else:
        raise ValueError(
            "Layer-wise decay needs the blocks of a model of keras_vit.build. Received: weights "
            f"{', '.join(paths[:5]) or 'none'} ..."
        )
    last = max(numbers) + 1
    head = re.compile(rf"(?:^|/)(?:{'|'.join(HEAD)})/")
    return [
        last if head.search(path) else number for path, number in zip(paths, numbers, strict=True)
    ]


def _number(path, rules):
    for pattern, offset in rules:
        match = re.search(rf"(?:^|/){pattern}", path)
        if match:
            return int(match[1]) + offset
    return 0
