"""Pipelines with `ClassifyImages`, in an environment with Apache Beam.

    python beam_jobs.py CLASSIFIER IMAGES OUTPUT

writes lines of JSON to OUTPUT-*: of the first image of a folder as bytes under the key "bytes", of
a file that does not exist under "missing", and its features under "features". Before that the
handler is pickled. Then the folder and the classifier are read from URLs, and the lines of
`predict_files` are OUTPUT_of_urls-*.
"""

import json
import pathlib
import pickle
import sys

import apache_beam as beam
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

from keras_vit.export.beam import ClassifyImages, predict_files


class CopiedFileSystem(LocalFileSystem):
    """Local files as URLs `copied://path`, in place of a store in a cloud."""

    @classmethod
    def scheme(cls):
        return "copied"

    def match(self, patterns, limits=None):
        results = super().match([_path(pattern) for pattern in patterns], limits)
        for result in results:
            result.metadata_list = [
                type(found)(f"copied:/{found.path}", found.size_in_bytes)
                for found in result.metadata_list
                if pathlib.Path(found.path).is_file()
            ]
        return results

    def open(self, path, *arguments, **options):
        return super().open(_path(path), *arguments, **options)


def _path(url):
    return url.removeprefix("copied:/")


def main(classifier, images, output):
    image = sorted(pathlib.Path(images).iterdir())[0]
    answers = pickle.loads(pickle.dumps(ClassifyImages(classifier, top=2)))  # noqa: S301
    features = ClassifyImages(classifier, feature="pre_logits", batch_size=2)
    assert len(pickle.dumps(answers)) < 1000
    with beam.Pipeline() as pipeline:
        elements = [("bytes", image.read_bytes()), ("missing", f"{image}.png")]
        classes = (
            pipeline
            | beam.Create(elements)
            | "Classes" >> RunInference(KeyedModelHandler(answers))
            | beam.MapTuple(lambda key, answer: json.dumps([key, answer.to_json()]))
        )
        values = (
            pipeline
            | "Paths" >> beam.Create([image])
            | "Features" >> RunInference(features)
            | beam.Map(lambda answer: json.dumps(["features", answer.values.tolist()]))
        )
        (classes, values) | beam.Flatten() | beam.io.WriteToText(output)
    remote = ClassifyImages(f"copied:/{classifier}")
    assert predict_files(remote, [f"copied:/{images}"], f"{output}_of_urls") == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
