"""De-duplication as an Apache Beam pipeline, for training sets too large for one machine."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence

from keras_vit.utils.optional_packages import import_optional

from .duplicates import Duplicate, DuplicateIndex, SkippedImage
from .fingerprints import fingerprint_or_reason

beam = import_optional("apache_beam", "De-duplication with --runner", "beam")
filesystems = import_optional("apache_beam.io.filesystems", "De-duplication with --runner", "beam")


def run_pipeline(
    files: Mapping[str, str],
    index: DuplicateIndex,
    *,
    runner: str = "DirectRunner",
    options: Sequence[str] = (),
    work_dir: str | os.PathLike | None = None,
) -> tuple[list[Duplicate], list[SkippedImage]]:
    """Finds the same duplicates as `duplicates.find_duplicates`, with Beam.

    Every worker has the index. The workers read the training images.

    Args:
        files: Paths of the training images, or URLs that Beam can open, by name.
        index: The test images.
        runner: A Beam runner, such as "DirectRunner" or "DataflowRunner".
        options: Options of the runner, as on a command line.
        work_dir: A folder or URL for the results of the workers, which all of them and this
            process can access; a temporary folder by default.

    Returns:
        The duplicates ordered by name, and the unreadable images.
    """
    with tempfile.TemporaryDirectory() as temporary:
        prefix = os.path.join(os.fspath(work_dir or temporary), "duplicates")
        arguments = ["--runner", runner, *options]
        with beam.Pipeline(argv=arguments) as pipeline:
            the_index = pipeline | "Index" >> beam.Create([index])
            (
                pipeline
                | "Files" >> beam.Create(_absolute(files))
                | beam.Reshuffle()
                | beam.Map(_fingerprint_file)
                | beam.BatchElements(min_batch_size=16, max_batch_size=256)
                | beam.FlatMap(_find, beam.pvalue.AsSingleton(the_index))
                | beam.io.WriteToText(prefix)
            )
        lines = [line for path in _matches(prefix) for line in _lines(path)]
    return _read(lines)


def _fingerprint_file(file):
    name, path = file
    try:
        with filesystems.FileSystems.open(path) as opened:
            encoded = opened.read()
    except OSError as error:
        return name, str(error)
    return fingerprint_or_reason((name, encoded, False))


def _find(batch, index):
    """Yields a line of JSON for each duplicate and each unreadable image of a batch."""
    good = [(name, found) for name, found in batch if not isinstance(found, str)]
    for name, reason in ((name, found) for name, found in batch if isinstance(found, str)):
        yield json.dumps([name, " ".join(reason.split())])
    for pair in index.find([name for name, _ in good], [found for _, found in good]):
        yield json.dumps(
            [*pair[:3], int(pair.distance), float(pair.similarity), bool(pair.mirrored)]
        )


def _read(lines):
    """Returns the duplicates and unreadable images of the lines of `_find`, ordered.

    A runner that computes a lost bundle again may have written a line twice.
    """
    fields = sorted(json.loads(line) for line in set(lines))
    of_skipped = len(SkippedImage._fields)
    duplicates = [Duplicate(*values) for values in fields if len(values) != of_skipped]
    return duplicates, [SkippedImage(*values) for values in fields if len(values) == of_skipped]


def _matches(prefix):
    (found,) = filesystems.FileSystems.match([f"{prefix}-*"])
    return [metadata.path for metadata in found.metadata_list]


def _lines(path):
    with filesystems.FileSystems.open(path) as file:
        return file.read().decode().splitlines()


def _absolute(files):
    """Returns names with paths that are valid in every process."""
    return [
        (name, path if "://" in path else os.path.abspath(path)) for name, path in files.items()
    ]
