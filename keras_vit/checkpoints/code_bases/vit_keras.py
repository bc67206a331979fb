"""vit-keras: names of weights and their preprocessing."""

from keras_vit.checkpoints.code_bases.files_beside import found
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    DENSE,
    FLAT,
    FLAT_FROM_HEADS,
    PROJECTIONS,
    VECTOR,
    Layout,
    Rule,
    rows,
)
from keras_vit.preprocessing import Preprocessing

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
    images=lambda files, image_size, classes: found(
        "vit-keras's preprocess_inputs", Preprocessing(image_size)
    ),
)
