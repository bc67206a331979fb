"""torchvision: names of weights and their preprocessing."""

from __future__ import annotations

from keras_vit.checkpoints.code_bases.files_beside import found
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    CONVOLUTION,
    MATRIX_FROM_HEADS,
    Layout,
    Rule,
    torch_dense,
    torch_norm,
    torch_qkv,
)
from keras_vit.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, value_range
from keras_vit.utils.files import DESCRIPTION


def _images(files, image_size, classes):
    shapes = files.shapes
    is_large, is_huge = (f"encoder_block_{last}" in shapes for last in (23, 31))
    is_first = image_size == (224, 224) and not is_huge
    side = 242 if is_large and shapes["patch_embedding"][0] == 16 else 256
    preprocessing = Preprocessing(
        image_size,
        "torchvision",
        value_range(IMAGENET_MEAN, IMAGENET_STD),
        "bilinear" if is_first else "bicubic",
        side if is_first else max(image_size),
    )
    note = (
        f"the short side of {side} pixels and the bilinear filter of IMAGENET1K_V1 were assumed; "
        "IMAGENET1K_SWAG_LINEAR_V1 has 224 and bicubic (resize_size and interpolation in "
        f"{DESCRIPTION})"
    )
    return found("torchvision's own weights", preprocessing, notes=[note] if is_first else [])


_TV_BLOCK = "encoder.layers.encoder_layer_{block}"

# pytorch/vision: VisionTransformer, such as vit_b_16.
TORCHVISION = Layout(
    name="torchvision",
    rules=(
        *torch_dense("conv_proj", "patch_embedding", CONVOLUTION),
        Rule("class_token", "class_token/token"),
        Rule("encoder.pos_embedding", "position_embedding/embedding"),
        *torch_norm(f"{_TV_BLOCK}.ln_1", f"{BLOCK}/norm_1"),
        *torch_qkv(
            f"{_TV_BLOCK}.self_attention.in_proj_weight", f"{_TV_BLOCK}.self_attention.in_proj_bias"
        ),
        *torch_dense(
            f"{_TV_BLOCK}.self_attention.out_proj",
            f"{BLOCK}/attention/out",
            MATRIX_FROM_HEADS,
        ),
        *torch_norm(f"{_TV_BLOCK}.ln_2", f"{BLOCK}/norm_2"),
        *torch_dense(f"{_TV_BLOCK}.mlp.0", f"{BLOCK}/mlp/dense_1"),
        *torch_dense(f"{_TV_BLOCK}.mlp.3", f"{BLOCK}/mlp/dense_2"),
        *torch_norm("encoder.ln", "encoder_norm"),
        *torch_dense("heads.pre_logits", "pre_logits"),
        *torch_dense("heads.head", "predictions"),
    ),
    marks=(r"^conv_proj\.weight$", r"^encoder\.layers\.\w+\.self_attention\.in_proj_weight$"),
    # Names of the published files, before the MLP was a Sequential.
    aliases=((r"\.mlp\.linear_1\.", ".mlp.0."), (r"\.mlp\.linear_2\.", ".mlp.3.")),
    gelu="exact",
    norm_epsilon=1e-6,
    position_resize="bicubic_corners",
    images=_images,
)
