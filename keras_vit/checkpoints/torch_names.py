"""Names of weights in code bases on PyTorch: Hugging Face, timm, torchvision."""

from keras_vit.checkpoints.layouts import (
    BLOCK,
    CONVOLUTION,
    MATRIX,
    MATRIX_FROM_HEADS,
    STACKED_MATRICES,
    STACKED_VECTORS,
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


def _torch_qkv(weight, bias):
    """The projections of a block, stacked in one array."""
    return tuple(
        Rule(
            stored,
            tuple(f"{BLOCK}/attention/{part}/{variable}" for part in _QKV),
            transform,
            optional=variable == "bias",
        )
        for stored, variable, transform in (
            (weight, "kernel", STACKED_MATRICES),
            (bias, "bias", STACKED_VECTORS),
        )
    )


_HF_BLOCK = "encoder.layer.{block}"

# huggingface/transformers: ViTForImageClassification and ViTModel; DeiT's too.
HUGGING_FACE = Layout(
    name="Hugging Face",
    rules=(
        *_torch_dense("embeddings.patch_embeddings.projection", "patch_embedding", CONVOLUTION),
        Rule("embeddings.cls_token", "class_token/token"),
        Rule("embeddings.distillation_token", "distillation_token/token"),
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
        *_torch_norm(f"{_HF_BLOCK}.layernorm_after", f"{BLOCK}/norm_2"),
        *_torch_dense(f"{_HF_BLOCK}.intermediate.dense", f"{BLOCK}/mlp/dense_1"),
        *_torch_dense(f"{_HF_BLOCK}.output.dense", f"{BLOCK}/mlp/dense_2"),
        *_torch_norm("layernorm", "encoder_norm"),
        *_torch_dense("pooler.dense", "pre_logits"),
        *_torch_dense("classifier", "predictions"),
        *_torch_dense("cls_classifier", "class_token_head"),
        *_torch_dense("distillation_classifier", "distillation_token_head"),
    ),
    marks=(r"^embeddings\.patch_embeddings\.projection\.weight$", r"^layernorm\.weight$"),
    prefixes=("", "vit.", "deit.", "ijepa."),
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
    ),
    gelu="exact",
    norm_epsilon=1e-12,
    cubic_antialias=False,
)

# huggingface/pytorch-image-models: VisionTransformer; DeiT too.
TIMM = Layout(
    name="timm",
    rules=(
        *_torch_dense("patch_embed.proj", "patch_embedding", CONVOLUTION),
        Rule("cls_token", "class_token/token"),
        Rule("dist_token", "distillation_token/token"),
        Rule("reg_token", "registers/tokens"),
        Rule("pos_embed", "position_embedding/embedding"),
        *_torch_norm("blocks.{block}.norm1", f"{BLOCK}/norm_1"),
        *_torch_qkv("blocks.{block}.attn.qkv.weight", "blocks.{block}.attn.qkv.bias"),
        *_torch_dense("blocks.{block}.attn.proj", f"{BLOCK}/attention/out", MATRIX_FROM_HEADS),
        *_torch_norm("blocks.{block}.norm2", f"{BLOCK}/norm_2"),
        *_torch_dense("blocks.{block}.mlp.fc1", f"{BLOCK}/mlp/dense_1"),
        *_torch_dense("blocks.{block}.mlp.fc2", f"{BLOCK}/mlp/dense_2"),
        *_torch_norm("norm", "encoder_norm"),
        *_torch_dense("pre_logits.fc", "pre_logits"),
        *_torch_dense("head", "predictions"),
        *_torch_dense("head", "class_token_head"),
        *_torch_dense("head_dist", "distillation_token_head"),
    ),
    marks=(r"^patch_embed\.proj\.weight$", r"^blocks\.\d+\.attn\.qkv\.weight$"),
    prefixes=("", "module.", "model."),
    gelu="exact",
    norm_epsilon=1e-6,
    class_row_optional=True,
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
    prefixes=("", "module."),
    # Names of the published files, before the MLP was a Sequential.
    aliases=((r"\.mlp\.linear_1\.", ".mlp.0."), (r"\.mlp\.linear_2\.", ".mlp.3.")),
    gelu="exact",
    norm_epsilon=1e-6,
)
