"""Names of weights in other code bases on Keras: KerasHub, vit-keras."""

import dataclasses

from keras_vit.checkpoints.layouts import (
    BLOCK,
    DENSE,
    FLAT,
    FLAT_FROM_HEADS,
    POSITION_ROWS,
    PROJECTIONS,
    VECTOR,
    Layout,
    Rule,
    rows,
)

_QKV = ("query", "key", "value")
_NUMBERED_DENSE = (("0", "kernel"), ("1", "bias"))
_NUMBERED_NORM = (("0", "gamma"), ("1", "beta"))

_HUB_EMBEDDING = "vit_patching_and_embedding"
_HUB_BLOCK = "vit_encoder/encoder_layers/transformer_block_{block}"


def _hub_dense(stored, ours):
    """A dense layer whose bias `use_mha_bias`, `use_mlp_bias` or `use_patch_bias` switches off."""
    return rows(stored, ours, _NUMBERED_DENSE, optional_bias=True)


# keras-team/keras-hub: ViTBackbone and ViTImageClassifier, by the names of layers.
KERAS_HUB = Layout(
    name="KerasHub",
    rules=(
        Rule(f"{_HUB_EMBEDDING}/0", "class_token/token"),
        *_hub_dense(f"{_HUB_EMBEDDING}/patch_embedding", "patch_embedding"),
        Rule(
            f"{_HUB_EMBEDDING}/position_embedding/0",
            "position_embedding/embedding",
            POSITION_ROWS,
        ),
        *rows(f"{_HUB_BLOCK}/ln_1", f"{BLOCK}/norm_1", _NUMBERED_NORM),
        *(
            row
            for stored, ours in (*((part, part) for part in _QKV), ("attention_output", "out"))
            for row in _hub_dense(f"{_HUB_BLOCK}/mha/{stored}", f"{BLOCK}/attention/{ours}")
        ),
        *rows(f"{_HUB_BLOCK}/ln_2", f"{BLOCK}/norm_2", _NUMBERED_NORM),
        *_hub_dense(f"{_HUB_BLOCK}/mlp/dense_1", f"{BLOCK}/mlp/dense_1"),
        *_hub_dense(f"{_HUB_BLOCK}/mlp/dense_2", f"{BLOCK}/mlp/dense_2"),
        *rows("vit_encoder/ln", "encoder_norm", _NUMBERED_NORM),
        *rows("pre_logits", "pre_logits", _NUMBERED_DENSE),
        *rows("predictions", "predictions", _NUMBERED_DENSE),
    ),
    marks=(r"^vit_patching_and_embedding/patch_embedding/0$", r"^vit_encoder/ln/0$"),
    aliases=(
        # Files of Keras before it kept names have the attributes' names, or the classes' with
        # a counter.
        (r"\bvi_t_(patching_and_embedding|encoder)/", r"vit_\1/"),
        (
            r"\bencoder_layers/vi_t_encoder_block(?:_(\d+))?/",
            lambda match: f"encoder_layers/transformer_block_{int(match[1] or 0) + 1}/",
        ),
        (r"/tranformer_block_(?=\d)", "/transformer_block_"),  # KerasHub's spelling up to 0.29.
        (r"/layer_norm_([12])/", r"/ln_\1/"),
        (r"/layer_norm/", "/ln/"),
        (r"/mha/(query|key|value)_dense/", r"/mha/\1/"),
        (r"/mha/output_dense/", "/mha/attention_output/"),
        (r"^dense/", "predictions/"),
        # A classifier holds its backbone as a model.
        (r"^\w+/layers/(?=vit_(?:patching_and_embedding|encoder)/)", ""),
    ),
    gelu="exact",
    norm_epsilon=1e-6,
    first_block=1,
    position_resize="bicubic_keras",
)

