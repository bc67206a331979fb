import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import configs
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.load import LoadOptions, load_opened


def test_one_error_lists_all_that_is_missing_unused_and_misshapen(golden, model_of, write_npz):
    arrays = golden("vit_token").checkpoint()
    del arrays["cls"], arrays["Transformer/encoderblock_1/MlpBlock_3/Dense_0/bias"]
    arrays["extra/kernel"] = np.zeros(3, "float32")
    arrays["head/kernel"] = arrays["head/kernel"][:, :7]
    arrays["embedding/bias"] = arrays["embedding/bias"][None]
    with pytest.raises(ValueError) as error:
        keras_vit.load_checkpoint(model_of("vit_token"), write_npz(arrays))
    message = str(error.value)
    assert "missing in the file (2): cls (class_token/token); Transformer/enc" in message
    assert "Dense_0/bias (encoder_block_1/mlp/dense_1/bias)" in message
    assert "not in the model (1): extra/kernel" in message
    assert "head/kernel: file (48, 7), model (48, 10)" in message
    assert "embedding/bias: file (1, 48), model (48,)" in message
    assert len(message.splitlines()) == 4


def test_a_model_is_unchanged_if_anything_fails(golden, model_of, write_npz):
    model = model_of("vit_token")
    before = model.get_weights()
    arrays = golden("vit_token").checkpoint()
    arrays["Transformer/encoder_norm/scale"][3] = np.nan
    with pytest.raises(ValueError, match=r"finite numbers.*encoder_norm/gamma"):
        keras_vit.load_checkpoint(model, write_npz(arrays))
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("pattern", ["head/*", "predictions/*"])
def test_skip_takes_names_of_the_file_and_of_the_model(pattern, golden, model_of, write_npz):
    arrays = golden("vit_token").checkpoint()
    arrays["head/kernel"] = arrays["head/kernel"][:, :7]
    model = model_of("vit_token")
    report = keras_vit.load_checkpoint(model, write_npz(arrays), skip=(pattern,))
    assert set(report.skipped) == {"head/kernel", "head/bias"}
    assert set(report.kept) == {"predictions/kernel", "predictions/bias"}
    assert not np.any(model.get_layer("predictions").kernel)
    assert "not loaded: head/" in str(report)


HEAD, HIDDEN = {"head/kernel", "head/bias"}, {"pre_logits/kernel", "pre_logits/bias"}


@pytest.mark.parametrize(
    ("head", "hidden", "options", "skipped"),
    [
        ("keep", 40, {"classes": 21}, set()),
        ("new", 40, {"classes": 21}, HEAD | HIDDEN),
        ("fitting", 40, {"classes": 21}, set()),
        ("fitting", 40, {"classes": 5}, HEAD),  # The hidden layer is kept where there is one.
        ("fitting", None, {"classes": 21}, HEAD | HIDDEN),
        ("fitting", None, {"include_top": False}, HEAD | HIDDEN),
    ],
)
def test_one_place_leaves_the_head_out(head, hidden, options, skipped, checkpoint_of):
    config = configs.ViTConfig(8, 48, 2, 96, 3, representation_size=hidden)
    model = keras_vit.build(config, input_shape=(32, 32, 3), **options)
    checkpoint = open_checkpoint(checkpoint_of("vit_token_representation"))
    report = load_opened(checkpoint, model, LoadOptions(head=head))
    assert set(report.skipped) == skipped


def test_custom_layers_may_be_skipped(model_of, checkpoint_of):
    body = model_of("vit_token", include_top=False)
    scores = keras.layers.Dense(3, name="mine")(keras.layers.GlobalMaxPooling2D()(body.output))
    model = keras.Model(body.input, scores)
    with pytest.raises(ValueError, match=r"missing.*mine/kernel \(official"):
        keras_vit.load_checkpoint(model, checkpoint_of("vit_token"), skip="head/*")
    report = keras_vit.load_checkpoint(model, checkpoint_of("vit_token"), skip=("head/*", "mine/*"))
    assert set(report.kept) == {"mine/kernel", "mine/bias"}


def test_a_model_may_be_a_layer_of_another(model_of, checkpoint_of):
    body = model_of("vit_token", include_top=False, image_size=48)
    model = keras.Sequential([body, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)])
    report = keras_vit.load_checkpoint(
        model, checkpoint_of("vit_token"), skip=("head/*", "sequential*", "dense*")
    )
    assert report.resized == {"position_embedding/embedding": ((4, 4), (6, 6))}


def test_a_head_of_zeros_is_loaded_and_reported(golden, model_of, write_npz):
    arrays = golden("vit_token").checkpoint()
    arrays["head/kernel"] *= 0
    model = model_of("vit_token")
    with pytest.warns(UserWarning, match="all zeros") as warned:
        report = keras_vit.load_checkpoint(model, write_npz(arrays))
    assert report.zero_head
    assert __file__ in {warning.filename for warning in warned}  # The line that loads them.
    assert "the head is all zeros" in str(report)
    assert "predictions/kernel" in report.loaded


def test_mixed_precision_models_keep_float32_weights(golden, checkpoint_of, tmp_path):
    config = keras_vit.ViTConfig(8, 48, 3, 96, 3)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras_vit.build(config, input_shape=(32, 32, 3), classes=10)
    finally:
        keras.config.set_dtype_policy("float32")
    keras_vit.load_checkpoint(model, checkpoint_of("vit_token"))
    keras_vit.save_checkpoint(model, tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as arrays:
        for name, array in golden("vit_token").checkpoint().items():
            np.testing.assert_array_equal(arrays[name], array)
