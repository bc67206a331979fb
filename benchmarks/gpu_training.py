"""A whole training on a GPU: to its end, and killed on the way and resumed.

    python benchmarks/gpu_training.py fit [--model ViT-B/16] [--steps 60]
    python benchmarks/gpu_training.py finetune --photos FOLDER

`fit` is `Trainer.fit` on arrays with `Checkpoints`, on JAX; `finetune` is the command on
photos, which needs TensorFlow for the pipeline. Each way trains twice, side by side: one run goes
to its end; the other is killed by SIGKILL after a state was written, and resumed by a new
process. A line of JSON says whether the two have the same weights, bit for bit, and how far they
are apart. JAX resumes bit for bit under XLA_FLAGS=--xla_gpu_deterministic_ops=true.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import numpy as np

WEIGHTS = "weights.npz"
KILLED = -signal.SIGKILL
# The command, also where its script is not on the path.
COMMAND = sys.executable, "-c", "from keras_vit.command_line import main; raise SystemExit(main())"


def arrays(size, images=1024, classes=8):
    """Returns images with a stripe pattern for each class under noise, and their classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(images) % classes
    places = np.arange(size) * 2 * np.pi / size
    stripes = np.sin(places[None] * (labels[:, None] + 1))
    noise = rng.normal(size=(images, size, size, 3)).astype("float32")
    return np.clip(0.5 * noise + stripes[:, None, :, None], -1, 1).astype("float32"), labels


