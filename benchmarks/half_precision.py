"""Writes a classifier's folder with its weights in half precision, and what that changes.

    python benchmarks/half_precision.py CLASSIFIER DATA OUTPUT

CLASSIFIER is a folder, DATA as for `keras-vit evaluate --data`. OUTPUT is the same folder with the
numbers of model.keras as float16; they are float32 again when the model is loaded.
Prints the sizes, and on all test images how many answers differ and the largest difference of a
probability.
"""

import argparse
import io
import os
import pathlib
import shutil
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import h5py
import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classifier", type=pathlib.Path)
    parser.add_argument("data")
    parser.add_argument("output", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.output.exists():
        parser.error(f"the output must be new. Received: {arguments.output}")

    shutil.copytree(arguments.classifier, arguments.output)
    halve(arguments.output / "model.keras")

    from keras_vit.opening import open_predictor
    from keras_vit.training.data import DataSpec, evaluation_batches, open_source

    models = [open_predictor(path) for path in (arguments.classifier, arguments.output)]
    images = open_source(DataSpec(arguments.data, holdout=0.0)).splits["test"]
    differing, largest, count = 0, 0.0, 0
    for batch, _ in evaluation_batches(
        images, preprocessing=models[0].preprocessing, batch_size=250
    ).as_numpy_iterator():
        before, after = (np.asarray(each.model.predict_on_batch(batch)) for each in models)
        differing += int((before.argmax(axis=1) != after.argmax(axis=1)).sum())
        largest = max(largest, float(np.abs(before - after).max()))
        count += len(batch)
    for folder in (arguments.classifier, arguments.output):
        print(f"{(folder / 'model.keras').stat().st_size / 1e6:.2f} MB  {folder}")
    print(f"{differing} of {count:,} answers differ; probabilities by at most {largest:.2g}")


def halve(path: pathlib.Path) -> None:
    """Stores the float32 numbers of a `.keras` file as float16."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, _halved(content) if name.endswith(".h5") else content)


def _halved(content):
    target = io.BytesIO()
    with h5py.File(io.BytesIO(content)) as before, h5py.File(target, "w") as after:
        after.attrs.update(before.attrs)

        def copy(name, item):
            if isinstance(item, h5py.Group):
                copied = after.require_group(name)
            else:
                values = item[()]  # NumPy rounds to the nearest; HDF5's own conversion does not.
                if values.dtype == np.float32:  # A seed's state is not.
                    values = values.astype("float16")
                copied = after.create_dataset(name, data=values)
            copied.attrs.update(item.attrs)

        before.visititems(copy)
    return target.getvalue()


if __name__ == "__main__":
    main()
