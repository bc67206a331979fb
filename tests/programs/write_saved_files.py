"""Writes one file of each kind that the package saves, with what each gives: see golden/README.md.

The archive in golden/ is from an earlier version and is not written again.

python tests/programs/write_saved_files.py FILE.zip
"""

import os
import pathlib
import sys
import tempfile
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_vit
from keras_vit.configs import AxialConfig, AxialResNetConfig, BiTConfig, ResNetStem, ViTConfig
from keras_vit.preprocessing import Preprocessing

ARCHIVE = pathlib.Path(__file__).parents[1] / "golden" / "saved_files.zip"


def tiny(**changes):
    sizes = {"patch_size": 4, "width": 16, "depth": 2, "mlp_dim": 16, "num_heads": 2}
    return ViTConfig(**{**sizes, **changes})


# Each field of a config that is not the default in one of them.
DROPPED = {"stochastic_depth_rate": 0.2, "dropout_rate": 0.1, "attention_dropout_rate": 0.1}
CONFIGS = {
    "plain": tiny(),
    "qk_norm": tiny(qk_norm=True, layer_scale=True, num_registers=2),
    "swiglu": tiny(gelu="swiglu", final_norm="pooled", classifier="gap", head_bias=-1.0),
    "rotary": tiny(rotary=100.0, position_embedding="none", gelu="exact", norm_epsilon=1e-5),
    "relative": tiny(position_embedding="relative", gelu="quick", classifier="max"),
    "learned_2d": tiny(position_embedding="learned_2d", position_embedding_at="every_block"),
    "shared_positions": tiny(
        position_embedding_at="every_block_shared",
        embedding_norm=True,
        classifier="token+gap",
        representation_size=12,
        remat=True,
        **DROPPED,
    ),
    "map": tiny(
        classifier="map",
        map_num_heads=4,
        map_mlp_dim=12,
        unread_class_token=True,
        final_norm="none",
        gelu="relu",
        position_resize="bicubic",
    ),
    "distillation": tiny(patch_size=(4, 8), classifier="token+distillation"),
    "hybrid": tiny(
        patch_size=1, classifier="gap", resnet=ResNetStem((1,), 0.5, epsilon_in="variance")
    ),
    "bit": BiTConfig((1,), 0.5, head_bias=-2.0),
    "axial_vit": AxialConfig(4, 16, 2, 16, 2, classifier="token", position_embedding="learned_2d"),
    "axial_resnet": AxialResNetConfig((1,), 0.5, num_heads=4),
}
# (height, width) of the images.
SIZES = dict.fromkeys(("qk_norm", "rotary", "relative", "distillation", "axial_vit"), (8, 16))
SIZES |= {"learned_2d": (12, 20), "hybrid": (16, 24)}
MODELS = {name: (config, SIZES.get(name, (16, 16))) for name, config in CONFIGS.items()}


def random_model(config, image_size):
    """Returns a model whose weights are all away from their initial values."""
    keras.utils.set_random_seed(0)
    model = keras_vit.build(config, classes=3, input_shape=(*image_size, 3))
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "float" in weight.dtype:
            weight.assign(
                keras.ops.convert_to_numpy(weight) + 0.1 * rng.standard_normal(weight.shape)
            )
    return model


def inputs(image_size):
    """Returns two preprocessed images, the same for each size."""
    return np.random.default_rng(0).uniform(-1, 1, (2, *image_size, 3)).astype("float32")


def main(output):
    """Writes an archive: `.keras` files, weights in two formats, a classifier, and outputs."""
    expected = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for name, (config, image_size) in MODELS.items():
            model = random_model(config, image_size)
            model.save(folder / f"{name}.keras")
            expected[name] = np.asarray(model(inputs(image_size), training=False))
        model.save_weights(folder / "axial_resnet.weights.h5")
        plain = random_model(*MODELS["plain"])
        keras_vit.save_checkpoint(plain, folder / "plain.npz")
        preprocessing = Preprocessing((16, 16), value_range=(0, 1))
        keras_vit.save_classifier(folder / "pets", plain, ("cat", "dog", "sea"), preprocessing)
        np.savez(folder / "expected.npz", **expected)
        with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(path, path.relative_to(folder))


if __name__ == "__main__":
    main(sys.argv[1])