def batches_from(step, images, labels, batch):
    """Yields the batches from a step on: each epoch has another order, known from its number."""
    each = len(images) // batch
    while True:
        order = np.random.default_rng(step // each).permutation(len(images))
        chosen = order[step % each * batch :][:batch]
        yield images[chosen], labels[chosen]
        step += 1


def fit(folder, options, dies_at):
    """Trains from the newest state in a folder to the end, or until the process kills itself."""
    import keras

    import keras_vit
    from keras_vit.training import SGD, Checkpoints, Trainer, warmup_schedule

    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    shape = (options.size, options.size, 3)
    model = keras_vit.build(
        options.model, classes=8, classifier_activation=None, input_shape=shape, dropout_rate=0.1
    )
    trainer = Trainer(model)
    schedule = warmup_schedule(0.03, steps=options.steps, warmup_steps=10)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(SGD(schedule), loss, metrics=["accuracy"])
    images, labels = arrays(options.size)
    checkpoints = Checkpoints(folder)
    start = checkpoints.restore(trainer)

    def die(batch, logs):
        if start + batch + 1 == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    began = time.perf_counter()
    history = trainer.fit(
        batches_from(start, images, labels, options.batch_size),
        steps_per_epoch=options.steps - start,
        callbacks=[
            checkpoints.callback(every=options.every),
            keras.callbacks.LambdaCallback(on_train_batch_end=die),
        ],
        verbose=0,
    )
    seconds = time.perf_counter() - began
    loss, accuracy = trainer.evaluate(images[:256], labels[:256], batch_size=64, verbose=0)
    figures = {"start": start, "seconds": seconds, "loss": loss, "accuracy": accuracy}
    figures["mean_loss"] = history.history["loss"][-1]
    pathlib.Path(folder, "figures.json").write_text(json.dumps(figures))


def fit_command(options, folder, dies_at=0):
    """Returns the command of a process of `fit`."""
    words = [sys.executable, __file__, "fit", "--model", options.model, "--folder", str(folder)]
    for name in ("steps", "every", "size", "batch_size"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return [*words, "--dies-at", str(dies_at)]


def write_weights(model, size, path):
    """Writes random weights in the official layout, as finetune starts from weights."""
    program = (
        "import sys, keras_vit; name, size, path = sys.argv[1:]; keras_vit.save_checkpoint("
        "keras_vit.build(name, input_shape=(int(size), int(size), 3)), path)"
    )
    subprocess.run([sys.executable, "-c", program, model, str(size), str(path)], check=True)
    return path


def finetune_command(options, folder):
    """Returns the command that a user would type."""
    words = [*COMMAND, "finetune", "--data", options.photos, "--weights", folder.parent / WEIGHTS]
    words += ["--model", options.model, "--image-size", str(options.size), "--output", str(folder)]
    words += ["--steps", str(options.steps), "--batch-size", str(options.batch_size)]
    return [
        *words,
        "--evaluate-every",
        str(options.every),
        "--dropout-rate",
        "0.1",
        "--samples",
        "none",
    ]


def run(command, log, until=None):
    """Runs a process to its end, or kills it as soon as a condition holds; returns its code."""
    with open(log, "a") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            if until is not None and until():
                process.kill()
            time.sleep(0.05)
    return process.returncode


def whole_run(options, folder):
    """Trains to the end in one process; returns the file of the weights."""
    log = folder.with_suffix(".log")
    command = fit_command if options.way == "fit" else finetune_command
    code = run(command(options, folder), log)
    assert code == 0, log.read_text()[-3000:]
    return weights_of(folder)


def stopped_run(options, folder):
    """Trains in two processes, the first of which is killed; returns the file of the weights."""
    log = folder.with_suffix(".log")
    if options.way == "fit":
        code = run(fit_command(options, folder, options.steps // 2 + 1), log)
        again = fit_command(options, folder)
    else:
        states = folder.with_name(f"{folder.name}.partial")
        code = run(finetune_command(options, folder), log, lambda: any(states.rglob("state-*.npz")))
        again = [*COMMAND, "finetune", "--resume", "--output", str(folder)]
    assert code == KILLED, (code, log.read_text()[-3000:])
    code = run(again, log)
    assert code == 0, log.read_text()[-3000:]
    return weights_of(folder)


def weights_of(folder):
    """Returns all arrays of a finished run by name."""
    if not (folder / "model.keras").exists():
        newest = max(folder.glob("state-*.npz"))
        with np.load(newest) as file:
            return dict(file)
    import h5py

    found = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with zipfile.ZipFile(folder / "model.keras") as archive:
        archive.extract("model.weights.h5", folder.parent)
    with h5py.File(folder.parent / "model.weights.h5") as file:
        file.visititems(keep)
    return found


def history_of(folder):
    """Returns the last figures of a run."""
    if (folder / "figures.json").exists():
        return json.loads((folder / "figures.json").read_text())
    with open(folder / "history.csv") as file:
        return list(csv.DictReader(file))[-1]


def compare(options):
    """Runs both ways and prints what they have come to."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(options.keep or place)
        folder.mkdir(parents=True, exist_ok=True)
        if options.way == "finetune":
            write_weights(options.model, options.size, folder / WEIGHTS)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(whole_run, options, folder / "whole")]
            jobs.append(pool.submit(stopped_run, options, folder / "stopped"))
            whole, stopped = (job.result() for job in jobs)
        assert whole.keys() == stopped.keys()
        apart = max(float(np.abs(whole[n] - stopped[n]).max()) for n in whole if whole[n].size)
        print(
            json.dumps(
                {
                    "way": options.way,
                    "flags": os.environ.get("XLA_FLAGS", ""),
                    "same_bits": all(whole[n].tobytes() == stopped[n].tobytes() for n in whole),
                    "largest_difference": apart,
                    "whole": history_of(folder / "whole"),
                    "stopped": history_of(folder / "stopped"),
                }
            ),
            flush=True,
        )


def main():
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("way", choices=("fit", "finetune"))
    parser.add_argument("--photos", help="folder of photos for finetune")
    parser.add_argument("--model", default="ViT-B/16")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--every", type=int, default=20, help="steps between two states")
    parser.add_argument("--keep", help="folder in which the runs stay")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--dies-at", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "jax")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # Two processes share the GPU.
    if options.folder:
        fit(options.folder, options, options.dies_at)
    else:
        compare(options)


if __name__ == "__main__":
    main()
