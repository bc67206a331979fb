"""torchvision: names of weights and their preprocessing."""

from __future__ import annotations

from keras_vit.checkpoints.code_bases.files_beside import found
from keras_vit.checkpoints.code_bases.layouts import BLOCK, TORCH, Layout, rules_of
from keras_vit.checkpoints.code_bases.transforms import TORCH_TRANSFORMS
from keras_vit.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, value_range
from keras_vit.utils.files import DESCRIPTION


def _images(checkpoint, image_size, classes):
    shapes = checkpoint.shapes
    is_first = image_size == (224, 224) and "encoder_block_31" not in shapes  # Not ViT-H.
    is_large = "encoder_block_23" in shapes and shapes["patch_embedding"][0] == 16
    side = 242 if is_large else 256
    preprocessing = Preprocessing(
        image_size,
        "torchvision",
        value_range(IMAGENET_MEAN, IMAGENET_STD),
        "bilinear" if is_first else "bicubic",
        side if is_first else max(image_size),
    )
    note = (
        f"{side} pixels and the bilinear filter of IMAGENET1K_V1 were assumed; IMAGENET1K_SWAG_"
        f"LINEAR_V1 has 224 and bicubic (resize_size and interpolation in {DESCRIPTION})"
    )
    return found("torchvision's own weights", preprocessing, notes=[note] if is_first else [])


_BLOCK = "encoder.layers.encoder_layer_{block}"

# pytorch/vision: VisionTransformer, such as vit_b_16.
TORCHVISION = Layout(
    name="torchvision",
    rules=rules_of(
        {
            "patch_embedding": "conv_proj",
            "class_token/token": "class_token",
            "position_embedding/embedding": "encoder.pos_embedding",
            f"{BLOCK}/norm_1": f"{_BLOCK}.ln_1",
            f"{BLOCK}/attention/qkv": f"{_BLOCK}.self_attention.in_proj",
            f"{BLOCK}/attention/out": f"{_BLOCK}.self_attention.out_proj",
            f"{BLOCK}/norm_2": f"{_BLOCK}.ln_2",
            f"{BLOCK}/mlp/dense_1": f"{_BLOCK}.mlp.0",
            f"{BLOCK}/mlp/dense_2": f"{_BLOCK}.mlp.3",
            "encoder_norm": "encoder.ln",
            "pre_logits": "heads.pre_logits",
            "predictions": "heads.head",
        },
        TORCH,
        TORCH_TRANSFORMS,
    ),
    marks=(r"^conv_proj\.weight$", r"^encoder\.layers\.\w+\.self_attention\.in_proj\.weight$"),
    aliases=(
        (r"\.in_proj_(weight|bias)$", r".in_proj.\1"),
        # Names of the published files, before the MLP was a Sequential.
        (r"\.mlp\.linear_1\.", ".mlp.0."),
        (r"\.mlp\.linear_2\.", ".mlp.3."),
    ),
    gelu="exact",
    norm_epsilon=1e-6,
    position_resize="bicubic_corners",
    images=_images,
)
