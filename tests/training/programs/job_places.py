"""Fine-tunes a tiny model in one place or several; prints what came out as JSON.

    python job_places.py DATA OUTPUT STRATEGY...

Each strategy is one of `keras-vit finetune --strategy`, or "none". TF_CONFIG may name workers.
PROCESS may be "ADDRESS COUNT NUMBER", for several processes of JAX.
"""

import json
import os
import pathlib
import sys

if "PROCESS" in os.environ:
    import jax

    address, *numbers = os.environ["PROCESS"].split()
    jax.distributed.initialize(address, *map(int, numbers))

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.training.data import things
from keras_vit.training.run import objective
from keras_vit.training.run.finetune import finetune
from keras_vit.training.settings import FineTuning

DATA, OUTPUT, *STRATEGIES = sys.argv[1:]

if keras.backend.backend() == "tensorflow" and "TF_CONFIG" not in os.environ:
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)


searches, sources = [], []
find_copies, open_images = things.find_copies, objective.open_images


def counted_search(*arguments, **options):
    searches.append(1)
    return find_copies(*arguments, **options)


def recorded_images(*arguments, **options):
    source = open_images(*arguments, **options)
    sources.append(source)
    return source


things.find_copies, objective.open_images = counted_search, recorded_images


def outcome(strategy):
    """Runs the job and returns its numbers, and the parts of its images."""
    searches.clear()
    settings = FineTuning(
        model=keras_vit.ViTConfig(4, 16, 1, 16, 2),
        weights=None,
        image_size=(8, 8),
        steps=4,
        batch_size=8,
        accumulate=2,
        learning_rate=0.1,
        warmup_steps=1,
        evaluate_every=2,
        validation=0.3,
        ema_momentum=0.9,
        weight_decay=0.1,
        steps_per_execution=2,
        strategy=None if strategy == "none" else strategy,
    )
    output = pathlib.Path(OUTPUT) / strategy
    finished = finetune(DATA, output, settings, log=lambda text: None)
    weights = finished.classifier.model.get_weights()
    return {
        "history": finished.history,
        "weights": np.concatenate([np.ravel(weight) for weight in weights]).tolist(),
        "test": [finished.report.top_1, finished.report.loss],
        "parts": {part: list(each.names) for part, each in sources[-1].splits.items()},
        "things": sources[-1].things.line,
        "searches": len(searches),
        "files": sorted(os.listdir(output)) if output.exists() else [],
    }


results = {strategy: outcome(strategy) for strategy in STRATEGIES}
print(json.dumps(results))
