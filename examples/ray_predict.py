"""Classify a folder of millions of photos with Ray Data, by an ONNX export, on CPUs or GPUs.

    pip install "ray[data]" onnxruntime pillow
    keras-vit export runs/pets --to onnx --output pets.onnx
    python ray_predict.py pets.onnx photos answers --workers 2

The export and the folder of photos may be URLs that PyArrow opens (s3://..., gs://...). Each photo
becomes one line of a file answers/part-*.jsonl, as `keras-vit predict --format json` prints it, or
with the reason why it cannot be decoded. A part is complete or absent. Started again, the program
answers only the photos that are in no part. Run one program at a time for a folder of answers.

Ray starts on this machine, or is joined where `RAY_ADDRESS` says; each worker takes a CPU, and at
least one more decodes. GPUs take onnxruntime-gpu and `--num-gpus 1`, which is the number for each
worker. The machines need no keras_vit.
"""

import argparse
import collections
import io
import itertools
import json
import os
import pathlib

import numpy as np
import onnxruntime
import ray
from PIL import Image, ImageOps, UnidentifiedImageError
from pyarrow import fs


def open_address(address):
    """Returns the file system of a path or URL, and its path there."""
    return fs.FileSystem.from_uri(address if "://" in address else os.path.abspath(address))


def decode(file):
    """Returns the pixels of a photo, upright and in RGB, or why it cannot be decoded."""
    row = {"path": file["path"], "pixels": b"", "height": 0, "width": 0, "error": ""}
    try:
        photo = ImageOps.exif_transpose(Image.open(io.BytesIO(file["bytes"])))
        if photo.mode.startswith("I"):  # 16-bit grey: Pillow would clip at 255.
            photo = Image.fromarray((np.asarray(photo) >> 8).astype("uint8"))
        row["pixels"] = photo.convert("RGB").tobytes()
        row["width"], row["height"] = photo.size
    except UnidentifiedImageError:
        row["error"] = "It is not an image that Pillow knows."
    except Exception as error:  # Pillow raises many kinds; the other photos go on.
        row["error"] = str(error) or type(error).__name__
    return row


class Classifier:
    """Answers decoded photos with the export, which resizes and scales; one in each worker."""

    def __init__(self, filesystem, export, num_gpus, top):
        with filesystem.open_input_stream(export) as file:
            content = file.read()
        providers = ["CPUExecutionProvider"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # A worker takes one CPU.
        if num_gpus:
            providers.insert(0, "CUDAExecutionProvider")
        self.session = onnxruntime.InferenceSession(content, options, providers=providers)
        if self.session.get_providers()[0] != providers[0]:
            raise RuntimeError(f"{providers[0]} must be available. Install onnxruntime-gpu")
        texts = self.session.get_modelmeta().custom_metadata_map
        self.names = json.loads(texts["class_names"])
        description = json.loads(texts["description"])
        if (
            bits := description["preprocessing"].get("bit_depth", 16)
        ) != 16:  # As `decode` reads them.
            raise ValueError(f"16-bit photos must use 16 bits. Received: an export of {bits} bits")
        self.may_abstain = description["labels"].get("abstains", False)
        self.top = top

    def __call__(self, photos):
        answers = [{"error": error} for error in photos["error"]]
        indices_by_size = collections.defaultdict(list)
        for index, error in enumerate(photos["error"]):
            if not error:
                size = int(photos["height"][index]), int(photos["width"][index])
                indices_by_size[size].append(index)
        for size, indices in indices_by_size.items():  # Only equal sizes fit into one array.
            pixels = [np.frombuffer(photos["pixels"][index], "uint8") for index in indices]
            images = np.stack(pixels).reshape(len(indices), *size, 3)
            (rows,) = self.session.run(["probabilities"], {"images": images})
            for index, row in zip(indices, rows, strict=True):
                answers[index] = self.answer(row)
        paths = photos["path"]
        entries = [{"path": p, **a} for p, a in zip(paths, answers, strict=True)]
        return {"line": [json.dumps(entry, ensure_ascii=False) for entry in entries]}

    def answer(self, row):
        """Returns the most probable classes of a row of outputs, as `keras-vit predict` does."""
        unknown = 0
        if self.may_abstain:  # The last output; the others were multiplied by the rest.
            *row, unknown = row
            row = np.array(row) / (1 - unknown if unknown < 1 else 1)
        order = np.argsort(-row, kind="stable")[: self.top]
        top = [{"class": self.names[k], "probability": float(row[k])} for k in order]
        if not self.may_abstain:
            return {"top": top}
        return {"top": top, "answer": "unknown" if unknown > 0 else top[0]["class"]}


def answered(parts):
    """Returns the paths of the photos that have a line in a complete part."""
    paths = set()
    for part in parts:
        with part.open(encoding="utf-8") as lines:
            paths.update(json.loads(line)["path"] for line in lines)
    return paths


def write_part(path, lines):
    """Writes a part under another name first, so that it is complete or absent."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("export", help="an ONNX file of keras-vit export")
    parser.add_argument("photos", help="a folder or URL of photos")
    parser.add_argument("answers", type=pathlib.Path, help="the folder of the parts")
    parser.add_argument("--workers", type=int, default=1, help="processes with the model")
    parser.add_argument("--num-gpus", type=float, default=0, help="GPUs of each worker")
    parser.add_argument("--batch-size", type=int, default=32, help="photos that a worker holds")
    parser.add_argument("--part-size", type=int, default=10_000, help="lines of a part")
    parser.add_argument("--top", type=int, default=5, help="classes of a photo")
    given = parser.parse_args()
    given.answers.mkdir(parents=True, exist_ok=True)
    parts = sorted(given.answers.glob("part-*.jsonl"))
    numbers = itertools.count(int(parts[-1].stem.removeprefix("part-")) + 1 if parts else 0)
    done = answered(parts)
    filesystem, folder = open_address(given.photos)
    entries = filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
    files = sorted(entry.path for entry in entries if entry.is_file)
    missing = [path for path in files if path not in done]
    print(f"{len(files):,} photos, {len(missing):,} of them without an answer")
    if not missing:
        return
    ray.init()
    lines = (
        ray.data.read_binary_files(missing, filesystem=filesystem, include_paths=True)
        .map(decode)
        .map_batches(
            Classifier,
            fn_constructor_args=[*open_address(given.export), given.num_gpus, given.top],
            batch_size=given.batch_size,
            compute=ray.data.ActorPoolStrategy(size=given.workers),
            num_cpus=1,
            num_gpus=given.num_gpus,
            # A lost worker starts again and repeats its batches. Ray would also decode in the
            # workers if the options of both were equal.
            max_restarts=-1,
            max_task_retries=-1,
        )
    )
    for batch in lines.iter_batches(batch_size=given.part_size):
        write_part(given.answers / f"part-{next(numbers):06d}.jsonl", batch["line"])


if __name__ == "__main__":
    main()
