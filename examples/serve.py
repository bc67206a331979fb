"""Classify photos over HTTP with LitServe, which batches the requests of many clients.

    python serve.py runs/photos                         # A classifier's folder, or an export.
    python serve.py photos.onnx --page photos.html      # The page of `keras-vit export --to html`.
    curl -F image=@garden.jpg localhost:8000/classify

Needs `pip install litserve python-multipart`. It answers as `keras-vit predict --format json`.
There is no password and no encryption: put a proxy with both before it.
"""

import argparse
import pathlib
import tempfile

import litserve
from starlette.responses import FileResponse

import keras_vit


class Photos(litserve.LitAPI):
    """A classifier; its model is loaded in the worker's process."""

    def __init__(self, model):
        super().__init__(api_path="/classify", max_batch_size=8, batch_timeout=0.01)
        self.model = model

    def setup(self, device):
        self.classifier = keras_vit.load_classifier(self.model)

    def decode_request(self, request):
        image = request.get("image")
        return image.file.read() if hasattr(image, "file") else b""  # Empty: no image file.

    def batch(self, inputs):
        return inputs

    def predict(self, files):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, str(index)) for index in range(len(files))]
            for path, content in zip(paths, files, strict=True):
                path.write_bytes(content)
            answers = [answer.to_json() for answer in self.classifier.predict(paths)]
        return [{key: answer[key] for key in answer if key != "path"} for answer in answers]

    def unbatch(self, output):
        return output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--page", help="an export to html, which is then at /page")
    given = parser.parse_args()
    server = litserve.LitServer(Photos(given.model), accelerator="cpu", max_payload_size=32_000_000)
    if given.page:
        server.app.get("/page")(lambda: FileResponse(given.page))
    server.run(host=given.host, port=given.port, num_api_servers=1, generate_client_file=False)


if __name__ == "__main__":
    main()
