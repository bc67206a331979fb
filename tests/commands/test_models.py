import pytest

from keras_vit import configs
from keras_vit.command_line import main


def test_every_model_has_a_line(capsys):
    assert main(["models"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["model", "parameters", "GFLOPs", "activations", "tokens", "weights"]
    assert [line.split()[0] for line in lines] == configs.list_models()
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["ViT-B/16"].split()[1:] == (
        ["86,567,656", "35.26", "23.9", "M", "197", "imagenet,", "imagenet21k"]
    )
    assert by_name["BiT-R50x2"].split()[-2:] == ["-", "-"]  # A ResNet without weights.


def test_a_name_prints_its_config_and_its_weights(capsys):
    assert main(["models", "R50+ViT-L/32", "ViT-B/8"]) == 0
    hybrid, plain = capsys.readouterr().out.split("\n\n")
    assert "328,994,856" in hybrid
    assert "ResNetStem(num_blocks=(3, 4, 6, 3), width_factor=1," in hybrid
    assert "384 pixels, 1000 classes, 85.99% on ImageNet" in hybrid
    assert plain.startswith("ViT-B/8, 224x224 pixels")


def test_size_and_classes_are_counted_for(capsys):
    assert main(["models", "--image-size", "384x256", "--classes", "10", "ViT-B/16"]) == 0
    printed = capsys.readouterr().out
    assert "384x256 pixels" in printed
    assert f"sequence length  {24 * 16 + 1}" in printed


def test_a_size_below_a_patch_is_marked(capsys):
    assert main(["models", "--image-size", "20"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "image too small" in lines["ViT-B/32"]
    assert "image too small" not in lines["ViT-B/16"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ViT-B16"], "ViT-B/16"),
        (["--classes", "0"], "--classes must be"),
        (["ViT-B/16", "--image-size", "8"], "at least 16x16 pixels"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(arguments, message, capsys):
    assert main(["models", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("size", ["0", "224,224"])
def test_a_malformed_image_size_is_an_error(size, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["models", "--image-size", size])
    assert "--image-size: must be pixels, such as 384" in capsys.readouterr().err
