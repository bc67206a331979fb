"""A program that uses the package and compares what is global in it before and after.

    python host_program.py FOLDER

Keras and TensorFlow are imported first. From then on a child process is an error. Prints a JSON
object: by stage the names of what has changed.
"""

import atexit
import gc
import json
import locale
import logging
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import warnings

import keras
import numpy as np
import PIL.Image
import PIL.ImageFile
import tensorflow as tf

CHILDREN = {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.spawn", "os.exec", "os.system"}
KERAS_SETTINGS = ("dtype_policy", "epsilon", "floatx", "image_data_format", "backend")


def forbid_children(event, arguments):
    if event in CHILDREN:
        raise AssertionError(f"A child process: {event} {arguments}")


def state():
    """Returns what a program has once, as values that can be compared."""
    name, keys, *position = np.random.get_state()
    return {
        "warnings": (list(warnings.filters), warnings.showwarning),
        "sys": (list(sys.meta_path), list(sys.path), list(sys.path_hooks), sys.excepthook),
        "standard streams": (sys.stdin, sys.stdout, sys.stderr),
        "garbage collection": (gc.isenabled(), gc.get_threshold()),
        "functions at exit": atexit._ncallbacks(),
        "environment": dict(os.environ),
        "working directory": (os.getcwd(), sorted(os.listdir())),
        "temporary files": (tempfile.tempdir, sorted(os.listdir(os.environ["TMPDIR"]))),
        "locale": locale.setlocale(locale.LC_ALL),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "logging": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "threads": {thread.name for thread in threading.enumerate()},
        "random": random.getstate(),
        "numpy.random": (name, keys.tobytes(), position),
        "numpy": (np.geterr(), np.get_printoptions()),
        "Keras": [str(getattr(keras.config, what)()) for what in KERAS_SETTINGS],
        "TensorFlow": (
            tf.config.functions_run_eagerly(),
            tf.config.get_visible_devices(),
            tf.config.optimizer.get_jit(),
            tf.get_logger().level,
            tf.distribute.has_strategy(),
        ),
        "Pillow": (PIL.Image.MAX_IMAGE_PIXELS, PIL.ImageFile.LOAD_TRUNCATED_IMAGES),
        "loader of Keras": (keras.__spec__.loader, vars(keras.__spec__.loader).copy()),
    }


changes: dict[str, list[str]] = {}
last: dict[str, object] = {}


def compare(stage):
    """Notes what has changed since the last call."""
    now = state()
    changes[stage] = [name for name in now if last and now[name] != last[name]]
    last.clear()
    last.update(now)


def main(folder):
    os.chdir(folder)
    for name in ("temporary", "files"):
        os.mkdir(name)
    os.environ["TMPDIR"] = str(folder / "temporary")
    tempfile.gettempdir()
    PIL.Image.init()
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    # TensorFlow starts what it needs once.
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).predict(np.ones((1, 2)), verbose=0)
    sys.addaudithook(forbid_children)
    compare("nothing")

    import keras_vit

    compare("import")

    config = keras_vit.ViTConfig(4, 8, 1, 16, 2, dropout_rate=0.1)
    model = keras_vit.build(config, input_shape=(12, 8, 3), classes=3)
    head = model.get_layer("predictions").kernel
    head.assign(np.random.default_rng(1).normal(size=head.shape))
    compare("build")

    from keras_vit import export
    from keras_vit.preprocessing import Preprocessing

    files = folder / "files"
    names = ("model.keras", "model.weights.h5", "model.npz", "huggingface")
    model.save(files / names[0])
    model.save_weights(files / names[1])
    keras_vit.save_checkpoint(model, files / names[2])
    save = keras_vit.save_classifier
    save(files / "classifier", model, ("ant", "bee", "crow"), Preprocessing((12, 8)))
    export.convert(files / "classifier", files / names[3], to="huggingface")
    pixels = np.random.default_rng(0).integers(256, size=(13, 10, 3), dtype="uint8")
    images = [files / "a.png", files / "b.tiff"]
    for path in images:
        PIL.Image.fromarray(pixels).save(path)
    compare("save")

    keras.saving.load_model(files / names[0])
    for name in names:
        keras_vit.load_checkpoint(model, files / name)
    classifier = keras_vit.load_classifier(files / "classifier")
    compare("load")

    png, tiff = classifier.predict(images)
    assert png.labels == tiff.labels, (png, tiff)
    compare("predict")

    print(json.dumps(changes))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
