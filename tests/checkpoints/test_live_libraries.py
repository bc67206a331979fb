"""Weights of other libraries at another image size, beside the library itself.

The libraries are not requirements of the tests: pip install torch timm transformers torchvision
keras-hub. Their models have random weights; every parameter is moved away from its
first value.
"""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models.opening import open_model

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("any_torchvision")  # Before what imports torchvision.

# Pixels (height, width) of the images: larger, smaller and not square. The models have 48.
SIZES = [(80, 80), (24, 24), (32, 72)]
PATCH, SIDE = 8, 48
# Two libraries in float32; the tokens are about 4.
TOLERANCE = 2e-5

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": SIDE,
    "patch_size": PATCH,
}
# By the name of the configuration's and the model's class in transformers.
TRANSFORMERS = {
    "ViT": {},
    "DeiT": {},
    "ViTMSN": {},
    "Dinov2": {"mlp_ratio": 2},
    "Dinov2WithRegisters": {"mlp_ratio": 2},
}
TIMM = {
    "vit_tiny_patch16_224": {},
    "vit_small_patch14_reg4_dinov2": {},
    "vit_small_patch14_dinov2": {},
    "deit3_small_patch16_224": {},
    "vit_base_patch32_clip_224": {},
}


def _moved(model):
    """A model of PyTorch whose parameters are all random, for inference."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def _images(size):
    return np.random.default_rng(0).normal(size=(2, *size, 3)).astype("float32")


def _channels_first(images):
    return torch.tensor(images.transpose(0, 3, 1, 2).copy())


def _tokens(folder, images, **given):
    """The token sequence of the weights of a folder, for images of any size."""
    model, _ = open_model(folder, **given).to_model(images.shape[1:3])
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)
    return keras.ops.convert_to_numpy(tokens(images))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_tokens_of_transformers_at_another_size(name, size, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(**SMALL, **TRANSFORMERS[name])
    options = {} if name.startswith(("Dinov2", "ViTMSN")) else {"add_pooling_layer": False}
    model = _moved(getattr(transformers, f"{name}Model")(config, **options))
    model.save_pretrained(tmp_path)
    options = {} if name.startswith("Dinov2") else {"interpolate_pos_encoding": True}
    images = _images(size)
    with torch.no_grad():
        expected = model(_channels_first(images), **options).last_hidden_state.numpy()
    np.testing.assert_allclose(_tokens(tmp_path, images), expected, atol=TOLERANCE)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["CLIP", "Siglip"])
def test_vision_towers_of_transformers_at_another_size(name, size, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}VisionConfig")(**SMALL)
    model = _moved(getattr(transformers, f"{name}VisionModel")(config))
    model.save_pretrained(tmp_path)
    images = _images(size)
    with torch.no_grad():
        answers = model(_channels_first(images), interpolate_pos_encoding=True)
    built, _ = open_model(tmp_path).to_model(size)
    found = keras.ops.convert_to_numpy(built(images))
    np.testing.assert_allclose(found, answers.pooler_output.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TIMM)
def test_tokens_of_timm_at_another_size(name, size, tmp_path):
    timm = pytest.importorskip("timm")
    small = {
        "embed_dim": 32,
        "num_heads": 2,
        "depth": 2,
        "patch_size": PATCH,
        "img_size": SIDE,
        "num_classes": 0,
        **TIMM[name],
    }
    model = _moved(timm.create_model(name, **small))
    timm.models.save_for_hf(model, str(tmp_path), safe_serialization=True, model_args=small)
    model.set_input_size(img_size=size)
    images = _images(size)
    with torch.no_grad():
        expected = model.forward_features(_channels_first(images)).numpy()
    np.testing.assert_allclose(_tokens(tmp_path, images), expected, atol=TOLERANCE)


@pytest.mark.parametrize("size", [(80, 80), (24, 24)])
def test_tokens_of_torchvision_at_another_size(size, tmp_path):
    vision_transformer = pytest.importorskip("torchvision.models.vision_transformer")
    safetensors = pytest.importorskip("safetensors.torch")
    small = {
        "patch_size": PATCH,
        "num_layers": 2,
        "num_heads": 2,
        "hidden_dim": 32,
        "mlp_dim": 64,
        "num_classes": 5,
    }
    model = _moved(vision_transformer.VisionTransformer(image_size=SIDE, **small))
    path = tmp_path / "model.safetensors"
    safetensors.save_file(model.state_dict(), path)
    state = vision_transformer.interpolate_embeddings(size[0], PATCH, model.state_dict())
    resized = vision_transformer.VisionTransformer(image_size=size[0], **small)
    resized.load_state_dict(state)
    images = _images(size)
    with torch.no_grad():
        expected = resized.eval()(_channels_first(images)).numpy()
    config = keras_vit.ViTConfig(PATCH, 32, 2, 64, 2, gelu="exact")
    built = keras_vit.build(
        config, weights=path, input_shape=(*size, 3), classes=5, classifier_activation=None
    )
    found = keras.ops.convert_to_numpy(built(images))
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize("side", [80, 24, 64])
@pytest.mark.parametrize("name", ["Dinov2", "Dinov2WithRegisters"])
def test_tokens_of_keras_hub_at_another_size(name, side, tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(**SMALL, mlp_ratio=2)
    _moved(getattr(transformers, f"{name}Model")(config)).save_pretrained(tmp_path)
    backbone = keras_hub.models.DINOV2Backbone.from_preset(
        str(tmp_path), image_shape=(side, side, 3)
    )
    images = _images((side, side))
    expected = keras.ops.convert_to_numpy(backbone(images))
    antialias = backbone.antialias_in_interpolation
    rule = "bicubic" if antialias else "bicubic_keras"
    found = _tokens(tmp_path, images, position_resize=rule)
    # Without antialiasing TensorFlow rounds the distances to 1/1024.
    np.testing.assert_allclose(found, expected, atol=TOLERANCE if antialias else 2e-3)
