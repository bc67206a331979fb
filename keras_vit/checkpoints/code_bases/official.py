"""Names of weights in the official code: Vision Transformers, hybrids, BiT."""

from keras_vit.checkpoints.code_bases.files_beside import found
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    DENSE,
    GROUP_NORM,
    NORM,
    POINTWISE,
    PROJECTIONS,
    UNIT,
    Layout,
    Rule,
    rows,
)
from keras_vit.preprocessing import Preprocessing


def _images(files, image_size, classes):
    return found("the official code", Preprocessing(image_size))


def _official_block(stored, ours):
    attention, mlp = f"{stored}/MultiHeadDotProductAttention_1", f"{stored}/MlpBlock_3"
    return (
        *rows(f"{stored}/LayerNorm_0", f"{ours}/norm_1", NORM),
        *(
            row
            for part in PROJECTIONS
            for row in rows(f"{attention}/{part}", f"{ours}/attention/{part}", DENSE)
        ),
        *rows(f"{stored}/LayerNorm_2", f"{ours}/norm_2", NORM),
        *rows(f"{mlp}/Dense_0", f"{ours}/mlp/dense_1", DENSE),
        *rows(f"{mlp}/Dense_1", f"{ours}/mlp/dense_2", DENSE),
    )


# Variants of the paper without published weights. The names are ours, in the same style.
_UNPUBLISHED = (
    *(
        Rule(f"{stored}/{name}", f"{ours}/{name}")
        for stored, ours in (
            ("Transformer/posembed_input", "position_embedding"),
            ("Transformer/encoderblock_{block}/posembed_input", "position_embedding_{block}"),
        )
        for name in ("x_embedding", "y_embedding", "prefix_embedding")
    ),
    Rule(
        "Transformer/encoderblock_{block}/posembed_input/pos_embedding",
        "position_embedding_{block}/embedding",
    ),
    *(
        Rule(
            f"Transformer/{stored}_{{block}}/MultiHeadDotProductAttention_1/offset_embedding",
            f"{ours}_{{block}}/attention/offset_embedding",
        )
        for stored, ours in (
            ("encoderblock", "encoder_block"),
            ("rowblock", "row_block"),
            ("columnblock", "column_block"),
        )
    ),
    *_official_block("Transformer/rowblock_{block}", "row_block_{block}"),
    *_official_block("Transformer/columnblock_{block}", "column_block_{block}"),
    Rule("dist", "distillation_token/token"),
    Rule("reg", "registers/tokens"),
    *rows("head", "class_token_head", DENSE),
    *rows("head_dist", "distillation_token_head", DENSE),
)

# google-research/vision_transformer, plain and hybrid, and google-research/big_vision.
OFFICIAL = Layout(
    name="official",
    rules=(
        *rows("embedding", "patch_embedding", DENSE),
        Rule("cls", "class_token/token"),
        Rule("Transformer/posembed_input/pos_embedding", "position_embedding/embedding"),
        *_official_block("Transformer/encoderblock_{block}", BLOCK),
        *rows("Transformer/encoder_norm", "encoder_norm", NORM),
        *rows("pre_logits", "pre_logits", DENSE),
        *rows("head", "predictions", DENSE),
        # The attention pooling of big_vision.
        Rule("MAPHead_0/probe", "map_head/probe"),
        *(
            row
            for part in PROJECTIONS
            for row in rows(
                f"MAPHead_0/MultiHeadDotProductAttention_0/{part}", f"map_head/{part}", DENSE
            )
        ),
        *rows("MAPHead_0/LayerNorm_0", "map_head/norm", NORM),
        *rows("MAPHead_0/MlpBlock_0/Dense_0", "map_head/mlp/dense_1", DENSE),
        *rows("MAPHead_0/MlpBlock_0/Dense_1", "map_head/mlp/dense_2", DENSE),
        # The ResNet of a hybrid.
        Rule("conv_root/kernel", "root_conv/kernel"),
        *rows("gn_root", "root_norm", NORM, GROUP_NORM),
        *(
            Rule(f"block{{block}}/unit{{unit}}/{stored}/kernel", f"{UNIT}/{ours}/kernel")
            for stored, ours in (
                ("conv1", "conv_1"),
                ("conv2", "conv_2"),
                ("conv3", "conv_3"),
                ("conv_proj", "conv_projection"),
            )
        ),
        *(
            row
            for stored, ours in (
                ("gn1", "norm_1"),
                ("gn2", "norm_2"),
                ("gn3", "norm_3"),
                ("gn_proj", "norm_projection"),
            )
            for row in rows(
                f"block{{block}}/unit{{unit}}/{stored}",
                f"{UNIT}/{ours}",
                NORM,
                GROUP_NORM,
            )
        ),
        *_UNPUBLISHED,
    ),
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
        # Files of big_vision from before the attention pooling was a module.
        (
            r"^(probe$|(?:MlpBlock_0|MultiHeadDotProductAttention_0|LayerNorm_0)/)",
            r"MAPHead_0/\1",
        ),
    ),
    gelu="tanh",
    norm_epsilon=1e-6,
    # As big_vision names the MLP of a block; its files without a table of positions have fixed
    # ones (`posemb="sincos2d"`). Files of `save_checkpoint` have the published names.
    fixed_positions=r"Transformer/encoderblock\w*/MlpBlock_0/",
    gap_note="the head reads the mean over patches; a file does not show big_vision's "
    'pool_type="0" and "none", which no model here has',
    images=_images,
)

_BIT_UNIT = "resnet/block{block}/unit{unit:02d}"
_BIT_NORM = (("gamma", "gamma"), ("beta", "beta"))

# google-research/big_transfer.
BIT = Layout(
    name="BiT",
    rules=(
        Rule("resnet/root_block/standardized_conv2d/kernel", "root_conv/kernel"),
        *(
            Rule(f"{_BIT_UNIT}/{stored}/standardized_conv2d/kernel", f"{UNIT}/{ours}/kernel")
            for stored, ours in (
                ("a", "conv_1"),
                ("b", "conv_2"),
                ("c", "conv_3"),
                ("a/proj", "conv_projection"),
            )
        ),
        *(
            row
            for stored, ours in (("a", "norm_1"), ("b", "norm_2"), ("c", "norm_3"))
            for row in rows(f"{_BIT_UNIT}/{stored}/group_norm", f"{UNIT}/{ours}", _BIT_NORM)
        ),
        *rows("resnet/group_norm", "final_norm", _BIT_NORM),
        Rule("resnet/head/conv2d/kernel", "predictions/kernel", POINTWISE),
        Rule("resnet/head/conv2d/bias", "predictions/bias"),
        # Axial-ResNet has no published weights; the names are ours.
        *(
            Rule(f"{_BIT_UNIT}/b/{axis}/{name}", f"{UNIT}/attention/{axis}/{name}")
            for axis in ("row", "column")
            for name in (
                "offset_embedding",
                *(f"{part}/{kind}" for part in PROJECTIONS for kind in ("kernel", "bias")),
            )
        ),
    ),
    marks=(r"^resnet/root_block/standardized_conv2d/kernel$",),
    # Some files have a counter behind the module's name.
    aliases=((r"\b(standardized_conv2d|group_norm|conv2d)_\d+\b", r"\1"),),
    images=_images,
)
