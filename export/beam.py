"""Classification and features of images with Apache Beam, for more than one machine computes."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.checkpoints.repositories import fixed_name
from keras_vit.classifier import Classifier
from keras_vit.models.opened_classifier import open_classifier
from keras_vit.models.rebuild import feature_model
from keras_vit.prediction import Prediction, predict_batch
from keras_vit.preprocessing import IMAGE_SUFFIXES, MAX_PIXELS
from keras_vit.utils.files import path_inside
from keras_vit.utils.optional_packages import import_optional

from .artefacts import RuntimeModel

_PURPOSE = "Apache Beam (keras_vit.export.beam, --beam-runner)"
beam = import_optional("apache_beam", _PURPOSE, "beam")
fileio = import_optional("apache_beam.io.fileio", _PURPOSE, "beam")
filesystems = import_optional("apache_beam.io.filesystems", _PURPOSE, "beam")
inference = import_optional("apache_beam.ml.inference.base", _PURPOSE, "beam")
ModelHandler: Any = inference.ModelHandler

_UNREADABLE = "unreadable_images"  # A counter of the pipeline.
_URL = "://"

DIRECT_RUNNER_ATTEMPTS = 3


class ImageFeatures(NamedTuple):
    """Features of an image.

    Args:
        path: The image file; "" for bytes.
        values: float32 `(D,)`, or None if the image could not be read.
        error: Why the image could not be read, or None.
    """

    path: str
    values: np.ndarray | None
    error: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedModel:
    """A classifier in a process of a worker.

    Args:
        classifier: The classifier.
        features: A model from images to features `(B, D)`, or None.
        lock: Runtimes compute one batch at a time.
    """

    classifier: Classifier
    features: keras.Model | None
    lock: threading.Lock


class ClassifyImages(ModelHandler):
    """A `ModelHandler` that classifies images, or computes their features, in Beam's RunInference.

    An element is a path, a URL that Beam opens, such as `gs://...`, or the bytes of an image file.
    Each gives one `keras_vit.classifier.Prediction`, as `keras-vit predict` computes it; or with
    `feature` an `ImageFeatures`, as `keras-vit embed` does. An image that cannot be read has the
    reason in `.error` and stops nothing. With `inference.KeyedModelHandler` elements are pairs of
    a key and one of these.

    Each process of a worker loads the model once. The handler itself is small: it holds the
    path, which every worker must be able to read.

    Args:
        model: A classifier's folder, or an export; see `load_artefact`. Workers copy a URL to
            their disk.
        top: Number of classes of a prediction.
        feature: One of `configs.FEATURES`, instead of classes.
        batch_size: Images that the model computes at once, at most.
        max_pixels: Largest height times width of an image.

    Raises:
        ValueError: If `top` or `batch_size` is below 1. Other errors of the arguments are raised
            when a worker loads the model.

    Example:
        predictions = paths | RunInference(ClassifyImages("gs://bucket/runs/pets"))
    """

    def __init__(
        self,
        model: str | os.PathLike,
        *,
        top: int = 5,
        feature: str | None = None,
        batch_size: int = 32,
        max_pixels: int = MAX_PIXELS,
    ):
        if top < 1 or batch_size < 1:
            raise ValueError(
                "top and batch_size must be at least 1. "
                f"Received: top={top}, batch_size={batch_size}"
            )
        super().__init__(max_batch_size=batch_size)
        path = os.fspath(model)
        # Workers may start in another folder. A name such as "cifar10" is no path.
        # Every worker takes the same commit of a repository.
        self.model = os.path.abspath(path) if os.path.exists(path) else fixed_name(path) or path
        self.top, self.feature, self.max_pixels = top, feature, max_pixels

    def load_model(self) -> LoadedModel:
        """Returns the model; RunInference calls this once a process."""
        with tempfile.TemporaryDirectory() as folder:
            path = _copied(self.model, folder) if _URL in self.model else self.model
            classifier = open_classifier(path).answering
        features = None
        if self.feature is not None:
            if isinstance(classifier.model, RuntimeModel):
                raise ValueError(
                    "Features need a classifier's folder; an export has none. "
                    f"Received: {self.model}"
                )
            features = feature_model(classifier.model, self.feature)
        return LoadedModel(classifier, features, threading.Lock())

    def run_inference(
        self,
        batch: Sequence[str | os.PathLike | bytes],
        model: LoadedModel,
        inference_args: Mapping[str, Any] | None = None,
    ) -> Iterator[Prediction | ImageFeatures]:
        """Yields the result of each element, in order."""
        unreadable = beam.metrics.Metrics.counter(type(self), _UNREADABLE)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            read = list(pool.map(lambda element: self._read(element, model.classifier), batch))
        inputs = [image for image in read if not isinstance(image, str)]
        rows = iter(_outputs(model, inputs) if inputs else ())
        for element, image in zip(batch, read, strict=True):
            path = "" if isinstance(element, bytes) else os.fspath(element)
            if isinstance(image, str):
                unreadable.inc()
                empty = ImageFeatures(path, None, image)
                yield Prediction(path, [], image) if self.feature is None else empty
            elif self.feature is None:
                yield model.classifier.prediction(path, next(rows), self.top)
            else:
                yield ImageFeatures(path, next(rows))

    def get_num_bytes(self, batch: Sequence[str | os.PathLike | bytes]) -> int:
        """Returns the bytes of the elements, for Beam's metrics."""
        return sum(len(os.fspath(element)) for element in batch)

    def get_metrics_namespace(self) -> str:
        """Returns the prefix of Beam's metrics of this handler."""
        return "ClassifyImages"

    def _read(self, element, classifier):
        """Returns an image as the model's input, or the reason why it cannot be read."""
        try:
            encoded = element if isinstance(element, bytes) else _content(os.fspath(element))
            return classifier.input_of(encoded, self.max_pixels)
        except (ValueError, OSError) as error:
            return str(error)


