"""A process that measures one cell, and may die of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import traceback
from typing import Any

from keras_vit.training.run.machine import process_memory
from keras_vit.training.run.required import required

from .results import Cell

WATCH_INTERVAL = 0.02  # Seconds between two looks at the child's memory.


class Child:
    """Runs `Steps` of a cell in a process of its own, which is killed beyond a budget.

    A new process for each cell, so that what ran before it takes none of its memory.

    Args:
        cell: What is measured.
        threads: Cores that TensorFlow may use for an operation.
        budget: Bytes that it may hold, or None; on a GPU, bytes of the GPU.

    Raises:
        RuntimeError: If the child fails for another reason than memory.
    """

    def __init__(self, cell: Cell, threads: int, budget: int | None):
        context = multiprocessing.get_context("spawn")
        self.budget = budget
        self.note = ""
        self.device = ""
        self.connection, theirs = context.Pipe()
        # What TensorFlow says at its start and its end is kept from the screen.
        self.said = tempfile.NamedTemporaryFile("w+b", prefix="keras_vit_benchmark_")  # noqa: SIM115
        self.process = context.Process(
            target=_serve, args=(theirs, cell, threads, self.said.name), daemon=True
        )
        self.process.start()
        theirs.close()
        self.alive = True
        self.device = self._answer() or ""

    def time(
        self, batch_size: int, runs: int, min_seconds: float
    ) -> tuple[list[float], int] | None:
        """Returns what `Steps.time` does; None too if the child died or took too much.

        It is of no use after that: see `alive` and `note`.
        """
        if not self.alive:
            return None
        self.connection.send((batch_size, runs, min_seconds))
        answer = self._answer()
        if answer is None:
            self.note = self.note or "TensorFlow's allocator had no more memory"
            self.close()  # What an operation left half done is not for the next.
            return None
        if self.budget is not None and answer[1] > self.budget:
            self._end("held more than the memory given")
            return None
        return answer

    def close(self) -> None:
        """Ends the process."""
        self.alive = False
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()
        self.said.close()

    def _end(self, note):
        self.note = note
        self.close()

    def _answer(self) -> Any:
        """The child's answer; None if there is none, and then why in `note`."""
        try:
            while not self.connection.poll(WATCH_INTERVAL):
                if self._is_over():
                    self._end("killed: held more than the memory given")
                    return None
            kind, answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            lines = self.said.read().decode(errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            self._end(f"died: {_reason(self.process.exitcode)} {last[:200]}".rstrip())
            return None
        if kind == "failed":
            self.close()
            raise RuntimeError(f"The measurement failed.\n{answer}")
        return answer

    def _is_over(self):
        if self.budget is None or self.device != "CPU":
            return False
        try:
            return process_memory(required(self.process.pid, "pid")) > self.budget
        except OSError:  # It has just ended.
            return False


def _reason(exit_code):
    if exit_code is not None and exit_code < 0:
        return signal.Signals(-exit_code).name
    return f"exit code {exit_code}"


def _serve(connection, cell, threads, said):
    """The child: builds the model, then answers until the parent is gone."""
    with open(said, "ab") as file:
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # What it says last shall be why it died.
    try:
        from .steps import Steps, device, limit_threads

        limit_threads(threads)
        connection.send(("ready", device()))
        steps = Steps(cell)
        while True:
            connection.send(("timed", steps.time(*connection.recv())))
    except EOFError:
        return
    except MemoryError:
        os.abort()  # Dies as it would have by the system's hand.
    except Exception:
        connection.send(("failed", traceback.format_exc()))
