"""Random models of other libraries, and their logits; run where those are installed.

    python other_libraries.py make FOLDER
    python other_libraries.py load FOLDER
    python other_libraries.py prepare FOLDER

`make` writes each model in its library's own format to FOLDER/<name> and its images and logits,
or features of a model without a head, to FOLDER/<name>.npz. `load` reads what was converted to
FOLDER/to_<library> and writes the logits of FOLDER/images.npy to FOLDER/to_<library>.npz.
"""

import json
import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "torch"

import any_torchvision  # noqa: F401, before what imports torchvision
import keras_hub
import numpy as np
import timm
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.models.vision_transformer import VisionTransformer

SIZE, PATCH, DEPTH, HEADS, WIDTH, MLP, CLASSES = 32, 8, 2, 3, 48, 96, 5


def make(folder):
    """Writes the models and their logits."""
    torch.manual_seed(0)
    images = np.random.default_rng(0).uniform(-1, 1, (4, SIZE, SIZE, 3)).astype("float32")
    np.save(folder / "images.npy", images)
    for name, build in MODELS.items():
        answers = build(folder / name, images)
        np.savez(folder / f"{name}.npz", images=images, answers=np.asarray(answers))


def _logits(model, images):
    model.eval()
    with torch.no_grad():
        answer = model(torch.tensor(images.transpose(0, 3, 1, 2)))
    return getattr(answer, "logits", answer).float().numpy()