# keras-team/keras-hub: DeiTBackbone and DeiTImageClassifier. No head reads the distillation
# token, so it is a register.
KERAS_HUB_DEIT = dataclasses.replace(
    KERAS_HUB,
    name="KerasHub DeiT",
    rules=(
        Rule(f"{_HUB_EMBEDDING}/1", "registers/tokens"),
        Rule(f"{_HUB_EMBEDDING}/2", "position_embedding/embedding"),
        *KERAS_HUB.rules,
    ),
    aliases=(
        (r"^(?:\w+/layers/)?deit_(patching_and_embedding|encoder)/", r"vit_\1/"),
        (r"/mlp/dense/", "/mlp/dense_1/"),
        (r"/output_layer/output/", "/mlp/dense_2/"),
    ),
    marks=(*KERAS_HUB.marks, f"^{_HUB_EMBEDDING}/2$"),
    prefix_rows=("all", "class"),
)

_KERAS_NORM = (("gamma", "gamma"), ("beta", "beta"))
_VK_BLOCK = "Transformer/encoderblock_{block}"
_VK_ATTENTION = f"{_VK_BLOCK}/MultiHeadDotProductAttention_1"

# faustomorales/vit-keras, on Keras 2 and on Keras 3; its .npz files are the official ones.
VIT_KERAS = Layout(
    name="vit-keras",
    rules=(
        *rows("embedding", "patch_embedding", DENSE),
        Rule("class_token/cls", "class_token/token"),
        Rule("Transformer/posembed_input/pos_embedding", "position_embedding/embedding"),
        *rows(f"{_VK_BLOCK}/LayerNorm_0", f"{BLOCK}/norm_1", _KERAS_NORM),
        *(
            Rule(
                f"{_VK_ATTENTION}/{part}/kernel",
                f"{BLOCK}/attention/{part}/kernel",
                FLAT_FROM_HEADS if part == "out" else FLAT,
            )
            for part in PROJECTIONS
        ),
        *(
            Rule(
                f"{_VK_ATTENTION}/{part}/bias",
                f"{BLOCK}/attention/{part}/bias",
                VECTOR,
            )
            for part in PROJECTIONS
        ),
        *rows(f"{_VK_BLOCK}/LayerNorm_2", f"{BLOCK}/norm_2", _KERAS_NORM),
        *rows(f"{_VK_BLOCK}/MlpBlock_3/Dense_0", f"{BLOCK}/mlp/dense_1", DENSE),
        *rows(f"{_VK_BLOCK}/MlpBlock_3/Dense_1", f"{BLOCK}/mlp/dense_2", DENSE),
        *rows("Transformer/encoder_norm", "encoder_norm", _KERAS_NORM),
        *rows("pre_logits", "pre_logits", DENSE),
        *rows("head", "predictions", DENSE),
    ),
    marks=(r"^embedding/kernel$", r"^Transformer/encoder_norm/gamma$"),
    aliases=(
        # Keras 3 has numbers where Keras 2 has the variables' names.
        (r"\b(class_token)/0$", r"\1/cls"),
        (r"posembed_input/0$", "posembed_input/pos_embedding"),
        (r"((?:LayerNorm_\d|encoder_norm)/)0$", r"\1gamma"),
        (r"((?:LayerNorm_\d|encoder_norm)/)1$", r"\1beta"),
        (r"/0$", "/kernel"),
        (r"/1$", "/bias"),
        # Version 0.2 has "_" for "/", as Keras 3 allows none in a layer's name.
        (r"\bTransformer_(encoderblock_\d+|encoder_norm|posembed_input)", r"Transformer/\1"),
        (r"(encoderblock_\d+)_(Dense_[01])/", r"\1/\2/"),
        # A variable's name stands behind the layer's, and has it in front once more.
        (r"^.*\b(Transformer/encoderblock_\d+/)", r"\1"),
        (
            r"^(Transformer/encoderblock_\d+/)(?:MlpBlock_3/)?(?:layers/)?(Dense_[01]/)",
            r"\1MlpBlock_3/\2",
        ),
        (r"^.*\b(Transformer/encoder_norm/\w+)$", r"\1"),
        (r"^.*\bposembed_input/(?:.*/)?pos_embedding$", "Transformer/posembed_input/pos_embedding"),
        (r"^(?:.*/)?cls$", "class_token/cls"),
        (r"^(?:.*/)?(embedding|pre_logits|head)/(kernel|bias)$", r"\1/\2"),
    ),
    gelu="exact",
    norm_epsilon=1e-6,
)
