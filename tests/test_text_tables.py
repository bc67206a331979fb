from keras_vit.utils.text_tables import align_columns

ROWS = [("model", "tokens", "weights"), ("ViT-B/16", "197", "imagenet"), ("BiT-R50x1", "", "-")]


def test_columns_are_aligned_at_the_left_or_at_the_right():
    assert align_columns(ROWS, left=(0, -1)).splitlines() == [
        "model      tokens  weights",
        "ViT-B/16      197  imagenet",
        "BiT-R50x1          -",
    ]


def test_all_columns_are_aligned_at_the_left_by_default():
    assert align_columns(ROWS).splitlines()[1] == "ViT-B/16   197     imagenet"
