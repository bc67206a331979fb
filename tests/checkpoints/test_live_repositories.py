"""Repositories that timm and transformers push, read here, and the other way round.

The libraries are not requirements of the tests: pip install torch timm transformers torchvision.
"""

import contextlib
import json

import keras
import numpy as np
import pytest
from fake_hub import TOKEN

import keras_vit
from keras_vit.command_line import main
from keras_vit.models.opening import open_model
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config, write_picture

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("any_torchvision")  # Before what imports torchvision.

NAME = "owner/pets"
CLASSES = ("cat", "dog", "fox")
SIDE = 48
TOLERANCE = 1e-5  # Probabilities of two libraries in float32.
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": SIDE,
    "patch_size": 8,
}
# By the name of the configuration's and the model's class in transformers.
TRANSFORMERS = {
    "ViT": {},
    "DeiT": {},
    "ViTMSN": {},
    "Dinov2": {"mlp_ratio": 2},
    "Dinov2WithRegisters": {"mlp_ratio": 2},
}
TIMM = ["vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2", "deit3_small_patch16_224"]


@pytest.fixture
def the_hub(hub, monkeypatch):
    """The fake Hub, also for what holds the address from its import on."""
    from huggingface_hub import hf_api

    monkeypatch.setattr(hf_api.api, "endpoint", hub.address)
    with contextlib.suppress(ImportError):
        from transformers.utils import hub as of_transformers

        monkeypatch.setattr(of_transformers, "_hf_api", None)
    return hub


def moved(model):
    """A model of PyTorch whose parameters are all random, for inference."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def check_probabilities(model, logits_of):
    """Compares a Keras model with a model of PyTorch."""
    images = np.random.default_rng(0).normal(size=(2, *model.input_shape[1:])).astype("float32")
    with torch.no_grad():
        logits = logits_of(torch.tensor(images.transpose(0, 3, 1, 2).copy()))
    found = keras.ops.convert_to_numpy(model(images))
    np.testing.assert_allclose(found, logits.softmax(-1).numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_repository_that_transformers_pushed_is_opened_by_its_name(name, the_hub):
    transformers = pytest.importorskip("transformers")
    labels = dict(enumerate(CLASSES))
    config = getattr(transformers, f"{name}Config")(
        **SMALL, **TRANSFORMERS[name], id2label=labels, label2id={v: k for k, v in labels.items()}
    )
    model = moved(getattr(transformers, f"{name}ForImageClassification")(config))
    size = {"height": SIDE, "width": SIDE}
    processor = transformers.ViTImageProcessor(size=size)
    processor.push_to_hub(NAME, token=TOKEN)
    in_parts = {"max_shard_size": "20KB"} if name == "ViT" else {}
    model.push_to_hub(NAME, token=TOKEN, **in_parts)
    assert ("model.safetensors.index.json" in the_hub.repositories["model", NAME].files) == (
        name == "ViT"
    )
    opened = open_model(f"hf:{NAME}")
    assert opened.description.labels.names == CLASSES
    assert opened.description.preprocessing.image_size == (SIDE, SIDE)
    check_probabilities(opened.to_model()[0], lambda images: model(images).logits)


@pytest.mark.parametrize("name", TIMM)
def test_a_repository_that_timm_pushed_is_opened_by_its_name(name, the_hub):
    timm = pytest.importorskip("timm")
    small = {"embed_dim": 32, "num_heads": 2, "depth": 2, "patch_size": 8, "img_size": SIDE}
    small["num_classes"] = len(CLASSES)
    model = moved(timm.create_model(name, **small))
    timm.models.push_to_hf_hub(
        model,
        NAME,
        token=TOKEN,
        model_config={"label_names": list(CLASSES)},
        model_args=small,
        safe_serialization="both",
    )
    assert "pytorch_model.bin" in the_hub.repositories["model", NAME].files
    opened = open_model(f"hf:{NAME}")
    assert opened.description.labels.names == CLASSES
    assert "pytorch_model.bin" not in the_hub.fetched()
    check_probabilities(opened.to_model()[0], model)


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """The folder of a classifier with random weights."""
    keras.utils.set_random_seed(0)
    folder = tmp_path_factory.mktemp("classifiers") / "pets"
    model = keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=3)
    model.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    return keras_vit.save_classifier(folder, model, CLASSES, Preprocessing((8, 8)))


def test_what_is_pushed_for_timm_is_read_by_timm(the_hub, pets):
    timm = pytest.importorskip("timm")
    assert main(["push", str(pets.folder), NAME, "--as", "timm"]) == 0
    model = timm.create_model(f"hf_hub:{NAME}", pretrained=True).eval()
    check_probabilities(pets.model, model)
    assert model.pretrained_cfg["label_names"] == list(CLASSES)
    assert timm.data.resolve_model_data_config(model)["input_size"] == (3, 8, 8)


def test_what_is_pushed_for_transformers_is_read_by_its_pipeline(the_hub, pets, tmp_path):
    transformers = pytest.importorskip("transformers")
    assert main(["push", str(pets.folder), NAME, "--as", "transformers"]) == 0
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype("uint8")
    write_picture(tmp_path / "a.png", pixels)
    rows = transformers.pipeline("image-classification", NAME)(str(tmp_path / "a.png"), top_k=3)
    expected = dict(pets.predict(tmp_path / "a.png")[0].top)
    assert {row["label"]: row["score"] for row in rows} == pytest.approx(expected, abs=TOLERANCE)
    card = the_hub.repositories["model", NAME].files["README.md"].decode()
    assert f'pipeline("image-classification", "{NAME}")' in card
    assert json.loads(the_hub.repositories["model", NAME].files["config.json"])["id2label"]
