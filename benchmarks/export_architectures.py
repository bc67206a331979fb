"""Agreement of the exports of each architecture with Keras.

    python benchmarks/export_architectures.py

Prints the largest difference and the share of equal first classes, for small models with random
weights and a random head of 10 classes, on crops of scikit-learn's two photographs. A random head
leaves no margin between classes, so small numerical errors change classes.
"""

import dataclasses
import os
import pathlib
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from machine import describe

SIDE = 64  # Pixels.
IMAGES = 16  # Half of them calibrate int8.
CLASSES = 10


def main():
    import keras

    import keras_vit.export
    from keras_vit.configs import AxialConfig, AxialResNetConfig, BiTConfig, ResNetStem, ViTConfig
    from keras_vit.predictor import Predictor
    from keras_vit.preprocessing import Preprocessing

    dinov2 = ViTConfig(8, 64, 4, 256, 4, gelu="exact", layer_scale=True, num_registers=4)
    models = {
        "ViT": ViTConfig(8, 64, 4, 256, 4),
        "DINOv2": dinov2,
        "DINOv2, SwiGLU": dataclasses.replace(dinov2, gelu="swiglu"),
        "hybrid": ViTConfig(1, 64, 4, 256, 4, resnet=ResNetStem((1, 1, 1))),
        "BiT": BiTConfig((1, 1, 1, 1)),
        "Axial-ViT": AxialConfig(8, 64, 4, 256, 4),
        "Axial-ResNet": AxialResNetConfig((1, 1, 1, 1)),
    }
    formats = {
        "SavedModel": (keras_vit.export.saved_model, "", {}),
        **{
            f"TFLite {precision}": (keras_vit.export.tflite, ".tflite", {"precision": precision})
            for precision in ("float32", "dynamic_int8", "int8")
        },
        "ONNX": (keras_vit.export.onnx, ".onnx", {}),
    }
    print(describe("tensorflow", "ai-edge-litert", "ai-edge-quantizer", "onnxruntime"))
    print(f"| model | {' | '.join(formats)} |")
    print("| --- |" + " --- |" * len(formats))
    for name, config in models.items():
        keras.utils.set_random_seed(0)
        model = keras_vit.build(config, input_shape=(SIDE, SIDE, 3), classes=CLASSES)
        head = model.get_layer("predictions").kernel
        head.assign(np.random.default_rng(0).normal(size=head.shape) * head.shape[0] ** -0.5)
        labels = [str(label) for label in range(CLASSES)]
        classifier = Predictor(model, labels, Preprocessing((SIDE, SIDE)))
        cells = []
        for export, suffix, options in formats.values():
            with tempfile.TemporaryDirectory() as folder:
                images = make_images(pathlib.Path(folder) / "images")
                path = pathlib.Path(folder) / f"export{suffix}"
                report = export(
                    classifier,
                    path,
                    check_images=images,
                    minimum_agreement=0,
                    **options,
                )
            worst = max(check.largest_difference for check in report.checks)
            agreement = f" ({report.agreement:.0%})" if report.agreement < 1 else ""
            cells.append(f"{worst:.0e}{agreement}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def make_images(folder):
    """Writes parts of the two photographs as PNG files; returns the folder."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    folder.mkdir()
    photographs = load_sample_images().images
    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        top, left = rng.integers(0, 427 - 2 * SIDE), rng.integers(0, 640 - 2 * SIDE)
        part = photographs[number % 2][top : top + 2 * SIDE, left : left + 2 * SIDE]
        Image.fromarray(part).resize((SIDE, SIDE)).save(folder / f"{number:02}.png")
    return folder


if __name__ == "__main__":
    main()
