"""docs/migrate.md: the calls of ours give what the named library gives, on small models."""

import pathlib
import re

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit

pytestmark = pytest.mark.slow

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "migrate.md"
RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (48, 80, 3), "uint8")  # Not square.


def ours(theirs):
    """The code of the page for a call of another library, the first in the row's next cell."""
    (row,) = re.findall(rf"^\| `{re.escape(theirs)}`[^|]* \| `([^`]+)`", PAGE.read_text(), re.M)
    return row


def run(theirs, stand_ins, **names):
    """Runs the code of the page, with small sizes in place of the page's."""
    code = ours(theirs)
    for old, new in stand_ins.items():
        assert old in code, code
        code = code.replace(old, new)
    return eval(code, {"keras_vit": keras_vit, "keras": keras, **names})


def images(side):
    return RNG.uniform(-1, 1, (2, side, side, 3)).astype("float32")


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory):
    """A folder of transformers with a tiny ViT, and the model."""
    transformers = pytest.importorskip("transformers", reason='pip install -e ".[peers]"')
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=24, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_labels=3, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    folder = tmp_path_factory.mktemp("hf") / "hf_folder"
    model.save_pretrained(folder)
    return model, folder


def transformers_logits(model, pixels, **options):
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(pixels.transpose(0, 3, 1, 2)), **options).logits.numpy()


INTERPOLATED = "interpolate_pos_encoding=True"
WITH_LABELS = "from_pretrained(folder, num_labels=37, ignore_mismatched_sizes=True)"


def test_interpolated_positions_are_those_of_transformers(hf_folder):
    theirs, folder = hf_folder
    stand_ins = {'"hf_folder"': repr(str(folder)), "384": "24"}
    model = run(INTERPOLATED, stand_ins)
    pixels = images(24)
    expected = transformers_logits(theirs, pixels, interpolate_pos_encoding=True)
    scores = keras.ops.convert_to_numpy(model(pixels))
    expected = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scores, expected, atol=1e-5)  # float32, depth 2.


def test_a_new_head_stands_on_the_features_of_transformers(hf_folder):
    theirs, folder = hf_folder
    model = run(WITH_LABELS, {'"hf_folder"': repr(str(folder))})
    pixels = images(16)
    features = keras.ops.convert_to_numpy(keras_vit.features(model)(pixels))
    head = theirs.classifier
    found = features @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    assert model.output_shape == (None, 37)
    np.testing.assert_allclose(found, transformers_logits(theirs, pixels), atol=2e-5)


def test_the_image_converter_of_keras_hub_is_the_preprocessing_of_the_page():
    keras_hub = pytest.importorskip("keras_hub", reason="pip install keras-hub")
    converter = keras_hub.layers.ViTImageConverter(image_size=(32, 32), scale=2 / 255, offset=-1.0)
    expected = keras.ops.convert_to_numpy(converter(PHOTO[None].astype("float32")))
    preprocessing = run("ViTImageConverter", {"224": "32"})
    # KerasHub rounds the crop; 0.01 is a pixel and a half of 255 in a range of 2.
    np.testing.assert_allclose(preprocessing(PHOTO[None]), expected, atol=0.012)


def test_the_transform_of_timm_is_the_preprocessing_of_the_page(tmp_path):
    timm = pytest.importorskip("timm", reason='pip install -e ".[peers]"')
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=3).eval()
    folder = tmp_path / "timm_folder"
    timm.models.save_for_hf(theirs, folder, safe_serialization=True)
    data = timm.data.resolve_data_config({"input_size": (3, 32, 32)}, model=theirs)
    transform = timm.data.create_transform(**data)
    expected = transform(Image.fromarray(PHOTO)).numpy().transpose(1, 2, 0)
    model = keras_vit.build(weights=folder)
    preprocessing = run("create_transform(...)", {}, model=model)
    np.testing.assert_allclose(preprocessing(PHOTO), expected, atol=1e-5)
    pixels = images(32)
    with torch.no_grad():
        logits = theirs(torch.from_numpy(pixels.transpose(0, 3, 1, 2))).numpy()
    scores = np.log(keras.ops.convert_to_numpy(model(pixels)))
    centered = [values - values.mean(axis=1, keepdims=True) for values in (scores, logits)]
    np.testing.assert_allclose(*centered, atol=2e-5)  # float32, depth 12.


def test_a_model_of_timm_without_its_class_token_is_the_model_of_the_page(tmp_path):
    timm = pytest.importorskip("timm", reason='pip install -e ".[peers]"')
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    options = {"img_size": 32, "num_classes": 3, "global_pool": "avg"}
    theirs = timm.create_model("vit_tiny_patch16_224", **options).eval()
    timm.models.save_for_hf(theirs, tmp_path, safe_serialization=True)
    given = '"ViT-Ti/16", weights=folder, classes=3, input_shape=(32, 32, 3)'
    model = run('create_model(..., global_pool="avg")', {'"ViT-B/16"': given}, folder=tmp_path)
    pixels = images(32)
    with torch.no_grad():
        scores = theirs(torch.from_numpy(pixels.transpose(0, 3, 1, 2))).softmax(dim=1).numpy()
    np.testing.assert_allclose(keras.ops.convert_to_numpy(model(pixels)), scores, atol=1e-5)


def test_timm_reads_the_official_layout_that_the_page_names(tmp_path):
    timm = pytest.importorskip("timm", reason='pip install -e ".[peers]"')
    torch = pytest.importorskip("torch")
    file = tmp_path / "photos.npz"
    model = keras_vit.build("ViT-Ti/16", classes=3, input_shape=(32, 32, 3), gelu="exact")
    for weight in model.weights:
        weight.assign(RNG.normal(0, 0.02, weight.shape))
    keras_vit.save_checkpoint(model, file)
    options = {"img_size": 32, "num_classes": 3, "checkpoint_path": str(file)}
    theirs = timm.create_model("vit_tiny_patch16_224", **options).eval()
    pixels = images(32)
    with torch.no_grad():
        scores = theirs(torch.from_numpy(pixels.transpose(0, 3, 1, 2))).softmax(dim=1).numpy()
    np.testing.assert_allclose(keras.ops.convert_to_numpy(model(pixels)), scores, atol=1e-5)