def predict_files(
    handler: ClassifyImages,
    paths: Sequence[str],
    output: str | os.PathLike,
    *,
    runner: str = "DirectRunner",
    options: Sequence[str] = (),
) -> int:
    """Classifies image files in a Beam pipeline and writes a line of JSON for each.

    Args:
        handler: The model.
        paths: Image files; or URLs, folders of which are searched for images by the workers.
        output: Path or URL of the lines' files: "answers.jsonl" gives
            `answers-00000-of-00004.jsonl` and so on, in the number that the runner chooses. They
            appear when all images are done.
        runner: A Beam runner, such as "DirectRunner" or "DataflowRunner".
        options: Options of the runner, as on a command line.

    Returns:
        Number of images that could not be read; their lines have the reason as `error`.

    Raises:
        ValueError: If there is such output, or the model cannot be opened.
        RuntimeError: If the pipeline fails. Other runners compute again what a lost worker had;
            DirectRunner does not, so the whole pipeline is run again, twice at most.
    """
    stem, suffix = os.path.splitext(os.fspath(output))
    (older,) = filesystems.FileSystems.match([f"{stem}-*-of-*{suffix}"])
    if older.metadata_list:
        raise ValueError(
            f"The output must be new. Received: {output}, of which there is "
            f"{older.metadata_list[0].path}"
        )
    task = handler.load_model().classifier.task  # An error here comes before the pipeline.
    # Workers may start in another folder.
    named = [(path, path if _URL in path else os.path.abspath(path)) for path in paths]
    arguments = ["--runner", runner, *options]
    for _ in range(DIRECT_RUNNER_ATTEMPTS - 1 if runner == "DirectRunner" else 0):
        try:
            return _run(handler, task, named, stem, suffix, arguments)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            logging.warning("The pipeline failed and is run again: %s", reason)
    return _run(handler, task, named, stem, suffix, arguments)


def _run(handler, task, named, stem, suffix, arguments):
    """Runs the pipeline; see `predict_files`."""
    pipeline = beam.Pipeline(argv=arguments)
    folders = [f"{url.rstrip('/')}/**" for name, url in named if _is_folder(name)]
    found = [
        pipeline | "Files" >> beam.Create([pair for pair in named if not _is_folder(pair[0])]),
        pipeline
        | "Folders" >> beam.Create(folders)
        | fileio.MatchAll(fileio.EmptyMatchTreatment.DISALLOW)
        | beam.Filter(lambda match: _has_image_suffix(match.path))
        | beam.Map(lambda match: (match.path, match.path)),
    ]
    (
        found
        | beam.Flatten()
        | beam.Reshuffle()
        | inference.RunInference(inference.KeyedModelHandler(handler))
        | beam.MapTuple(lambda name, answer: json.dumps(answer._replace(path=name).to_json(task)))
        | beam.io.WriteToText(stem, file_name_suffix=suffix)
    )
    result = pipeline.run()
    result.wait_until_finish()
    wanted = beam.metrics.MetricsFilter().with_name(_UNREADABLE)
    return sum(counter.result for counter in result.metrics().query(wanted)["counters"])


def _outputs(model, inputs):
    with model.lock:
        if model.features is None:
            return model.classifier.probabilities(inputs)
        return predict_batch(model.features, np.stack(inputs)).astype("float32")


def _content(path):
    if _URL not in path:
        return pathlib.Path(path).read_bytes()
    with filesystems.FileSystems.open(path, compression_type="uncompressed") as file:
        return file.read()


def _copied(url, folder):
    """Returns the path in a folder to which a URL was copied, a file or a folder."""
    url = url.rstrip("/")
    (files,), (below,) = (filesystems.FileSystems.match([p]) for p in (url, f"{url}/**"))
    found = files.metadata_list or below.metadata_list
    if not found:
        raise ValueError(f"A model must be a folder or a file. Nothing was found at {url}")
    base, _, name = url.rpartition("/")
    copies = {}  # All names are looked at before the first is written.
    for metadata in found:
        if metadata.path != url and not metadata.path.startswith(f"{url}/"):
            raise ValueError(f"A model must lie at {url}. Received: {metadata.path}")
        copies[metadata.path] = path_inside(folder, metadata.path.removeprefix(f"{base}/"))
    for source, copy in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(_content(source))
    return path_inside(folder, name)


def _is_folder(path):
    return _URL in path and not _has_image_suffix(path)


def _has_image_suffix(path):
    return os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES
