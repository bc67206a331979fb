"""Names of weights in code bases on PyTorch: Hugging Face, timm, torchvision."""

import dataclasses

from keras_vit.checkpoints.layouts import (
    BLOCK,
    CONVOLUTION,
    CONVOLUTION_OF_POOLED,
    MATRIX,
    MATRIX_FROM_HEADS,
    POSITION_ROWS,
    STACKED_MATRICES,
    STACKED_VECTORS,
    UNIT,
    VECTOR,
    Layout,
    Rule,
)


def _torch_dense(stored, ours, transform=MATRIX, optional_bias=False):
    return (
        Rule(f"{stored}.weight", f"{ours}/kernel", transform),
        Rule(f"{stored}.bias", f"{ours}/bias", VECTOR, optional_bias),
    )


def _torch_norm(stored, ours):
    return (Rule(f"{stored}.weight", f"{ours}/gamma"), Rule(f"{stored}.bias", f"{ours}/beta"))


_QKV = ("query", "key", "value")


def _torch_qkv(weight, bias, ours=f"{BLOCK}/attention"):
    """The projections of an attention, stacked in one array."""
    return tuple(
        Rule(
            stored,
            tuple(f"{ours}/{part}/{variable}" for part in _QKV),
            transform,
            optional=variable == "bias",
        )
        for stored, variable, transform in (
            (weight, "kernel", STACKED_MATRICES),
            (bias, "bias", STACKED_VECTORS),
        )
    )


def _joined_gates(mlp, whole, gate, value):
    """The halves of SwiGLU's first layer, for `Layout.joined`."""
    return tuple(
        (f"{mlp}.{whole}.{variable}", (f"{mlp}.{gate}.{variable}", f"{mlp}.{value}.{variable}"))
        for variable in ("weight", "bias")
    )


_HF_BLOCK = "encoder.layer.{block}"

