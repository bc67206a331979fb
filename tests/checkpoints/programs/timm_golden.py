"""Writes tests/golden/timm_features: tiny models of timm with one feature or more each.

    python timm_golden.py            # Where torch and timm are installed.

`models.json` has the `config.json` and the arrays of each model as `checkpoint.json` has them in
the other folders; `expected.npz` the images and what timm answers.
"""

import json
import pathlib
import re
import tempfile

import numpy as np
import timm
import torch

FOLDER = pathlib.Path(__file__).parents[2] / "golden" / "timm_features"
SMALL = {"embed_dim": 24, "num_heads": 4, "depth": 2, "patch_size": 8}

# By feature: the name of a model that has it, and changes.
MODELS = {
    "norm in front of the blocks, quick GELU": ("vit_base_patch32_clip_quickgelu_224", {}),
    "LayerScale, positions of patches only": ("deit3_small_patch16_224", {}),
    "registers, SwiGLU, no head": ("vit_giant_patch14_reg4_dinov2", {}),
    "registers with positions, norm of the mean": ("vit_so150m2_patch16_reg1_gap_256", {}),
    "attention pooling": ("vit_base_patch16_siglip_224", {"num_classes": 5}),
    "attention pooling, no head, tanh": ("vit_base_patch32_siglip_256", {}),
    "no biases of queries, keys and values": ("vit_base_patch16_224_miil", {}),
    "mean beside a class token": ("vit_tiny_patch16_224", {"global_pool": "avg"}),
    "mean behind the norm": ("vit_tiny_patch16_224", {"global_pool": "avg", "fc_norm": False}),
    "maximum": ("vit_tiny_patch16_224", {"global_pool": "max", "class_token": False}),
    "no last norm": ("vit_base_patch16_radio_v3", {}),
    "normalised queries and keys, ReLU": (
        "vit_tiny_patch16_224",
        {"qk_norm": True, "act_layer": "relu"},
    ),
    "two tokens": ("deit_tiny_distilled_patch16_224", {}),
    # Rotary positions turn units in fours.
    "DINOv3": ("vit_small_patch16_dinov3", {"embed_dim": 32, "global_pool": "token"}),
    "DINOv3 with a gate and biases": ("vit_small_plus_patch16_dinov3_qkvb", {"embed_dim": 32}),
    "EVA": ("eva_large_patch14_196", {}),
}


def main():
    """Writes both files."""
    images = np.random.RandomState(0).uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    described, arrays = {}, {"images": images}
    for seed, (feature, (name, changes)) in enumerate(MODELS.items()):
        model = build(name, changes)
        rows = [_row(key, tuple(value.shape)) for key, value in model.state_dict().items()]
        rng = np.random.RandomState(seed)
        values = {
            row["name"]: (row["mean"] + row["std"] * rng.standard_normal(row["shape"])).astype(
                "float32"
            )
            for row in rows
        }
        model.load_state_dict({key: torch.tensor(value) for key, value in values.items()})
        with torch.no_grad():
            answers = model.eval()(torch.tensor(images.transpose(0, 3, 1, 2))).numpy()
        with tempfile.TemporaryDirectory() as folder:
            timm.models.save_for_hf(model, folder, safe_serialization=True)
            config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        described[feature] = {"seed": seed, "config": config, "arrays": rows}
        arrays[feature] = answers
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{json.dumps(feature)}: {json.dumps(model)}" for feature, model in described.items()]
    content = "{\n" + ",\n".join(lines) + "\n}\n"
    (FOLDER / "models.json").write_text(content, encoding="utf-8")
    np.savez_compressed(FOLDER / "expected.npz", **arrays)


def build(name, changes):
    """Returns a small model of an architecture of timm with random weights."""
    classes = {} if timm.get_pretrained_cfg(name).num_classes == 0 else {"num_classes": 5}
    return timm.create_model(name, img_size=(16, 24), **{**SMALL, **classes, **changes})


def _row(name, shape):
    scale = re.search(r"(norm\w*|ls)\d?\.(weight|gamma)$", name)
    return {"name": name, "shape": shape, "mean": 1.0 if scale else 0.0, "std": 0.3}


if __name__ == "__main__":
    main()
