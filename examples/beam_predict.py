"""Classify millions of images with Apache Beam, by its RunInference over an ONNX export.

    keras-vit export runs/pets --to onnx --output pets.onnx
    python beam_predict.py pets.onnx "photos/*.jpg" answers.jsonl --runner DirectRunner

The workers need apache-beam, onnxruntime and Pillow, and no keras_vit. The file, the images and the
output may be URLs that Beam opens (gs://...); options of the runner follow the three names.
"""

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

    def __init__(self, path):
        super().__init__()
        self.path = path

    def load_model(self):  # Once in each process of a worker.
        with FileSystems.open(self.path) as file:
            return onnxruntime.InferenceSession(file.read(), providers=["CPUExecutionProvider"])

    def run_inference(self, batch, model, inference_args=None):
        names = json.loads(model.get_modelmeta().custom_metadata_map["class_names"])
        for content in batch:
            try:
                photo = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
            except OSError as error:  # Not an image: its line says so, and the others go on.
                yield {"error": str(error)}
            else:
                rows = model.run(["probabilities"], {"images": np.asarray(photo)[np.newaxis]})[0]
                best = int(rows[0].argmax())  # It may be "unknown".
                yield {"answer": names[best], "probability": round(float(rows[0, best]), 6)}


if __name__ == "__main__":
    export, pattern, output = sys.argv[1:4]
    with beam.Pipeline(options=PipelineOptions(sys.argv[4:])) as pipeline:
        (
            pipeline
            | fileio.MatchFiles(pattern)
            | fileio.ReadMatches()
            | beam.Reshuffle()
            | beam.Map(lambda file: (file.metadata.path, file.read()))
            | RunInference(KeyedModelHandler(OnnxClassifier(export)))
            | beam.MapTuple(lambda path, answer: json.dumps({"path": path, **answer}))
            | beam.io.WriteToText(output)
        )
