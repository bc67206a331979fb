"""Writes tests/golden/hugging_face: tiny models of transformers with one feature or more each.

    python hugging_face_golden.py            # Where torch and transformers are installed.

`models.json` has the `config.json` and the arrays of each model, by the names in its file, as
`checkpoint.json` has them in the other folders; `expected.npz` the images and the answers.
"""

import json
import pathlib
import re
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parents[2] / "golden" / "hugging_face"
SIZES = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
TEXT = {**SIZES, "vocab_size": 8, "num_hidden_layers": 1}
CLASSES = {"num_labels": 3}
TOWERS = {"vision_config": SIZES, "text_config": TEXT}

# Class, fields of its config, and what is compared: logits, the pooled output, or the class
# token of the last layer.
MODELS = {
    "DINOv2": ("Dinov2ForImageClassification", {**CLASSES, "mlp_ratio": 2}, "logits"),
    "DINOv2 with registers": (
        "Dinov2WithRegistersForImageClassification",
        {**CLASSES, "mlp_ratio": 2, "num_register_tokens": 3},
        "logits",
    ),
    "DINOv2 with SwiGLU, no head": (
        "Dinov2Model",
        {"mlp_ratio": 2, "use_swiglu_ffn": True},
        "pooler_output",
    ),
    "CLIP's image tower": ("CLIPVisionModel", {}, "pooler_output"),
    "CLIP's image tower with projection": ("CLIPVisionModelWithProjection", {}, "pooler_output"),
    "CLIP": ("CLIPModel", TOWERS, "pooler_output"),
    "SigLIP's image tower": ("SiglipVisionModel", {}, "pooler_output"),
    "SigLIP": ("SiglipModel", TOWERS, "pooler_output"),
    "ViTMAE": (
        "ViTMAEForPreTraining",
        {
            "mask_ratio": 0.0,
            "decoder_hidden_size": 8,
            "decoder_num_attention_heads": 2,
            "decoder_num_hidden_layers": 1,
            "decoder_intermediate_size": 8,
        },
        "token",
    ),
    "ViTMSN": ("ViTMSNForImageClassification", {**CLASSES, "qkv_bias": False}, "logits"),
    "I-JEPA": ("IJepaForImageClassification", CLASSES, "logits"),
    "DeiT, one head": ("DeiTForImageClassification", CLASSES, "logits"),
    "quick GELU": (
        "ViTForImageClassification",
        {**CLASSES, "hidden_act": "quick_gelu"},
        "logits",
    ),
    "ReLU": ("ViTForImageClassification", {**CLASSES, "hidden_act": "relu"}, "logits"),
    "rectangles": (
        "ViTForImageClassification",
        {**CLASSES, "image_size": [16, 16], "patch_size": [4, 8]},
        "logits",
    ),
    "DINOv3": ("DINOv3ViTModel", {"hidden_size": 32}, "pooler_output"),
    "DINOv3 with SwiGLU": (
        "DINOv3ViTModel",
        {"hidden_size": 32, "num_register_tokens": 2, "use_gated_mlp": True, "hidden_act": "silu"},
        "pooler_output",
    ),
    "CLIP with a head": ("CLIPForImageClassification", {**TOWERS, **CLASSES}, "logits"),
    "SigLIP with a head": ("SiglipForImageClassification", {**TOWERS, **CLASSES}, "logits"),
    "SigLIP 2 NaFlex": ("Siglip2VisionModel", {"num_patches": 4}, "pooler_output"),
    "SigLIP 2 NaFlex with a head": (
        "Siglip2ForImageClassification",
        {"vision_config": {**SIZES, "num_patches": 4}, "text_config": TEXT, **CLASSES},
        "logits",
    ),
}


def main():
    """Writes both files."""
    images = np.random.RandomState(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    described, answers = {}, {"images": images}
    for seed, (name, (kind, fields, answer)) in enumerate(MODELS.items()):
        model = build(kind, fields)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.safetensors"
            model.save_pretrained(folder)
            rows = [_row(key, tuple(value.shape)) for key, value in load_file(path).items()]
            rng = np.random.RandomState(seed)
            values = {
                row["name"]: (row["mean"] + row["std"] * rng.standard_normal(row["shape"])).astype(
                    "float32"
                )
                for row in rows
            }
            tensors = {key: torch.tensor(value) for key, value in values.items()}
            save_file(tensors, path, {"format": "pt"})
            model, report = type(model).from_pretrained(folder, output_loading_info=True)
            assert not any(report.values()), report
            config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        described[name] = {"seed": seed, "config": _short(config), "arrays": rows}
        pixels = torch.tensor(images.transpose(0, 3, 1, 2))
        answers[name] = answer_of(name, model.eval(), answer, pixels)
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(model)}" for name, model in described.items()]
    content = "{\n" + ",\n".join(lines) + "\n}\n"
    (FOLDER / "models.json").write_text(content, encoding="utf-8")
    np.savez_compressed(FOLDER / "expected.npz", **answers)


def build(kind, fields):
    """Returns a model of a class of transformers with random weights."""
    kind = getattr(transformers, kind)
    fields = fields if "vision_config" in fields else {**SIZES, **fields}
    return kind(kind.config_class(**fields)).eval()


def answer_of(name, model, answer, pixels):
    """Returns one of the answers in `MODELS`."""
    with torch.no_grad():
        if answer == "token":  # An order of the patches, for an autoencoder that masks none.
            order = torch.arange(4.0).expand(len(pixels), -1)
            return model.vit(pixels, noise=order).last_hidden_state[:, 0].numpy()
        tower = model if answer == "logits" else getattr(model, "vision_model", model)
        if "naflex" in name.lower():
            return getattr(tower(**_patches(pixels)), answer).numpy()
        return getattr(tower(pixels), answer).numpy()


def _patches(pixels, side=8):
    """Images `(B, 3, H, W)` as NaFlex takes them."""
    batch, channels, *size = pixels.shape
    grid = [pixels_of_side // side for pixels_of_side in size]
    cells = pixels.reshape(batch, channels, grid[0], side, grid[1], side)
    return {
        "pixel_values": cells.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2),
        "pixel_attention_mask": torch.ones(batch, grid[0] * grid[1], dtype=torch.int64),
        "spatial_shapes": torch.tensor([grid] * batch),
    }


def _short(config):
    """The config without what no image encoder reads."""
    left_out = ("text_config", "dtype", "transformers_version", "label2id")
    return {key: value for key, value in config.items() if key not in left_out}


def _row(name, shape):
    scale = re.search(r"(norm\w*\.weight|lambda1)$", name)
    return {"name": name, "shape": shape, "mean": 1.0 if scale else 0.0, "std": 0.3}


if __name__ == "__main__":
    main()
