"""Runs that are killed at a moment and continued: `python killed.py FOLDER`.

Imports TensorFlow once and forks for each run, as its runtime starts with the first operation.
Reads a line of JSON for each run: the `name` of its folder, and when to kill it, `operation` (a
number of operations on its files, from 1) or `seconds` from the first step; without either it
runs to its end. With `full` the disk is full from this operation on until the process ends. With
`words` it is a command, and with `exchange` false the system cannot exchange folders. Prints a line
of JSON: the exit `code`, the `error` that ended it, and after the end the `operations`, what `done`
they were, and the `seconds` from the first step.
"""

import errno
import json
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
import types
import zipfile

import keras
import numpy as np
import tensorflow as tf

from keras_vit.command_line import main as run_command
from keras_vit.description.run_record import RunRecord
from keras_vit.training import Adam, FineTuning, SoftmaxCrossentropy, Trainer, warmup_schedule
from keras_vit.training.run import finetune  # noqa: F401
from keras_vit.training.run.folder import PARTIAL, open_folder
from keras_vit.training.run.loop import train
from keras_vit.utils import files
from keras_vit.utils.files import MODEL, UNFINISHED

FOLDER = pathlib.Path(sys.argv[1]).resolve()
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "shutil.rmtree")
STEPS = 12
SETTINGS = FineTuning(
    steps=STEPS,
    batch_size=4,
    accumulate=1,
    learning_rate=0.03,
    warmup_steps=2,
    evaluate_every=2,
    ema_momentum=0.9,
).resolve(STEPS * 4)


def end_here():
    os.kill(os.getpid(), signal.SIGKILL)


class Counter:
    """Counts what changes files of a run, and ends the process just before one of them.

    With `full` each of them fails from then on, except for what makes space.
    """

    def __init__(self, place, last, full):
        self.place, self.last, self.full, self.done = str(place), last, full, []

    @property
    def count(self):
        return len(self.done)

    def step(self, what, makes_space=False):
        self.done.append(what)
        if self.count == self.last:
            end_here()
        if self.full and self.count >= self.full and not makes_space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.place)

    def audit(self, event, arguments):
        """A hook of Python's audit events, of which nearly every operation on files is one."""
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
        if (is_write or event in OPERATIONS) and any(map(self.is_inside, arguments)):
            paths = [str(item) for item in arguments if self.is_inside(item)]
            what = " ".join([event, *(path.rpartition("-")[2] for path in paths)])
            self.step(what, event in ("os.remove", "os.rmdir", "shutil.rmtree"))

    def is_inside(self, argument):
        return isinstance(argument, (str, os.PathLike)) and self.place in str(argument)

    def install(self):
        sys.addaudithook(self.audit)
        fsync, open_entry = os.fsync, zipfile.ZipFile.open

        def counted_fsync(file):
            self.step("os.fsync")
            fsync(file)

        def counted_open(archive, name, mode="r", *arguments, **options):
            if mode == "w":  # Half of an archive is written.
                self.step(f"ZipFile.open {name}")
            return open_entry(archive, name, mode, *arguments, **options)

        os.fsync, zipfile.ZipFile.open = counted_fsync, counted_open


def run(name, on_first_step):
    """Trains in the folder, or goes on there; writes and publishes what a job does."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((STEPS, 4, 4, 4, 3)).astype("float32")
    labels = rng.integers(0, 3, (STEPS, 4))
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Flatten(), keras.layers.Dropout(0.2), keras.layers.Dense(3)]
    trainer = Trainer(keras.Sequential([keras.Input((4, 4, 3)), *layers]), ema_momentum=0.9)
    schedule = warmup_schedule(0.03, steps=STEPS, warmup_steps=2)
    trainer.compile(Adam(schedule), SoftmaxCrossentropy(), metrics=["accuracy"])

    def validate():
        scores = np.array(trainer.model(images[0]))
        each = np.log(np.exp(scores).sum(-1)) - scores[np.arange(4), labels[0]]
        top_1 = np.mean(scores.argmax(-1) == labels[0])
        return types.SimpleNamespace(score=float(top_1), loss=float(each.mean()), count=4)

    def batches():
        for step in range(start, STEPS):
            if step == start:
                on_first_step()
            yield images[step], labels[step]

    resume = (FOLDER / f"{name}{PARTIAL}" / UNFINISHED).exists()
    folder = open_folder(FOLDER / name, resume=resume)
    with folder.locked():
        if not resume:
            folder.start(RunRecord(job="test"))
        start = folder.checkpoints.restore(trainer)
        spec = (tf.TensorSpec((4, 4, 4, 3)), tf.TensorSpec((4,), "int64"))
        data = tf.data.Dataset.from_generator(batches, output_signature=spec)
        train(trainer, data, folder, SETTINGS, start_step=start, validate=validate)
        trainer.model.save(folder.path / MODEL)
        folder.publish()


def child(task):
    """Runs in a separate process, which ends here."""
    os.dup2(2, 1)  # A command prints.
    try:
        counter = Counter(FOLDER / task["name"], task.get("operation"), task.get("full"))
        counter.install()
        began = []

        def on_first_step():
            began.append(time.perf_counter())
            if "seconds" in task:
                threading.Timer(task["seconds"], end_here).start()

        if not task.get("exchange", True):
            files._exchange = lambda one, other: False
        if "words" not in task:
            run(task["name"], on_first_step)
        elif code := run_command(task["words"]):
            raise RuntimeError(f"exit code {code}")
        seconds = time.perf_counter() - began[0] if began else 0.0
        figures = {"operations": counter.count, "done": counter.done, "seconds": seconds}
        (FOLDER / "figures.json").write_text(json.dumps(figures))
    except BaseException as error:
        traceback.print_exc()
        (FOLDER / "figures.json").write_text(json.dumps({"error": f"{error!r} {error}"}))
        os._exit(1)
    os._exit(0)


def main():
    for line in sys.stdin:
        task, number = json.loads(line), os.fork()
        if number == 0:
            child(task)
        _, status = os.waitpid(number, 0)
        code = os.waitstatus_to_exitcode(status)
        figures = json.loads((FOLDER / "figures.json").read_text()) if code >= 0 else {}
        print(json.dumps({"code": code, **figures}), flush=True)


if __name__ == "__main__":
    main()
