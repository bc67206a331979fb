"""The study of paper/claims/README.md: trains what is missing of it.

    python paper/claims/run.py DATA OUTPUT [--claims positions ...] [--minutes 110]

DATA is what `keras-vit finetune --data` takes: CIFAR-10 as `{train,test}/CLASS/*`. Every finished
training is a line of `paper/claims/results/results.json`, which is saved at once; the same command
continues where it was stopped, by Ctrl-C or after `--minutes`. OUTPUT gets the decoded images and
the models that other trainings start from.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import signal
import time

from claims import CLAIMS
from trainings import RESULTS, Results, missing, model_file

IMAGES = "images.npz"
# A process has a core; TensorFlow reads these when it is imported.
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


def decode(data, output):
    import training_run

    training_run.decode(data, output / IMAGES)


def train(run, output, keep):
    import training_run

    return training_run.train(run, output / IMAGES, output, keep)


def todo(names, results, output):
    """Yields the trainings that could be started, and whether their models are kept."""
    for claim in map(CLAIMS.get, names):
        started_from = {side.changes.get("start") for side in claim.sides.values()}
        for side, run in missing(claim, results):
            start = run.get("start")
            if start and not model_file(output, start).exists():
                yield start, True  # A second time, for its model.
            else:
                yield run, side in started_from


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--claims", nargs="+", choices=CLAIMS, default=list(CLAIMS))
    parser.add_argument("--minutes", type=float, default=110)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    arguments = parser.parse_args()

    deadline = time.monotonic() + 60 * arguments.minutes
    output, results = arguments.output, Results(arguments.results)
    output.mkdir(parents=True, exist_ok=True)
    os.environ.update(dict.fromkeys(THREADS, "1"), TF_CPP_MIN_LOG_LEVEL="3")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with concurrent.futures.ProcessPoolExecutor(
        arguments.processes,
        multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),  # The terminal sends it to all processes.
        max_tasks_per_child=20,  # TensorFlow keeps 80 MB of each training.
    ) as pool:
        try:
            if not (output / IMAGES).exists():
                pool.submit(decode, arguments.data, output).result()
            finish(arguments.claims, results, output, pool, arguments.processes, deadline)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
    left = sum(1 for _ in todo(arguments.claims, results, output))
    print(f"{left} trainings can be started next; the same command continues" if left else "done")


def finish(names, results, output, pool, processes, deadline):
    """Trains what is missing until the deadline."""
    running = {}
    while True:
        if time.monotonic() < deadline:
            for run, keep in todo(names, results, output):
                if len(running) == processes:
                    break
                if run not in running.values():
                    running[pool.submit(train, run, output, keep)] = run
        if not running:
            return
        for future in concurrent.futures.wait(running, return_when="FIRST_COMPLETED").done:
            run, result = running.pop(future), future.result()
            results.add(run, result)
            print(time.strftime("%H:%M:%S"), run, result, flush=True)


if __name__ == "__main__":
    main()
