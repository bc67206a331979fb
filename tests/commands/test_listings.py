"""`keras-vit models` and `keras-vit recipes`."""

from keras_vit import configs
from keras_vit.command_line import main
from keras_vit.training.recipes import RECIPES


def test_every_model_has_a_line(capsys):
    assert main(["models"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["model", "parameters", "GFLOPs", "activations", "tokens", "weights"]
    assert [line.split()[0] for line in lines] == list(configs.MODELS)
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["ViT-B/16"].split()[1:] == (
        ["86,567,656", "35.26", "23.9", "M", "197", "imagenet,", "imagenet21k"]
    )
    assert by_name["BiT-R50x2"].split()[-2:] == ["-", "-"]  # A ResNet without weights.


def test_a_pattern_lists_the_models_that_match_it(capsys):
    assert main(["models", "ViT-B/*", "vit_tiny*"]) == 0
    tables = capsys.readouterr().out.split("\n\n")
    names = [[line.split()[0] for line in table.splitlines()[1:]] for table in tables]
    assert names == [["ViT-B/8", "ViT-B/16", "ViT-B/32", "ViT-B/14"], ["ViT-Ti/16"]]


def test_a_name_prints_its_config_and_its_weights(capsys):
    assert main(["models", "R50+ViT-L/32", "ViT-B/8"]) == 0
    hybrid, plain = capsys.readouterr().out.split("\n\n")
    assert "328,994,856" in hybrid
    assert "ResNetStem(num_blocks=(3, 4, 6, 3), width_factor=1," in hybrid
    assert "384 pixels, 1000 classes, 85.99% on ImageNet" in hybrid
    assert plain.startswith("ViT-B/8, 224x224 pixels")


def test_weights_print_the_config_of_their_model(capsys):
    assert main(["models", "cifar10"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("R7+ViT-Nano/8, 32x32 pixels")
    assert "    num_heads = 4\n" in printed
    assert "weights" not in printed
    assert "  pixels           -1 to 1, resize\n" in printed
    assert "  classes          airplane, automobile, bird, cat, deer and 5 more\n" in printed


def test_sizes_are_counted_for_and_one_below_a_patch_is_marked(capsys):
    assert main(["models", "--image-size", "384x256", "ViT-B/16"]) == 0
    printed = capsys.readouterr().out
    assert "384x256 pixels" in printed
    assert f"sequence length  {24 * 16 + 1}" in printed
    assert main(["models", "--image-size", "20"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "image too small" in lines["ViT-B/32"]
    assert "image too small" not in lines["ViT-B/16"]


def test_every_recipe_has_a_line(command):
    done = command("recipes")
    assert done.code == 0
    for name in RECIPES:
        assert any(line.startswith(f"{name}  ") for line in done.out.splitlines()), name
    assert "0.001, 0.003, 0.01, 0.03" in done.out


def test_a_name_prints_all_values(command):
    done = command("recipes", "oxford flowers-102")
    assert "for keras-vit finetune" in done.out
    assert "  batch_size = 512" in done.out