# huggingface/transformers: ViTForImageClassification and ViTModel; DeiT's too.
HUGGING_FACE = Layout(
    name="Hugging Face",
    rules=(
        *_torch_dense("embeddings.patch_embeddings.projection", "patch_embedding", CONVOLUTION),
        Rule("embeddings.cls_token", "class_token/token"),
        Rule("embeddings.distillation_token", "distillation_token/token"),
        Rule("embeddings.register_tokens", "registers/tokens"),
        Rule("embeddings.position_embeddings", "position_embedding/embedding"),
        *_torch_norm(f"{_HF_BLOCK}.layernorm_before", f"{BLOCK}/norm_1"),
        *(
            row
            for part in _QKV
            for row in _torch_dense(
                f"{_HF_BLOCK}.attention.attention.{part}",
                f"{BLOCK}/attention/{part}",
                optional_bias=True,
            )
        ),
        *_torch_dense(
            f"{_HF_BLOCK}.attention.output.dense",
            f"{BLOCK}/attention/out",
            MATRIX_FROM_HEADS,
        ),
        Rule(f"{_HF_BLOCK}.layer_scale1.lambda1", f"{BLOCK}/layer_scale_1/gamma"),
        *_torch_norm(f"{_HF_BLOCK}.layernorm_after", f"{BLOCK}/norm_2"),
        *_torch_dense(f"{_HF_BLOCK}.intermediate.dense", f"{BLOCK}/mlp/dense_1"),
        *_torch_dense(f"{_HF_BLOCK}.output.dense", f"{BLOCK}/mlp/dense_2"),
        Rule(f"{_HF_BLOCK}.layer_scale2.lambda1", f"{BLOCK}/layer_scale_2/gamma"),
        *_torch_norm("layernorm", "encoder_norm"),
        *_torch_dense("pooler.dense", "pre_logits"),
        *_torch_dense("classifier", "predictions"),
        *_torch_dense("cls_classifier", "class_token_head"),
        *_torch_dense("distillation_classifier", "distillation_token_head"),
    ),
    marks=(r"^embeddings\.patch_embeddings\.projection\.weight$", r"^layernorm\.weight$"),
    prefixes=("", "vit.", "deit.", "ijepa.", "dinov2.", "dinov2_with_registers."),
    left_out=(
        (r"^decoder\.", "the decoder"),
        (r"^embeddings\.mask_token$", "the mask token"),
    ),
    aliases=(
        # Names since version 5.
        (r"^layers\.(\d+)\.", r"encoder.layer.\1."),
        (r"\.attention\.q_proj\.", ".attention.attention.query."),
        (r"\.attention\.k_proj\.", ".attention.attention.key."),
        (r"\.attention\.v_proj\.", ".attention.attention.value."),
        (r"\.attention\.o_proj\.", ".attention.output.dense."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."),
        (r"\.mlp\.fc2\.", ".output.dense."),
        # DINOv2's.
        (r"\.norm1\.", ".layernorm_before."),
        (r"\.norm2\.", ".layernorm_after."),
        (r"\.mlp\.weights_in\.", ".intermediate.dense."),
        (r"\.mlp\.weights_out\.", ".output.dense."),
    ),
    prefix_rows=("class", "all"),
    gelu="exact",
    norm_epsilon=1e-12,
    models_vary=True,
    position_resize="bicubic_torch",
)

# huggingface/transformers: Dinov2Model, Dinov2WithRegistersModel and their classifiers.
HUGGING_FACE_DINOV2 = dataclasses.replace(
    HUGGING_FACE,
    name="Hugging Face DINOv2",
    marks=(*HUGGING_FACE.marks, r"\.layer_scale1\.lambda1$"),
    norm_epsilon=1e-6,
)

_DINOV3_BLOCK = "layer.{block}"

# huggingface/transformers: DINOv3ViTModel.
HUGGING_FACE_DINOV3 = Layout(
    name="Hugging Face DINOv3",
    rules=(
        *_torch_dense("embeddings.patch_embeddings", "patch_embedding", CONVOLUTION),
        Rule("embeddings.cls_token", "class_token/token"),
        Rule("embeddings.register_tokens", "registers/tokens"),
        *_torch_norm(f"{_DINOV3_BLOCK}.norm1", f"{BLOCK}/norm_1"),
        *(
            row
            for part, projection in zip("qkv", _QKV, strict=True)
            for row in _torch_dense(
                f"{_DINOV3_BLOCK}.attention.{part}_proj",
                f"{BLOCK}/attention/{projection}",
                optional_bias=True,
            )
        ),
        *_torch_dense(
            f"{_DINOV3_BLOCK}.attention.o_proj", f"{BLOCK}/attention/out", MATRIX_FROM_HEADS, True
        ),
        Rule(f"{_DINOV3_BLOCK}.layer_scale1.lambda1", f"{BLOCK}/layer_scale_1/gamma"),
        *_torch_norm(f"{_DINOV3_BLOCK}.norm2", f"{BLOCK}/norm_2"),
        *_torch_dense(f"{_DINOV3_BLOCK}.mlp.up_proj", f"{BLOCK}/mlp/dense_1", optional_bias=True),
        *_torch_dense(f"{_DINOV3_BLOCK}.mlp.down_proj", f"{BLOCK}/mlp/dense_2", optional_bias=True),
        Rule(f"{_DINOV3_BLOCK}.layer_scale2.lambda1", f"{BLOCK}/layer_scale_2/gamma"),
        *_torch_norm("norm", "encoder_norm"),
    ),
    marks=(
        r"^embeddings\.patch_embeddings\.weight$",
        r"^layer\.0\.attention\.q_proj\.weight$",
        r"^layer\.0\.layer_scale1\.lambda1$",
    ),
    joined=_joined_gates(f"{_DINOV3_BLOCK}.mlp", "up_proj", "gate_proj", "up_proj"),
    aliases=((r"^model\.layer\.", "layer."),),
    left_out=((r"^embeddings\.mask_token$", "the mask token"),),
    models_vary=True,
)

_TOWER_BLOCK = "encoder.layers.{block}"

# huggingface/transformers: CLIPVisionModel and SiglipVisionModel, alone or with the text tower.
HUGGING_FACE_CLIP = Layout(
    name="Hugging Face CLIP and SigLIP",
    rules=(
        *_torch_dense(
            "embeddings.patch_embedding", "patch_embedding", CONVOLUTION, optional_bias=True
        ),
        Rule("embeddings.class_embedding", "class_token/token", VECTOR),
        Rule("embeddings.position_embedding.weight", "position_embedding/embedding", POSITION_ROWS),
        *_torch_norm("pre_layrnorm", "embedding_norm"),
        *_torch_norm(f"{_TOWER_BLOCK}.layer_norm1", f"{BLOCK}/norm_1"),
        *(
            row
            for part, projection in zip("qkv", _QKV, strict=True)
            for row in _torch_dense(
                f"{_TOWER_BLOCK}.self_attn.{part}_proj", f"{BLOCK}/attention/{projection}"
            )
        ),
        *_torch_dense(
            f"{_TOWER_BLOCK}.self_attn.out_proj", f"{BLOCK}/attention/out", MATRIX_FROM_HEADS
        ),
        *_torch_norm(f"{_TOWER_BLOCK}.layer_norm2", f"{BLOCK}/norm_2"),
        *_torch_dense(f"{_TOWER_BLOCK}.mlp.fc1", f"{BLOCK}/mlp/dense_1"),
        *_torch_dense(f"{_TOWER_BLOCK}.mlp.fc2", f"{BLOCK}/mlp/dense_2"),
        *_torch_norm("post_layernorm", "encoder_norm"),
        # SigLIP's attention pooling.
        Rule("head.probe", "map_head/probe"),
        *_torch_qkv("head.attention.in_proj_weight", "head.attention.in_proj_bias", "map_head"),
        *_torch_dense("head.attention.out_proj", "map_head/out", MATRIX_FROM_HEADS),
        *_torch_norm("head.layernorm", "map_head/norm"),
        *_torch_dense("head.mlp.fc1", "map_head/mlp/dense_1"),
        *_torch_dense("head.mlp.fc2", "map_head/mlp/dense_2"),
    ),
    marks=(
        r"^embeddings\.position_embedding\.weight$",
        r"^encoder\.layers\.0\.self_attn\.q_proj\.weight$",
        r"^post_layernorm\.weight$",
    ),
    prefixes=("", "vision_model."),
    left_out=(
        (r"^text_model\.|^text_projection\.|^logit_\w+$", "the text tower"),
        (r"^visual_projection\.", "the projection into the space of texts (visual_projection)"),
    ),
    refusals=(
        (
            r"^classifier\.weight$",
            "a classifier on the mean of the tokens instead of the image tower's features",
        ),
    ),
    models_vary=True,
    position_resize="bicubic_torch",
)

_TIMM_BLOCK = "blocks.{block}"
_TIMM_STEM = "patch_embed.backbone"
_TIMM_UNIT = "stages.{block}.units.{unit}"
_TIMM_KV = ("map_head/key", "map_head/value")

# Blocks and units of timm's ResNets count from 0; a unit is called a block too.
_TIMM_UNITS = (
    r"\bstages\.(\d+)\.blocks\.(\d+)\.",
    lambda match: f"stages.{int(match[1]) + 1}.units.{int(match[2]) + 1}.",
)

# By the names of their arrays.
_TIMM_REFUSALS = (
    (r"\.attn\.[qkv]_proj\.", "grouped queries, or normalisation in the MLP (timm's Eva)"),
    (r"\.lambda_\w+$", "differential attention"),
    (r"^blocks\.\d+\.in_proj\.", "attention and MLP in parallel"),
    (r"^blocks\.\d+\.attns\.", "parallel attentions in a block"),
    (r"rel_pos\.mlp\.", "relative position biases"),
    (r"^rope\.freqs$", "learned rotary positions"),
    (r"^patch_embed\..*running_mean$", "a stem with BatchNorm"),
    (r"^patch_embed\.norm\.", "normalisation in the patch embedding (embed_norm_layer)"),
    (r"^blocks\.\d+\.(attn|mlp)\.norm\.", "normalisation within attention or MLP"),
)


def _timm_units(prefix, rest):
    """The residual units of a ResNet: convolutions and norms."""
    unit = f"{prefix}{_TIMM_UNIT}"
    parts = (1, 2, 3)
    return (
        *(
            Rule(f"{unit}.conv{part}.weight", f"{UNIT}/conv_{part}/kernel", CONVOLUTION)
            for part in parts
        ),
        *(
            row
            for part in parts
            for row in _torch_norm(f"{unit}.norm{part}", f"{UNIT}/norm_{part}")
        ),
        Rule(f"{unit}.downsample.conv.weight", f"{UNIT}/conv_projection/kernel", CONVOLUTION),
        *rest,
    )


# huggingface/pytorch-image-models: VisionTransformer, its hybrids, DeiT and Eva too.
TIMM = Layout(
    name="timm",
    rules=(
        *_torch_dense("patch_embed.proj", "patch_embedding", CONVOLUTION, optional_bias=True),
        Rule("cls_token", "class_token/token"),
        Rule("dist_token", "distillation_token/token"),
        Rule("reg_token", "registers/tokens"),
        Rule("pos_embed", "position_embedding/embedding"),
        *_torch_norm("norm_pre", "embedding_norm"),
        *_torch_norm(f"{_TIMM_BLOCK}.norm1", f"{BLOCK}/norm_1"),
        *_torch_qkv(f"{_TIMM_BLOCK}.attn.qkv.weight", f"{_TIMM_BLOCK}.attn.qkv.bias"),
        *_torch_norm(f"{_TIMM_BLOCK}.attn.q_norm", f"{BLOCK}/attention/query_norm"),
        *_torch_norm(f"{_TIMM_BLOCK}.attn.k_norm", f"{BLOCK}/attention/key_norm"),
        *_torch_dense(
            f"{_TIMM_BLOCK}.attn.proj", f"{BLOCK}/attention/out", MATRIX_FROM_HEADS, True
        ),
        Rule(f"{_TIMM_BLOCK}.ls1.gamma", f"{BLOCK}/layer_scale_1/gamma"),
        *_torch_norm(f"{_TIMM_BLOCK}.norm2", f"{BLOCK}/norm_2"),
        *_torch_dense(f"{_TIMM_BLOCK}.mlp.fc1", f"{BLOCK}/mlp/dense_1", optional_bias=True),
        *_torch_dense(f"{_TIMM_BLOCK}.mlp.fc2", f"{BLOCK}/mlp/dense_2", optional_bias=True),
        Rule(f"{_TIMM_BLOCK}.ls2.gamma", f"{BLOCK}/layer_scale_2/gamma"),
        *_torch_norm("norm", "encoder_norm"),
        *_torch_norm("fc_norm", "pooled_norm"),
        *_torch_dense("pre_logits.fc", "pre_logits"),
        *_torch_dense("head", "predictions"),
        *_torch_dense("head", "class_token_head"),
        *_torch_dense("head_dist", "distillation_token_head"),
        # Attention pooling, as SigLIP's.
        Rule("attn_pool.latent", "map_head/probe"),
        Rule("attn_pool.q.weight", "map_head/query/kernel", MATRIX),
        Rule("attn_pool.q.bias", "map_head/query/bias", VECTOR),
        Rule("attn_pool.kv.weight", tuple(f"{p}/kernel" for p in _TIMM_KV), STACKED_MATRICES),
        Rule("attn_pool.kv.bias", tuple(f"{p}/bias" for p in _TIMM_KV), STACKED_VECTORS),
        *_torch_dense("attn_pool.proj", "map_head/out", MATRIX_FROM_HEADS),
        *_torch_norm("attn_pool.norm", "map_head/norm"),
        *_torch_dense("attn_pool.mlp.fc1", "map_head/mlp/dense_1"),
        *_torch_dense("attn_pool.mlp.fc2", "map_head/mlp/dense_2"),
        # The ResNet of a hybrid.
        Rule(f"{_TIMM_STEM}.stem.conv.weight", "root_conv/kernel", CONVOLUTION),
        *_torch_norm(f"{_TIMM_STEM}.stem.norm", "root_norm"),
        *_timm_units(
            f"{_TIMM_STEM}.",
            _torch_norm(f"{_TIMM_STEM}.{_TIMM_UNIT}.downsample.norm", f"{UNIT}/norm_projection"),
        ),
    ),
    marks=(r"^patch_embed\.proj\.weight$", r"^blocks\.\d+\.attn\.qkv\.weight$"),
    left_out=((r"^mask_token$", "the mask token"),),
    aliases=(
        _TIMM_UNITS,
        # Eva's.
        (r"\.gamma_([12])$", r".ls\1.gamma"),
        # Names of Meta's DINOv2; with `block_chunks` the block's number follows its chunk's.
        (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),
        (r"^register_tokens$", "reg_token"),
        (r"\.mlp\.w12\.", ".mlp.fc1."),
        (r"\.mlp\.w3\.", ".mlp.fc2."),
        # A stem without blocks is not in a separate module.
        (r"^patch_embed\.backbone\.(conv|norm)\.", r"patch_embed.backbone.stem.\1."),
    ),
    joined=(
        (
            f"{_TIMM_BLOCK}.attn.qkv.bias",
            (f"{_TIMM_BLOCK}.attn.q_bias", None, f"{_TIMM_BLOCK}.attn.v_bias"),
        ),
        *_joined_gates(f"{_TIMM_BLOCK}.mlp", "fc1", "fc1_g", "fc1_x"),
    ),
    gelu="exact",
    norm_epsilon=1e-6,
    epsilon_in="variance",
    # By default positions are added to all tokens; with `no_embed_class` to patches only.
    prefix_rows=("all", "class", "none"),
    models_vary=True,
    refusals=_TIMM_REFUSALS,
    position_resize="bicubic",
)

# The same code base: ResNetV2 of the BiT paper.
TIMM_BIT = Layout(
    name="timm (BiT)",
    rules=(
        Rule("stem.conv.weight", "root_conv/kernel", CONVOLUTION),
        *_timm_units("", ()),
        *_torch_norm("norm", "final_norm"),
        Rule("head.fc.weight", "predictions/kernel", CONVOLUTION_OF_POOLED),
        Rule("head.fc.bias", "predictions/bias"),
    ),
    marks=(r"^stem\.conv\.weight$", r"^stages\.1\.units\.1\.norm1\.weight$"),
    aliases=(_TIMM_UNITS,),
)

_TV_BLOCK = "encoder.layers.encoder_layer_{block}"

# pytorch/vision: VisionTransformer, such as vit_b_16.
TORCHVISION = Layout(
    name="torchvision",
    rules=(
        *_torch_dense("conv_proj", "patch_embedding", CONVOLUTION),
        Rule("class_token", "class_token/token"),
        Rule("encoder.pos_embedding", "position_embedding/embedding"),
        *_torch_norm(f"{_TV_BLOCK}.ln_1", f"{BLOCK}/norm_1"),
        *_torch_qkv(
            f"{_TV_BLOCK}.self_attention.in_proj_weight", f"{_TV_BLOCK}.self_attention.in_proj_bias"
        ),
        *_torch_dense(
            f"{_TV_BLOCK}.self_attention.out_proj",
            f"{BLOCK}/attention/out",
            MATRIX_FROM_HEADS,
        ),
        *_torch_norm(f"{_TV_BLOCK}.ln_2", f"{BLOCK}/norm_2"),
        *_torch_dense(f"{_TV_BLOCK}.mlp.0", f"{BLOCK}/mlp/dense_1"),
        *_torch_dense(f"{_TV_BLOCK}.mlp.3", f"{BLOCK}/mlp/dense_2"),
        *_torch_norm("encoder.ln", "encoder_norm"),
        *_torch_dense("heads.pre_logits", "pre_logits"),
        *_torch_dense("heads.head", "predictions"),
    ),
    marks=(r"^conv_proj\.weight$", r"^encoder\.layers\.\w+\.self_attention\.in_proj_weight$"),
    # Names of the published files, before the MLP was a Sequential.
    aliases=((r"\.mlp\.linear_1\.", ".mlp.0."), (r"\.mlp\.linear_2\.", ".mlp.3.")),
    gelu="exact",
    norm_epsilon=1e-6,
    position_resize="bicubic_corners",
)
