import pytest

import keras_vit
from keras_vit.checkpoints import catalogue


def test_every_key_and_file_is_there_once():
    rows = catalogue.rows()
    assert len(rows) == 69
    assert len({row.key for row in rows}) == len({row.url for row in rows}) == 69
    assert {row.model for row in rows} <= set(keras_vit.list_models())


@pytest.mark.parametrize(
    ("model", "name", "size", "key"),
    [
        ("ViT-B/16", "imagenet", 224, "vit_b16_augreg_imagenet21k_to_imagenet_224"),
        ("ViT-B/16", "imagenet", 512, "vit_b16_augreg_imagenet21k_to_imagenet_384"),
        ("ViT-B/16", "imagenet", None, "vit_b16_augreg_imagenet21k_to_imagenet_224"),
        ("ViT-L/32", "imagenet", 224, "vit_l32_imagenet21k_to_imagenet_384"),
        ("ViT-S/16", "imagenet21k", 224, "vit_s16_augreg_imagenet21k"),
        ("ViT-H/14", "imagenet21k", 224, "vit_h14_imagenet21k"),
        ("BiT-R50x1", "imagenet", 480, "bit_r50x1_imagenet21k_to_imagenet_480"),
        ("BiT-R50x1", "imagenet", 224, "bit_r50x1_imagenet"),
    ],
)
def test_a_name_means_the_recommended_file_of_the_nearest_resolution(model, name, size, key):
    assert catalogue.find(model, name, (size, size)).key == key


def test_what_there_is_not_lists_what_there_is():
    with pytest.raises(ValueError, match="ViT-H/14: imagenet21k, vit_h14_imag"):
        catalogue.find("ViT-H/14", "imagenet")
    with pytest.raises(ValueError, match="BiT-R50x2: there are none"):
        catalogue.find("BiT-R50x2", "imagenet")
    with pytest.raises(ValueError, match="ViT-B/16: .*'vit_b32_imag"):
        catalogue.find("ViT-B/16", "vit_b32_imagenet21k")


def test_list_weights_gives_names_before_keys():
    assert keras_vit.list_weights("ViT-B/8") == [
        "imagenet",
        "imagenet21k",
        "vit_b8_augreg_imagenet21k_to_imagenet_224",
        "vit_b8_augreg_imagenet21k",
    ]
    assert keras_vit.list_weights("ViT-Mini/4") == ["cifar10", "vit_mini4_cifar10"]
    assert len(keras_vit.list_weights()) == 69 + len(catalogue.RELEASED_NAMES)


def test_functions_take_imagenet_by_default_where_a_file_exists():
    import inspect

    from keras_vit.applications import function_name

    cases = [*keras_vit.list_models()]
    assert cases
    for model in cases:
        function = getattr(keras_vit.applications, function_name(model), None)
        if function is None:
            continue
        exists = "imagenet" in keras_vit.list_weights(model)
        default = inspect.signature(function).parameters["weights"].default
        assert default == ("imagenet" if exists else None), model


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("ViTB16", ["ViT-B/16"]),
        ("vit_b16", ["ViT-B/16"]),
        ("r50vitb*", ["R50+ViT-B/16", "R50+ViT-B/32"]),
        ("VIT-H/*", ["ViT-H/14"]),
        ("ViT-B/16", ["ViT-B/16"]),
        ("vit_tiny*", ["ViT-Ti/16"]),
        ("vit_base_patch16_224", ["ViT-B/16"]),
        ("vit_giant*", []),
    ],
)
def test_models_are_found_by_other_spellings_if_none_is_as_written(pattern, names):
    assert keras_vit.list_models(pattern) == names


def test_lower_case_finds_all_models_that_begin_so():
    every = keras_vit.list_models()
    assert keras_vit.list_models("vit*") == [name for name in every if name.startswith("ViT-")]
    assert keras_vit.list_models("vit*", pretrained=False) == keras_vit.list_models(
        "ViT-*", pretrained=False
    )
