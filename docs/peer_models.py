"""The tables of transformers' and KerasHub's models in docs/compatible_models.md.

    python docs/peer_models.py            # Needs pip install -e ".[peers]"; 5 minutes.
    python docs/peer_models.py PATTERN    # Prints the rows of some names.

makes every image encoder that is named here with two blocks, few units and random weights, as the
library makes it, saves it as the library does, and compares its answers with the answers of the
model that is built from the folder alone.
"""

import dataclasses
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator

import keras
import keras_hub
import numpy as np
import torch
import transformers

import keras_vit
from keras_vit.models.outputs import array_of
from keras_vit.opening import open_model

PAGE = pathlib.Path(__file__).parent / "compatible_models.md"
START, END = "<!-- peers: docs/peer_models.py writes this table -->\n", "<!-- end of peers -->\n"
CLASSES = 5
# Attention heads by the size in a name.
HEADS = {
    "plus": 6, "huge": 20, "vith": 20, "7b": 32, "giant": 24, "giant_opt": 16, "so400m": 16,
    "bigg": 16, "_g_": 16, "_h_": 16, "large": 16, "vitl": 16, "small": 6, "vits": 6,
}  # fmt: skip

SIGLIP = [
    *(f"siglip-base-patch16-{size}" for size in (224, 256, 384, 512)),
    *(f"siglip-large-patch16-{size}" for size in (256, 384)),
    *(f"siglip-so400m-patch14-{size}" for size in (224, 384)),
    "siglip-so400m-patch16-256-i18n", "siglip-base-patch16-256-multilingual",
    *(f"siglip2-base-patch16-{size}" for size in (224, 256, 384, 512)),
    "siglip2-base-patch32-256",
    *(f"siglip2-large-patch16-{size}" for size in (256, 384, 512)),
    *(f"siglip2-giant-opt-patch16-{size}" for size in (256, 384)),
    *(f"siglip2-so400m-patch14-{size}" for size in (224, 384)),
    *(f"siglip2-so400m-patch16-{size}" for size in (256, 384, 512)),
    "medsiglip-so400m-patch14-448",
]  # fmt: skip
NAFLEX = ["siglip2-base-patch16-naflex", "siglip2-so400m-patch16-naflex"]
CLIP = [
    "clip-vit-base-patch16", "clip-vit-base-patch32", "clip-vit-large-patch14",
    "clip-vit-large-patch14-336", "CLIP-ViT-base-patch32-laion2b", "CLIP-ViT-huge-patch14-laion2b",
    "CLIP-ViT-giant-patch14-laion2b", "CLIP-ViT-bigg-patch14-laion2b",
]  # fmt: skip
DINOV2 = [f"dinov2-{size}" for size in ("small", "base", "large", "giant")]
DINOV3 = [
    f"dinov3-{size}-pretrain"
    for size in ("vits16", "vits16plus", "vitb16", "vitl16", "vith16plus", "vit7b16")
]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of a library: its class, its name, and the fields of its config."""

    library: str
    kind: str
    name: str
    fields: dict


def _sizes(name, unit=8):
    """Heads, width and patch by a name; each head has few units."""
    lower = name.lower().replace("-", "_")
    heads = next((count for word, count in HEADS.items() if word in lower), 12)
    patch = int((re.search(r"patch(\d+)|vit\w(\d+)|_vit_\w+?_(\d+)_", lower) or (0, "16"))[1] or 16)
    patch = 14 if "dinov2" in lower else patch
    return heads, heads * unit, patch


def cases() -> Iterator[Case]:
    """Yields all models."""
    for name in (*SIGLIP, *CLIP, *NAFLEX):
        heads, width, patch = _sizes(name)
        sizes = {
            "hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": heads,
            "intermediate_size": 3 * width, "patch_size": patch,
        }  # fmt: skip
        kind = "CLIP" if "clip" in name.lower() and "siglip" not in name else "Siglip"
        sizes |= {"num_patches": 9} if "naflex" in name else {"image_size": 3 * patch}
        kind = "Siglip2" if "naflex" in name else kind
        text = {**sizes, "vocab_size": 8, "num_hidden_layers": 1}
        if "laion" in name:
            sizes["hidden_act"] = "gelu"
        fields = {"vision_config": sizes, "text_config": text}
        yield Case("transformers", f"{kind}VisionModel", name, sizes)
        yield Case("transformers", f"{kind}Model", name, fields)
        yield Case(
            "transformers", f"{kind}ForImageClassification", name, fields | {"num_labels": CLASSES}
        )
    for name in (*DINOV2, *DINOV3):
        heads, width, patch = _sizes(name, 16 if "dinov3" in name else 8)
        sizes = {
            "hidden_size": 4096 if "7b" in name else width, "num_hidden_layers": 2,
            "num_attention_heads": heads, "patch_size": patch, "image_size": 3 * patch,
            "intermediate_size": 2 * width, "mlp_ratio": 2,
        }  # fmt: skip
        if "dinov3" in name:
            if re.search("plus|7b", name):
                sizes |= {"use_gated_mlp": True, "hidden_act": "silu"}
            del sizes["mlp_ratio"]
            yield Case("transformers", "DINOv3ViTModel", name, sizes)
            continue
        sizes["use_swiglu_ffn"] = "giant" in name
        del sizes["intermediate_size"]
        for kind in ("Dinov2", "Dinov2WithRegisters"):
            yield Case("transformers", f"{kind}Model", name, sizes)
            labels = {"num_labels": CLASSES}
            yield Case("transformers", f"{kind}ForImageClassification", name, sizes | labels)
    for kind in ("DINOV2", "DINOV3", "SigLIP", "CLIP"):
        for name in getattr(keras_hub.models, f"{kind}Backbone").presets:
            yield Case("KerasHub", f"{kind}Backbone", name, _preset_fields(kind, name))


def _preset_fields(kind, name):
    """The config of a preset, cut to two blocks and few units."""
    heads, width, patch = _sizes(name, 16 if kind == "DINOV3" else 8)
    fields = {
        "num_layers": 2, "num_heads": heads, "hidden_dim": 4096 if "_7b_" in name else width,
        "intermediate_dim": 3 * width, "patch_size": patch, "image_shape": (3 * patch,) * 2 + (3,),
    }  # fmt: skip
    if kind == "DINOV2":
        has_registers = "with_registers" in name
        fields |= {
            "position_embedding_shape": (4 * patch, 4 * patch, 3),
            "num_register_tokens": 4 if has_registers else 0,
            "antialias_in_interpolation": has_registers,
            "use_swiglu_ffn": "giant" in name,
        }
    if kind == "DINOV3":
        fields["use_key_bias"] = False
        if re.search("plus|7b", name):
            fields |= {"use_gated_mlp": True, "hidden_activation": "silu"}
    if kind == "CLIP" and "laion" in name:
        fields["intermediate_activation"] = "gelu"
    return fields


def of_transformers(case: Case, folder: str):
    """Saves a model of transformers; returns images and its answers."""
    kind = getattr(transformers, case.kind)
    model = kind(kind.config_class(**case.fields)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            scale = re.search(r"(norm\w*\.weight|lambda1)$", name)
            value.copy_((1.0 if scale else 0.0) + 0.2 * torch.randn(value.shape))
    model.save_pretrained(folder)
    vision = case.fields.get("vision_config", case.fields)
    patch, side = vision["patch_size"], 3 * vision["patch_size"]
    images = np.random.default_rng(0).uniform(-1, 1, (2, side, side, 3)).astype("float32")
    answer = "logits" if "num_labels" in case.fields else "pooler_output"
    tower = model if answer == "logits" else getattr(model, "vision_model", model)
    given = {"pixel_values": torch.tensor(images.transpose(0, 3, 1, 2))}
    if case.kind.startswith("Siglip2"):
        cells = images.reshape(2, 3, patch, 3, patch, 3).transpose(0, 1, 3, 2, 4, 5)
        given = {
            "pixel_values": torch.tensor(cells.reshape(2, 9, -1)),
            "pixel_attention_mask": torch.ones(2, 9, dtype=torch.int64),
            "spatial_shapes": torch.tensor([[3, 3]] * 2),
        }
    with torch.no_grad():
        return images, getattr(tower(**given), answer).numpy()


def of_keras_hub(case: Case, folder: str):
    """Saves a preset of KerasHub; returns images and its answers."""
    models = keras_hub.models
    if case.kind.startswith("DINO"):
        model = getattr(models, case.kind)(**case.fields)
    else:
        name = case.kind.removesuffix("Backbone")
        width = case.fields["hidden_dim"]
        text = getattr(models, f"{name}TextEncoder")(
            vocabulary_size=8, embedding_dim=width, hidden_dim=width, num_layers=1, num_heads=2,
            intermediate_dim=8, max_sequence_length=4,
        )  # fmt: skip
        vision = getattr(models, f"{name}VisionEncoder")(**case.fields)
        more = {"projection_dim": 8} if name == "CLIP" else {}
        model = getattr(models, case.kind)(vision, text, **more)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith("position_ids"):
            weight.assign(np.arange(weight.shape[1])[None])
        elif "seed_generator" not in weight.path:
            scale = 1.0 if weight.path.endswith(("gamma", "lambda1")) else 0.0
            weight.assign(scale + 0.2 * rng.standard_normal(weight.shape))
    model.save_to_preset(folder)
    model = models.Backbone.from_preset(folder)
    model = getattr(model, "vision_encoder", model)
    images = rng.uniform(-1, 1, (2, *case.fields["image_shape"])).astype("float32")
    answers = np.asarray(model(images))
    return images, answers[:, 0] if answers.ndim == 3 else answers


def check(case: Case) -> tuple[float, str]:
    """Returns the largest difference relative to the largest answer, and why it is refused."""
    write = of_transformers if case.library == "transformers" else of_keras_hub
    with tempfile.TemporaryDirectory() as folder:
        images, expected = write(case, folder)
        try:
            config = open_model(folder).description.config
        except ValueError as error:
            return 0.0, str(error).partition(":")[0]
        top = {"include_top": False, "pooling": config.pooling}
        if "num_labels" in case.fields:
            top = {"classes": CLASSES, "classifier_activation": None}
        model = keras_vit.build(weights=folder, input_shape=images.shape[1:], **top)
        answers = array_of(model(images))
    keras.backend.clear_session()
    return float(np.abs(answers - expected).max() / np.abs(expected).max()), ""


def main():
    """Compares all models, or those whose class and name match a pattern."""
    rows: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for case in cases():
        if sys.argv[1:] and not re.search(sys.argv[1], f"{case.kind} {case.name}"):
            continue
        difference, refusal = check(case)
        rows.setdefault((case.library, case.kind), []).append((difference, refusal))
        print(case.library, case.kind, case.name, refusal or f"{difference:.1e}", flush=True)
    lines = ["| library | model | names | converted | largest difference, or why not |"]
    lines.append("|---|---|---|---|---|")
    for (library, kind), results in rows.items():
        read = [difference for difference, refusal in results if not refusal]
        reasons = sorted({refusal for _, refusal in results if refusal})
        outcome = "; ".join([*([f"{max(read):.0e}"] if read else []), *reasons])
        lines.append(f"| {library} | `{kind}` | {len(results)} | {len(read)} | {outcome} |")
    table = "\n".join(lines) + "\n"
    if sys.argv[1:]:
        print(table)
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
