"""Names of timm, transformers, KerasHub and Keras are answered with ours, and nothing false."""

import dataclasses
import functools
import importlib
import inspect

import pytest

import keras_vit
from keras_vit.command_line import COMMANDS, command_type
from keras_vit.configs import MODELS
from keras_vit.configs.model_table import argument_errors, resolve
from keras_vit.utils import synonyms
from keras_vit.utils.fields import flag_of, flat_fields
from keras_vit.utils.synonyms import near_names

FIELDS = {field.name for field in dataclasses.fields(keras_vit.ViTConfig)}

# The plain renames; the others are answered in a few words.
RENAMES = {
    "num_classes": "classes",
    "num_labels": "classes",
    "checkpoint_path": "weights",
    "embed_dim": "width",
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
    "layer_norm_eps": "norm_epsilon",
    "hidden_dropout_prob": "dropout_rate",
    "attn_drop_rate": "attention_dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "drop_path_rate": "stochastic_depth_rate",
    "reg_tokens": "num_registers",
    "image_shape": "input_shape",
}
IN_WORDS = {
    "img_size": "the first two numbers of input_shape",
    "image_size": "the first two numbers of input_shape",
    "in_chans": "the third number of input_shape",
    "num_channels": "the third number of input_shape",
    "pretrained": 'weights="imagenet"',
    "global_pool": 'classifier="token", "gap" or "map"',
    "class_token": 'classifier="gap" for none',
    "use_class_token": 'classifier="gap" for none',
    "mlp_ratio": "mlp_dim, the ratio times width",
    "qkv_bias": "always have biases",
    "init_values": "layer_scale=True",
    "act_layer": 'gelu="tanh" or "exact"',
    "hidden_act": 'gelu="tanh" or "exact"',
    "norm_layer": "always LayerNorm",
    "drop_rate": "the head has no dropout",
    "proj_drop_rate": "dropout_rate, which is after each dense layer",
    "dynamic_img_size": "input_shape=(None, None, 3)",
    "dtype": "keras.config.set_dtype_policy()",
    "features_only": "keras_vit.features(model, at=(3, 7, 11))",
}


@pytest.mark.parametrize(("name", "here"), RENAMES.items())
def test_an_argument_of_another_library_has_its_name_here(name, here):
    answer = f"{name} is called {here} here. Received: {name}"
    assert argument_errors([name], keras_vit.ViTConfig) == answer


@pytest.mark.parametrize(("name", "words"), IN_WORDS.items())
def test_an_argument_that_is_no_plain_rename_is_explained(name, words):
    answer = argument_errors([name], keras_vit.ViTConfig)
    assert answer.startswith(f"{name}: ")
    assert words in answer
    assert "is called" not in answer


@pytest.mark.parametrize("name", synonyms.ARGUMENTS)
def test_every_row_of_the_arguments_is_the_answer_and_the_name_is_none_of_ours(name):
    answer = synonyms.ARGUMENTS[name].answer()
    assert argument_errors([name], keras_vit.ViTConfig) == f"{answer}. Received: {name}"


def test_a_field_that_a_config_does_not_have_is_not_named():
    answer = argument_errors(["drop_path_rate"], keras_vit.configs.BiTConfig)
    assert answer.startswith("Only fields of BiTConfig can be changed")


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("vit_base_patch16_224", "ViT-B/16"),
        ("vit_base_patch16_224.augreg_in21k", "ViT-B/16"),
        ("vit_tiny_patch16_384", "ViT-Ti/16"),
        ("vit_huge_patch14_224", "ViT-H/14"),
        ("vit_small_r26_s32_224", "R26+ViT-S/32"),
        ("vit_base_r50_s16_384.orig_in21k", "R50+ViT-B/16"),
        ("vit_base_patch14_dinov2.lvd142m", "ViT-B/14"),
        ("resnetv2_50x1_bit.goog_in21k", "BiT-R50x1"),
        ("google/vit-base-patch16-224", "ViT-B/16"),
        ("google/vit-large-patch32-384", "ViT-L/32"),
        ("facebook/dinov2-small", "ViT-S/14"),
        ("google/vit-hybrid-base-bit-384", "R50+ViT-B/16"),
        ("vit_base_patch16_224_imagenet", "ViT-B/16"),
        ("vit_b_16", "ViT-B/16"),
        ("vit_l32", "ViT-L/32"),
        ("ViT-B_16", "ViT-B/16"),
    ],
)
def test_a_model_of_another_library_has_its_name_here(name, here):
    assert here in MODELS
    with pytest.raises(ValueError, match=f"{name} is called {here.replace('+', '.')}"):
        resolve(name)


