import pytest

from keras_vit.configs import ViTConfig
from keras_vit.training.settings import FineTuning
from keras_vit.utils.nearest_names import nearest_names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("finetun", "Nearest: finetune"),
        ("vit-b16", "Nearest: ViT-b/16, ViT-B/16"),  # Both that differ in case only.
        ("ViT-B16", "Nearest: ViT-B/16, ViT-b/16"),
        ("zzz", "Known: finetune, ViT-B/16, ViT-b/16"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_or_all(name, expected):
    assert nearest_names(name, ["finetune", "ViT-B/16", "ViT-b/16"]) == expected


@pytest.mark.parametrize(
    ("settings_type", "name", "ours"),
    [(ViTConfig, "embed_dim", "width"), (FineTuning, "lr", "learning_rate")],
)
def test_an_argument_of_another_library_is_named_as_it_is_here(settings_type, name, ours):
    with pytest.raises(
        TypeError, match=f"{settings_type.__name__} has no {name}, here it is {ours}"
    ):
        settings_type(**{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        settings_type(colour=1)
