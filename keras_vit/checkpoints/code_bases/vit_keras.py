"""vit-keras: names of weights and their preprocessing."""

from keras_vit.checkpoints.code_bases.files_beside import found
from keras_vit.checkpoints.code_bases.layouts import KERAS_2, Layout, rules_of
from keras_vit.checkpoints.code_bases.official import OFFICIAL_NAMES
from keras_vit.checkpoints.code_bases.transforms import FLAT, FLAT_FROM_HEADS, VECTOR
from keras_vit.preprocessing import Preprocessing

# faustomorales/vit-keras, on Keras 2 and on Keras 3; its .npz files are the official ones.
VIT_KERAS = Layout(
    name="vit-keras",
    rules=rules_of(
        OFFICIAL_NAMES | {"class_token/token": "class_token/cls"},
        KERAS_2,
        {
            "/attention/out/kernel$": FLAT_FROM_HEADS,
            "/attention/.*/kernel$": FLAT,
            "/attention/.*/bias$": VECTOR,
        },
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
    images=lambda checkpoint, image_size, classes: found(
        "vit-keras's preprocess_inputs", Preprocessing(image_size)
    ),
)