@pytest.mark.parametrize("name", ["vit_giant_patch14_224", "resnet50", "vit_base_patch10_224"])
def test_a_model_that_is_not_here_has_no_nearest(name):
    with pytest.raises(ValueError, match=r"list_models\(\)\. Known: ViT-Mini/4, "):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("train", "train is called finetune here"),
        ("fit", "fit is called finetune here"),
        ("eval", "eval is called evaluate here"),
        ("test", "test is called evaluate here"),
        ("val", "val is called evaluate here"),
        ("validate", "validate is called evaluate here"),
        ("classify", "classify is called predict here"),
        ("infer", "infer is called predict here"),
        ("serve", "serve: here export, and examples/serve.py answers by HTTP"),
        ("version", "version: here keras-vit --version"),
    ],
)
def test_a_command_of_another_library_has_its_name_here(command, name, here):
    outcome = command(name)
    assert outcome.code == 2
    assert outcome.err == f"keras-vit: no such command: {name!r}. {here}. See keras-vit --help\n"


def test_commands_of_the_table_are_none_of_ours_and_lead_to_ours():
    assert not set(synonyms.COMMANDS) & set(COMMANDS)
    plain = {row.here for row in synonyms.COMMANDS.values() if " " not in row.here}
    assert plain <= set(COMMANDS)


def flags_of(command):
    return {flag_of(field) for field, *_ in flat_fields(command_type(command))}


def flags_in(text):
    return {word for word in text.replace(",", "").split() if word.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_has_a_flag_of_the_table_and_the_flag_that_it_is_here(name):
    ours = flags_of(name)
    both = [
        row for row in synonyms.FLAGS.values() if row.name in ours and flags_in(row.here) & ours
    ]
    assert not both


def test_flags_of_the_table_lead_to_ours():
    ours = set().union(*map(flags_of, COMMANDS))
    assert set().union(*(flags_in(row.here) for row in synonyms.FLAGS.values())) <= ours


def test_a_flag_of_another_library_has_its_name_here(command):
    outcome = command("finetune", "--lr", "1", "--output", "x")
    assert "--lr is called --learning-rate here" in outcome.err


@pytest.mark.parametrize("name", synonyms.FUNCTIONS)
def test_a_function_of_another_library_has_its_place_here(name):
    with pytest.raises(AttributeError) as raised:
        getattr(keras_vit, name)
    assert str(raised.value).endswith(synonyms.FUNCTIONS[name].answer())


def test_another_attribute_is_pythons_own_error():
    with pytest.raises(AttributeError, match="attribute unheard_of$"):
        keras_vit.unheard_of  # noqa: B018


@pytest.mark.parametrize(
    ("slip", "name"),
    [("depht", "depth"), ("dept", "depth"), ("depthh", "depth"), ("depyh", "depth")],
)
def test_a_typing_error_is_answered(slip, name):
    assert near_names(slip, FIELDS) == [name]


@pytest.mark.parametrize("name", ["drop_path", "token", "size", "norm", "heads", "rate"])
def test_another_word_is_no_typing_error(name):
    assert near_names(name, FIELDS) == []


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("BiTR50x1", "keras_vit.applications.BiTR50x1"),
        ("R50ViTB16", "keras_vit.applications.R50ViTB16"),
        ("ViTMini4", "keras_vit.applications.ViTMini4"),
        ("ResNetStem", "keras_vit.configs.ResNetStem"),
        ("Description", "keras_vit.description.Description"),
    ],
)
def test_a_name_that_is_in_a_package_is_answered_with_its_place(name, place):
    with pytest.raises(AttributeError, match=f"It is {place}$"):
        getattr(keras_vit, name)
    package, _, inside = place.rpartition(".")
    assert hasattr(importlib.import_module(package), inside)


