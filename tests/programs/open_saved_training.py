"""Models with this package's optimizers, losses and trainer: written, and opened elsewhere.

python open_saved_training.py write FOLDER    # On TensorFlow or JAX.
python open_saved_training.py open FOLDER     # On any backend; prints what was opened, as JSON.
"""

import json
import pathlib
import sys

import keras
import numpy as np

import keras_vit

if keras.backend.backend() == "tensorflow":  # Tiny graphs run as they were traced.
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

IMAGES, LABELS = np.zeros((4, 8, 8, 3), "float32"), np.arange(4)


def write(folder):
    from keras_vit.training import (
        SGD,
        Adam,
        Muon,
        SigmoidCrossentropy,
        SoftmaxCrossentropy,
        Trainer,
        warmup_schedule,
    )
    from keras_vit.training.trainer.losses import label_accuracy

    shares = np.eye(4, dtype="float32")
    compiled = {
        "sgd": (SGD(warmup_schedule(0.01, steps=3, warmup_steps=1)), SoftmaxCrossentropy(0.1), []),
        "adam": (Adam(0.01), SigmoidCrossentropy(), [label_accuracy]),
        "muon": (Muon(0.01), SoftmaxCrossentropy(), []),
    }
    for name, (optimizer, loss, metrics) in compiled.items():
        config = keras_vit.ViTConfig(4, 16, 1, 16, 2)
        model = keras_vit.build(
            config, classes=4, input_shape=(8, 8, 3), classifier_activation=None
        )
        trained = Trainer(model, ema_momentum=0.9, seed=3) if name == "adam" else model
        trained.compile(optimizer, loss, metrics=metrics)
        trained.fit(IMAGES, shares, verbose=0)
        trained.save(folder / f"{name}.keras")
    np.save(folder / "logits.npy", trained.predict(IMAGES, verbose=0))  # The last one's.


def open_all(folder):
    opened = {}
    for path in sorted(folder.glob("*.keras")):
        model = keras.saving.load_model(path)
        opened[path.stem] = [
            type(model).__name__,
            type(model.optimizer).__name__,
            type(model.loss).__name__,
            int(model.optimizer.iterations),
        ]
        logits = model.predict(IMAGES, verbose=0)
        if path.stem == "muon":
            opened["difference"] = float(np.abs(logits - np.load(folder / "logits.npy")).max())
    opened["tensorflow"] = "tensorflow" in sys.modules
    print(json.dumps(opened))


{"write": write, "open": open_all}[sys.argv[1]](pathlib.Path(sys.argv[2]))
