"""Writes presets of image encoders in tests/golden/keras_hub.

    python keras_hub_golden.py            # Where KerasHub is installed.

`presets.zip` has the files that `save_to_preset` writes of each tiny model, `presets.npz` the
images by their size and the features by model.
"""

import pathlib
import tempfile
import zipfile

import keras_hub
import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / "golden" / "keras_hub"
MODELS = keras_hub.models
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 16, "patch_size": 4}
SQUARE = {**SIZES, "image_shape": (8, 8, 3)}
DINOV3 = {**SIZES, "use_key_bias": False, "image_shape": (8, 12, 3)}
TEXT = {
    "vocabulary_size": 4, "embedding_dim": 16, "hidden_dim": 16, "num_layers": 1, "num_heads": 2,
    "intermediate_dim": 4, "max_sequence_length": 4,
}  # fmt: skip
# These are saved by a model that was made of a preset, which puts its name in front of layers'.
SAVED_AGAIN = ("DINOv3 with a gate", "SigLIP's image tower")
GATED = {"use_gated_mlp": True, "hidden_activation": "silu", "num_register_tokens": 1}


def build():
    """Returns the models by name, with one feature or more each."""
    return {
        "DINOv2": MODELS.DINOV2Backbone(
            **SQUARE, position_embedding_shape=(12, 12, 3), num_register_tokens=3
        ),
        "DINOv2 with SwiGLU": MODELS.DINOV2Backbone(
            **SQUARE,
            position_embedding_shape=(16, 16),
            use_swiglu_ffn=True,
            use_mask_token=False,
            antialias_in_interpolation=True,
        ),
        "DINOv3": MODELS.DINOV3Backbone(**DINOV3),
        "DINOv3 with a gate": MODELS.DINOV3Backbone(**DINOV3, **GATED),
        "SigLIP": MODELS.SigLIPBackbone(
            MODELS.SigLIPVisionEncoder(**SQUARE), MODELS.SigLIPTextEncoder(**TEXT)
        ),
        "SigLIP's image tower": MODELS.SigLIPVisionEncoder(**SQUARE),
        "CLIP": MODELS.CLIPBackbone(
            MODELS.CLIPVisionEncoder(**SQUARE), MODELS.CLIPTextEncoder(**TEXT), projection_dim=8
        ),
    }


def randomize(model, seed):
    """Sets values by which every array matters, and the numbers of positions, as presets have."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = 0.3 * rng.standard_normal(weight.shape)
        if weight.path.endswith("position_ids"):
            values = np.arange(weight.shape[1])[None]
        elif weight.path.endswith(("gamma", "lambda1")):
            values = 1 + values
        if "seed_generator" not in weight.path:
            weight.assign(values)


def main():
    """Writes both files."""
    answers = {
        f"images {width}": np.random.default_rng(0).uniform(-1, 1, (2, 8, width, 3))
        for width in (8, 12)
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(FOLDER / "presets.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out,
    ):
        for seed, (name, model) in enumerate(build().items()):
            randomize(model, seed)
            preset = pathlib.Path(folder) / name
            model.save_to_preset(str(preset))
            # Tables of positions at the image size are computed when a preset is loaded.
            model = MODELS.Backbone.from_preset(str(preset))
            if name in SAVED_AGAIN:
                model.save_to_preset(str(preset))
            encoder = getattr(model, "vision_encoder", model)
            images = answers[f"images {encoder.get_config()['image_shape'][1]}"]
            features = np.asarray(encoder(images.astype("float32")))
            answers[name] = features[:, 0] if features.ndim == 3 else features
            for file in sorted(preset.iterdir()):
                entry = zipfile.ZipInfo(f"{name}/{file.name}")
                out.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    np.savez_compressed(
        FOLDER / "presets.npz", **{key: value.astype("float32") for key, value in answers.items()}
    )


if __name__ == "__main__":
    main()
