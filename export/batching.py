"""Images of many requests, decoded in threads and computed in small batches."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.images.transcoding import is_transcoded, kind_of

from .options import ServingLimits

if TYPE_CHECKING:
    from keras_vit.monitoring.monitor import Monitor

_CHANNELS = 3
_LONGEST_RETRY = 60  # Seconds.


class Overloaded(Exception):
    """More images than the queue holds.

    Args:
        retry_after: Seconds until the images that wait will be answered.
    """

    def __init__(self, retry_after: int):
        super().__init__("The server has more images than its queue holds.")
        self.retry_after = retry_after


class Batcher:
    """Classifies image files that arrive one by one.

    Each file is decoded in a thread of a pool and joins the batch of one thread that runs the
    model. That thread takes what is decoded, up to `max_batch` images, and waits at most
    `batch_wait` for files that are still being decoded; a file that is alone does not wait.

    Memory: a batch, and the images that are ready for the next ones, have at most the bytes of
    an image of `max_pixels` each, or one image; so has each thread that decodes. All other files
    stay encoded.

    Args:
        classifier: The classifier, or the monitor that watches it.
        limits: Sizes and times.
        observe: Called in the thread of the model after each batch with its images and the
            seconds that the model took.
    """

    def __init__(
        self,
        classifier: Classifier | Monitor,
        limits: ServingLimits,
        observe: Callable[[int, float], None] = lambda images, seconds: None,
    ):
        self._classifier, self._limits, self._observe = classifier, limits, observe
        self._most_bytes = _CHANNELS * limits.max_pixels
        self._ready: collections.deque[tuple[np.ndarray, Future]] = collections.deque()
        self._ready_bytes = 0
        self._closed = False
        self._changed = threading.Condition()  # Guards the three above.
        self._pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="decode")
        self._thread = threading.Thread(target=self._compute, name="model", daemon=True)
        self._lock = threading.Lock()
        self._transcoding = threading.Lock()
        self._waiting = 0
        self._seconds_per_image = 0.0
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Images that were accepted and are not yet answered."""
        return self._waiting

    def submit(self, files: Sequence[bytes]) -> list[Future]:
        """Accepts the files of a request, all or none of them.

        Args:
            files: Contents of image files.

        Returns:
            For each file the future row of probabilities `(K,)`, or the reason why it cannot be
            decoded, a string.

        Raises:
            Overloaded: If there is no room for them.
        """
        with self._lock:
            if self._waiting + len(files) > self._limits.max_queue:
                raise Overloaded(self._retry_after())
            self._waiting += len(files)
        answers: list[Future] = [Future() for _ in files]
        for file, answer in zip(files, answers, strict=True):
            answer.add_done_callback(self._answered)
            self._pool.submit(self._decode, file, answer)
        return answers

    def close(self) -> None:
        """Answers what was accepted, then ends the threads."""
        self._pool.shutdown()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _retry_after(self):
        seconds = self._waiting * self._seconds_per_image
        return min(max(math.ceil(seconds), 1), _LONGEST_RETRY)

    def _answered(self, _):
        with self._lock:
            self._waiting -= 1

    def _decode(self, file, answer):
        if not answer.set_running_or_notify_cancel():
            return  # The client went away.
        # Pillow's image, its conversion and the pixels lie beside each other: one at a time.
        alone = (
            self._transcoding if is_transcoded(kind_of(file) or "PNG") else contextlib.nullcontext()
        )
        try:
            with alone:
                image = self._classifier.input_of(file, self._limits.max_pixels)
        except ValueError as error:
            answer.set_result(str(error))
        except Exception as error:
            answer.set_exception(error)
        else:
            with self._changed:
                self._changed.wait_for(lambda: self._fits(self._ready_bytes, image))
                self._ready.append((image, answer))
                self._ready_bytes += image.nbytes
                self._changed.notify_all()

    def _fits(self, size, image):
        return not size or size + image.nbytes <= self._most_bytes

    def _compute(self):
        while batch := self._next_batch():
            images, answers = zip(*batch, strict=True)
            began = time.perf_counter()
            try:
                rows = self._classifier.probabilities(images)
            except Exception as error:
                for answer in answers:
                    answer.set_exception(error)
                continue
            seconds = time.perf_counter() - began
            self._seconds_per_image = seconds / len(images)
            self._observe(len(images), seconds)
            for answer, row in zip(answers, rows, strict=True):
                answer.set_result(row)

    def _next_batch(self):
        """Returns pairs of an image and its future answer; none at the end."""
        batch: list[tuple[np.ndarray, Future]] = []
        size = 0
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closed)
            deadline = time.monotonic() + self._limits.batch_wait / 1000
            while len(batch) < min(self._limits.max_batch, self._waiting):
                left = deadline - time.monotonic()
                self._changed.wait_for(lambda: self._ready or self._closed, left)
                if not self._ready or not self._fits(size, self._ready[0][0]):
                    break
                image, answer = self._ready.popleft()
                batch.append((image, answer))
                size += image.nbytes
                self._ready_bytes -= image.nbytes
                self._changed.notify_all()
        return batch
