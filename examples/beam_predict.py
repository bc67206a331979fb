"""Classify millions of images with Apache Beam, by its RunInference over an ONNX export.

    keras-vit export runs/pets --to onnx --output pets.onnx
    python beam_predict.py pets.onnx "photos/*.jpg" answers.jsonl --runner DirectRunner

The workers need apache-beam, onnxruntime and Pillow, and no keras_vit. The file, the images and the
output may be URLs that Beam opens (gs://...); options of the runner follow the three names, and
`--provider CUDAExecutionProvider` takes a GPU.
"""

import argparse
import collections
import io
import json
import sys

import apache_beam as beam
import numpy as np
import onnxruntime
from apache_beam.io import fileio
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image, ImageOps


class OnnxClassifier(ModelHandler):
    """Answers the bytes of image files with the export at `path`, which resizes and scales."""

    def __init__(self, path, provider):
        super().__init__()
        self.path, self.provider = path, provider

    def load_model(self):  # Once in each process of a worker.
        with FileSystems.open(self.path) as file:
            session = onnxruntime.InferenceSession(file.read(), providers=[self.provider])
        if session.get_providers()[0] != self.provider:  # It took the CPU and only warned.
            raise RuntimeError(f"{self.provider} must be available. Install onnxruntime-gpu")
        return session

    def run_inference(self, batch, model, inference_args=None):
        names = json.loads(model.get_modelmeta().custom_metadata_map["class_names"])
        answers, photos = {}, collections.defaultdict(dict)  # Photos by size, then by index.
        for index, content in enumerate(batch):
            try:
                photo = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
            except OSError as error:  # Not an image: its line says so, and the others go on.
                answers[index] = {"error": str(error)}
            else:
                photos[photo.size][index] = np.asarray(photo)
        for group in photos.values():  # Only equal sizes fit into one array.
            (rows,) = model.run(["probabilities"], {"images": np.stack([*group.values()])})
            for index, row in zip(group, rows, strict=True):
                best = int(row.argmax())  # It may be "unknown".
                answers[index] = {"answer": names[best], "probability": round(float(row[best]), 6)}
        return [answers[index] for index in range(len(batch))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", default="CPUExecutionProvider", help="as ONNX Runtime's")
    given, others = parser.parse_known_args(sys.argv[4:])
    export, pattern, output = sys.argv[1:4]
    with beam.Pipeline(options=PipelineOptions(others)) as pipeline:
        (
            pipeline
            | fileio.MatchFiles(pattern)
            | fileio.ReadMatches()
            | beam.Reshuffle()
            | beam.Map(lambda file: (file.metadata.path, file.read()))
            | RunInference(KeyedModelHandler(OnnxClassifier(export, given.provider)))
            | beam.MapTuple(lambda path, answer: json.dumps({"path": path, **answer}))
            | beam.io.WriteToText(output)
        )
