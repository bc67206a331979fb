"""A pipeline with `ClassifyImages` on bytes and paths, in an environment with Apache Beam.

    python beam_jobs.py CLASSIFIER IMAGE OUTPUT

writes lines of JSON to OUTPUT-*: of the image as bytes under the key "bytes", of a file that does
not exist under "missing", and the features of the image under "features". Before that the handler
is pickled.
"""

import json
import pathlib
import pickle
import sys

import apache_beam as beam
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

from keras_vit.export.beam import ClassifyImages


def main(classifier, image, output):
    answers = pickle.loads(pickle.dumps(ClassifyImages(classifier, top=2)))  # noqa: S301
    features = ClassifyImages(classifier, feature="pre_logits", batch_size=2)
    assert len(pickle.dumps(answers)) < 1000
    with beam.Pipeline() as pipeline:
        elements = [("bytes", pathlib.Path(image).read_bytes()), ("missing", f"{image}.png")]
        classes = (
            pipeline
            | beam.Create(elements)
            | "Classes" >> RunInference(KeyedModelHandler(answers))
            | beam.MapTuple(lambda key, answer: json.dumps([key, answer.to_json()]))
        )
        values = (
            pipeline
            | "Paths" >> beam.Create([pathlib.Path(image)])
            | "Features" >> RunInference(features)
            | beam.Map(lambda answer: json.dumps(["features", answer.values.tolist()]))
        )
        (classes, values) | beam.Flatten() | beam.io.WriteToText(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
