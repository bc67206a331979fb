import pytest

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
