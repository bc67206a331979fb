"""Names of weights in the official code, Vision Transformers, hybrids and BiT.

Also in our own files and in vit-keras's, which has the official names.
"""

from keras_vit.checkpoints.code_bases.files_beside import found, read_folder
from keras_vit.checkpoints.code_bases.layouts import BLOCK, FLAX, KERAS_2, UNIT, Layout, rules_of
from keras_vit.checkpoints.code_bases.transforms import (
    FLAT,
    FLAT_FROM_HEADS,
    GROUP_NORM,
    POINTWISE,
    VECTOR,
)
from keras_vit.configs.model_table import LEVERAGE
from keras_vit.preprocessing import Preprocessing

_PROJECTIONS = ("query", "key", "value", "out")

_BLOCK = "Transformer/encoderblock_{block}"
_MAP = "MAPHead_0/MultiHeadDotProductAttention_0"

_NAMES = {
    "patch_embedding": "embedding",
    "class_token/token": "cls",
    "position_embedding/embedding": "Transformer/posembed_input/pos_embedding",
    f"{BLOCK}/norm_1": f"{_BLOCK}/LayerNorm_0",
    **{
        f"{BLOCK}/attention/{part}": f"{_BLOCK}/MultiHeadDotProductAttention_1/{part}"
        for part in _PROJECTIONS
    },
    f"{BLOCK}/norm_2": f"{_BLOCK}/LayerNorm_2",
    f"{BLOCK}/mlp/dense_1": f"{_BLOCK}/MlpBlock_3/Dense_0",
    f"{BLOCK}/mlp/dense_2": f"{_BLOCK}/MlpBlock_3/Dense_1",
    "encoder_norm": "Transformer/encoder_norm",
    "pre_logits": "pre_logits",
    "predictions": "head",
    # The attention pooling of big_vision.
    "map_head/probe": "MAPHead_0/probe",
    **{f"map_head/{part}": f"{_MAP}/{part}" for part in _PROJECTIONS},
    "map_head/norm": "MAPHead_0/LayerNorm_0",
    "map_head/mlp/dense_1": "MAPHead_0/MlpBlock_0/Dense_0",
    "map_head/mlp/dense_2": "MAPHead_0/MlpBlock_0/Dense_1",
    # The ResNet of a hybrid.
    "root_conv/kernel": "conv_root/kernel",
    "root_norm": "gn_root",
    **{
        f"{UNIT}/conv_{part}/kernel": f"block{{block}}/unit{{unit}}/conv{part}/kernel"
        for part in (1, 2, 3)
    },
    f"{UNIT}/conv_projection/kernel": "block{block}/unit{unit}/conv_proj/kernel",
    **{f"{UNIT}/norm_{part}": f"block{{block}}/unit{{unit}}/gn{part}" for part in (1, 2, 3)},
    f"{UNIT}/norm_projection": "block{block}/unit{unit}/gn_proj",
}

# google-research/vision_transformer, plain and hybrid, and google-research/big_vision.
OFFICIAL = Layout(
    name="official",
    rules=rules_of(_NAMES, FLAX, {r"^root_norm/|_unit_{unit}/norm_": GROUP_NORM}),
    marks=(r"^Transformer/encoder_norm/scale$", r"^embedding/kernel$"),
    prefixes=("", "opt/target/", "params/img/", "params/", "img/"),
    whole_prefix=True,
    stacked=("Transformer/encoderblock/", "Transformer/encoderblock_{block}/"),
    aliases=(
        # Linen and big_vision number modules by class; the published files number all modules
        # of a block together.
        (
            r"^(Transformer/encoderblock\w*/)MultiHeadDotProductAttention_0/",
            r"\1MultiHeadDotProductAttention_1/",
        ),
        (r"^(Transformer/encoderblock\w*/)LayerNorm_1/", r"\1LayerNorm_2/"),
        (r"^(Transformer/encoderblock\w*/)MlpBlock_0/", r"\1MlpBlock_3/"),
        (r"^pos_embedding$", "Transformer/posembed_input/pos_embedding"),
    ),
    gelu="tanh",
    norm_epsilon=1e-6,
    images=lambda checkpoint, image_size, classes: found(
        "the official code", Preprocessing(image_size)
    ),
)

_BIT_UNIT = "resnet/block{block}/unit{unit:02d}"

# google-research/big_transfer.
BIT = Layout(
    name="BiT",
    rules=rules_of(
        {
            "root_conv/kernel": "resnet/root_block/standardized_conv2d/kernel",
            **{
                f"{UNIT}/conv_{ours}/kernel": f"{_BIT_UNIT}/{stored}/standardized_conv2d/kernel"
                for ours, stored in (("1", "a"), ("2", "b"), ("3", "c"), ("projection", "a/proj"))
            },
            **{
                f"{UNIT}/norm_{ours}": f"{_BIT_UNIT}/{stored}/group_norm"
                for ours, stored in (("1", "a"), ("2", "b"), ("3", "c"))
            },
            "final_norm": "resnet/group_norm",
            "predictions": "resnet/head/conv2d",
        },
        KERAS_2,
        {"^predictions/kernel$": POINTWISE},
    ),
    marks=(r"^resnet/root_block/standardized_conv2d/kernel$",),
    # Some files have a counter behind the module's name.
    aliases=((r"\b(standardized_conv2d|group_norm|conv2d)_\d+\b", r"\1"),),
    images=OFFICIAL.images,
)

# `save_weights` of our models; weights of KerasHub's other backbones look like it.
KERAS = Layout(
    "Keras",
    numbered=True,
    left_out=((rf"^{LEVERAGE}/", 'the class "unknown"'),),
    images=lambda checkpoint, image_size, classes: read_folder(checkpoint.folder, classes),
)

# faustomorales/vit-keras, on Keras 2 and on Keras 3; its .npz files are the official ones.
VIT_KERAS = Layout(
    name="vit-keras",
    rules=rules_of(
        _NAMES | {"class_token/token": "class_token/cls"},
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