def _randomize(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def _transformers_config(kind):
    return kind(
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        intermediate_size=MLP,
        image_size=SIZE,
        patch_size=PATCH,
        id2label={index: f"class {index}" for index in range(CLASSES)},
        layer_norm_eps=1e-5,
        hidden_act="gelu_pytorch_tanh",
    )


def _transformers(folder, images):
    config = _transformers_config(transformers.ViTConfig)
    model = _randomize(transformers.ViTForImageClassification(config))
    model.save_pretrained(folder, max_shard_size="50KB")
    return _logits(model, images)


def _transformers_bfloat16(folder, images):
    config = _transformers_config(transformers.ViTConfig)
    model = _randomize(transformers.ViTForImageClassification(config)).bfloat16()
    model.save_pretrained(folder)
    return _logits(model.float(), images)


def _transformers_deit(folder, images):
    config = _transformers_config(transformers.DeiTConfig)
    model = _randomize(transformers.DeiTForImageClassificationWithTeacher(config))
    model.save_pretrained(folder)
    return _logits(model, images)


def _transformers_fields(**more):
    """Fields of the configs of all vision models, which leave the numerics to their defaults."""
    return dict(
        hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        intermediate_size=MLP, image_size=SIZE, patch_size=PATCH, **more,
    )  # fmt: skip


def _transformers_classifier(name, **more):
    """A builder of a classifier by the name of its family."""

    def build(folder, images):
        config = getattr(transformers, f"{name}Config")
        kind = getattr(transformers, f"{name}ForImageClassification")
        fields = _transformers_fields(num_labels=CLASSES, **more)
        model = _randomize(kind(config(**fields)))
        model.save_pretrained(folder)
        return _logits(model, images)

    return build


def _transformers_body(name, family=None, **more):
    """A builder of a model without a head; the answer is its pooled output."""

    def build(folder, images):
        config = getattr(transformers, f"{family or name.removesuffix('Model')}Config")
        model = _randomize(getattr(transformers, name)(config(**_transformers_fields(**more))))
        model.save_pretrained(folder)
        model.eval()
        with torch.no_grad():
            answer = model(torch.tensor(images.transpose(0, 3, 1, 2)))
        return answer.pooler_output.numpy()

    return build


def _transformers_tower(name):
    """A builder of a model with an image and a text tower; the answer is the image tower's."""

    def build(folder, images):
        text = dict(
            vocab_size=10, hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=1,
            num_attention_heads=HEADS,
        )  # fmt: skip
        config = getattr(transformers, f"{name}Config")(
            vision_config=_transformers_fields(), text_config=text
        )
        model = _randomize(getattr(transformers, f"{name}Model")(config)).eval()
        model.save_pretrained(folder)
        with torch.no_grad():
            answer = model.vision_model(torch.tensor(images.transpose(0, 3, 1, 2)))
        return answer.pooler_output.numpy()

    return build


def _transformers_mae(folder, images):
    config = transformers.ViTMAEConfig(
        **_transformers_fields(
            mask_ratio=0.0,
            decoder_hidden_size=24,
            decoder_num_attention_heads=2,
            decoder_num_hidden_layers=1,
            decoder_intermediate_size=48,
        )
    )
    model = _randomize(transformers.ViTMAEForPreTraining(config))
    model.save_pretrained(folder)
    order = torch.arange((SIZE // PATCH) ** 2).float().expand(len(images), -1)
    return _features(lambda pixels: model.vit(pixels, noise=order), images)


def _features(model, images):
    """The class token's features."""
    with torch.no_grad():
        answer = model(torch.tensor(images.transpose(0, 3, 1, 2)))
    return answer.last_hidden_state[:, 0].numpy()


def _state_dict(model, folder, images):
    _randomize(model)
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    torch.save(model.state_dict(), folder / "model.pth")
    return _logits(model, images)


def _timm_arguments():
    return dict(
        img_size=SIZE, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS,
        mlp_ratio=MLP / WIDTH, num_classes=CLASSES,
    )  # fmt: skip


def _timm(**more):
    """A builder of a Vision Transformer."""

    def build(folder, images):
        model = timm.models.VisionTransformer(**_timm_arguments(), **more)
        return _state_dict(model, folder, images)

    return build


def _timm_deit(folder, images):
    model = timm.models.deit.VisionTransformerDistilled(**_timm_arguments())
    return _state_dict(model, folder, images)


def _torchvision(folder, images):
    model = VisionTransformer(SIZE, PATCH, DEPTH, HEADS, WIDTH, MLP, num_classes=CLASSES)
    return _state_dict(model, folder, images)


def _keras_hub(name, **more):
    """A builder of a classifier by the name of its family."""

    def build(folder, images):
        backbone = getattr(keras_hub.models, f"{name}Backbone")(
            image_shape=(SIZE, SIZE, 3), patch_size=PATCH, num_layers=DEPTH, num_heads=HEADS,
            hidden_dim=WIDTH, **{"mlp_dim" if name == "ViT" else "intermediate_dim": MLP}, **more,
        )  # fmt: skip
        model = getattr(keras_hub.models, f"{name}ImageClassifier")(backbone, CLASSES)
        rng = np.random.default_rng(0)
        model.set_weights([rng.normal(size=weight.shape) / 6 for weight in model.weights])
        model.save_to_preset(folder)
        model.save(folder / "classifier.keras")
        model.save_weights(folder / "classifier.weights.h5")
        return model.predict(images, verbose=0)

    return build


MODELS = {
    "transformers": _transformers,
    "transformers_bfloat16": _transformers_bfloat16,
    "transformers_deit": _transformers_deit,
    "transformers_quick_gelu": _transformers_classifier("ViT", hidden_act="quick_gelu"),
    "transformers_relu": _transformers_classifier("ViT", hidden_act="relu"),
    "transformers_msn": _transformers_classifier("ViTMSN"),
    "transformers_ijepa": _transformers_classifier("IJepa"),
    "transformers_no_qkv_bias": _transformers_classifier("ViT", qkv_bias=False),
    "transformers_mae": _transformers_mae,
    "transformers_deit_token": _transformers_classifier("DeiT"),
    "transformers_dinov2": _transformers_classifier("Dinov2", mlp_ratio=2),
    "transformers_dinov2_registers": _transformers_classifier(
        "Dinov2WithRegisters", mlp_ratio=2, num_register_tokens=3
    ),
    "transformers_dinov2_swiglu": _transformers_body(
        "Dinov2Model", mlp_ratio=2, use_swiglu_ffn=True
    ),
    "transformers_dinov3": _transformers_body("DINOv3ViTModel", num_register_tokens=3),
    "transformers_clip_tower": _transformers_body("CLIPVisionModel", "CLIPVision"),
    "transformers_siglip_tower": _transformers_body("SiglipVisionModel", "SiglipVision"),
    "transformers_clip": _transformers_tower("CLIP"),
    "transformers_siglip": _transformers_tower("Siglip"),
    "timm": _timm(),
    "timm_deit": _timm_deit,
    "timm_registers": _timm(reg_tokens=3),
    "timm_registers_without_rows": _timm(reg_tokens=3, no_embed_class=True),
    "timm_no_qkv_bias": _timm(qkv_bias=False),
    "torchvision": _torchvision,
    "keras_hub": _keras_hub("ViT"),
    "keras_hub_no_biases": _keras_hub(
        "ViT", use_mha_bias=False, use_mlp_bias=False, use_patch_bias=False
    ),
}


# What `convert` prints for each file.
TIMM_ARGUMENTS = {
    "to_timm": {},
    "to_timm_registers": {"reg_tokens": 3, "no_embed_class": True},
    "to_timm_layer_scale": {"init_values": 1.0, "reg_tokens": 2, "no_embed_class": True},
    "to_timm_swiglu": {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU},
    "to_timm_clip": {"pre_norm": True, "act_layer": "quick_gelu", "qk_norm": True},
    "to_timm_map": {"global_pool": "map", "class_token": False, "act_layer": "gelu_tanh"},
    "to_timm_pooled": {"global_pool": "avg"},
}


def load(folder):
    """Writes the logits of what was converted."""
    images = np.load(folder / "images.npy")
    hub = transformers.AutoModelForImageClassification.from_pretrained(folder / "to_transformers")
    for name, more in TIMM_ARGUMENTS.items():
        fields = {**_timm_arguments(), **more}
        if "mlp_layer" in more:  # The first layer has twice the units.
            fields["mlp_ratio"] *= 2
        model = timm.models.VisionTransformer(**fields)
        model.load_state_dict(load_file(folder / f"{name}.safetensors"))
        np.savez(folder / f"{name}.npz", logits=_logits(model, images))
    # KerasHub reads folders of Hugging Face.
    task = keras_hub.models.ViTImageClassifier.from_preset(
        str(folder / "to_transformers"), num_classes=CLASSES, load_weights=True, preprocessor=None
    )
    head = hub.classifier
    task.output_dense.set_weights([head.weight.detach().numpy().T, head.bias.detach().numpy()])
    for name, logits in (
        ("to_transformers", _logits(hub, images)),
        ("to_keras_hub", task.predict(images, verbose=0)),
    ):
        np.savez(folder / f"{name}.npz", logits=logits)


def prepare(folder):
    """Writes how image processors prepare the pictures, and how they read their files of ours."""
    pictures = [Image.fromarray(array) for array in np.load(folder / "pictures.npz").values()]

    def write(path, prepare):
        np.savez(f"{path}.npz", *(np.asarray(prepare(picture)) for picture in pictures))

    def of_hugging_face(processor):
        return lambda image: processor(image, return_tensors="np")["pixel_values"][0]

    for kind in ("ViT", "DeiT", "CLIP", "Bit", "Siglip"):
        path = folder / f"theirs_{kind}"
        processor = getattr(transformers, f"{kind}ImageProcessorPil")()
        processor.save_pretrained(path)
        write(path, of_hugging_face(processor))
    seen = {}
    for name in timm.list_pretrained(["vit_*", "deit*", "flexivit*"]):
        wanted = timm.get_pretrained_cfg(name).to_dict()
        size = wanted["input_size"]
        seen[max(size), wanted["crop_pct"], wanted["crop_mode"], wanted["interpolation"]] = wanted
    for number, wanted in enumerate(seen.values()):
        if max(wanted["input_size"]) > 400:
            continue
        path = folder / f"theirs_timm_{number}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"pretrained_cfg": wanted}))
        write(path, _timm_transform(wanted))
    for path in folder.glob("ours_*"):
        if (path / "preprocessor_config.json").exists():
            processor = transformers.AutoImageProcessor.from_pretrained(path, backend="pil")
            write(path, of_hugging_face(processor))
        else:
            wanted = json.loads((path / "config.json").read_text())["pretrained_cfg"]
            write(path, _timm_transform(wanted))


def _timm_transform(wanted):
    data = timm.data.resolve_data_config(pretrained_cfg=wanted)
    return timm.data.create_transform(**data)


if __name__ == "__main__":
    {"make": make, "load": load, "prepare": prepare}[sys.argv[1]](pathlib.Path(sys.argv[2]))