@pytest.mark.parametrize(
    ("function", "name", "answer"),
    [
        ("ViTB16", "num_classes", "num_classes is called classes here"),
        ("ViTB16", "hidden_size", "In keras_vit.build, hidden_size is called width here"),
        ("ViTB16", "pretrained", 'pretrained: here weights="imagenet" or'),
        ("with_new_head", "num_classes", "num_classes is called classes here"),
        ("features", "out_indices", "out_indices: here keras_vit.features(model, at=(3, 7, 11))"),
        ("ViTConfig", "hidden_size", "hidden_size is called width here"),
        ("ViTConfig", "num_hidden_layers", "num_hidden_layers is called depth here"),
        ("ViTConfig", "num_classes", "In keras_vit.build, num_classes is called classes here"),
        ("ViTConfig", "depht", "The nearest: depth"),
        ("image_datasets", "val_split", "val_split: here validation, a share of the training"),
        ("image_datasets", "validation_split", "validation_split: here validation, a share"),
        ("image_datasets", "img_size", "img_size is called image_size here"),
        ("image_datasets", "label_mode", "label_mode: here keras_vit.image_datasets gives numbers"),
        ("load_classifier", "num_classes", "In keras_vit.build, num_classes is called classes"),
        ("finetune", "lora", 'lora: here train, whose value "lora"'),
        ("finetune", "freeze_backbone", 'freeze_backbone: here train, whose value "head"'),
        ("finetune", "val_split", "val_split: here validation, a share of the training images"),
        ("finetune", "zzz", "zzz is none of those that help() lists"),
    ],
)
def test_an_unknown_argument_of_a_function_is_answered(function, name, answer):
    with pytest.raises(TypeError) as raised:
        getattr(keras_vit, function)(**{name: 1})
    text = f"keras_vit.{function} has no argument {name}. {answer}"
    assert str(raised.value).startswith(text)


def test_an_argument_that_only_the_function_of_a_method_has_is_answered():
    calibrate = functools.partial(keras_vit.Classifier.calibrate, None, "photos")
    text = r"^keras_vit.Classifier.calibrate has no argument "
    with pytest.raises(TypeError, match=text + "unknown: keras_vit.calibrate has it$"):
        calibrate(unknown="springs")
    with pytest.raises(TypeError, match=text + "max_eror. The nearest: max_error$"):
        calibrate(max_eror=0.1)


def test_functions_that_answer_keep_their_signature_and_text():
    assert list(inspect.signature(keras_vit.with_new_head).parameters)[:2] == ["model", "classes"]
    assert list(inspect.signature(keras_vit.ViTConfig).parameters)[0] == "patch_size"
    assert keras_vit.ViTB16.__name__ == "ViTB16"
    assert keras_vit.features.__doc__.startswith("Returns a model from images")


def test_an_optimizer_of_another_library_is_answered():
    message = "adamw: here adam, whose weight_decay is decoupled, of kernels alone. Received"
    with pytest.raises(ValueError, match=message):
        keras_vit.finetune("photos", "runs/photos", optimizer="adamw")
    with pytest.raises(ValueError, match=r"'muon'\). Received: optimizer='lion'"):
        keras_vit.finetune("photos", "runs/photos", optimizer="lion")


def test_a_field_of_the_config_is_answered_with_build():
    message = r'no argument dropout_rate: keras_vit.build\("ViT-B/16", dropout_rate=...\) has it'
    with pytest.raises(TypeError, match=message):
        keras_vit.ViTB16(weights=None, dropout_rate=0.1)
