"""Program that runs an export in its own runtime, in a process without the Keras model.

    python -m keras_vit.export.runtimes FORMAT EXPORT IMAGES.npz FILES.json ANSWERS.npz

IMAGES has an array `(N, H, W, C)` float32, preprocessed images, for signatures such as `serve` or
`serve_384x384`, or one of size 0: then they are preprocessed here if a signature takes no pixels,
and only then is TensorFlow imported. FILES is a list of the N image files. The program writes
`<name>/probabilities` `(N, K)` and `<name>/seconds` `(N,)`, one image a call, into ANSWERS, for
these signatures and, in a SavedModel, for signatures of files, such as `serve_bytes_384x384`. A
signature that takes uint8 pixels gets the files as Pillow decodes them, and has
`<name>/input_size`: the only size (height, width) that it takes, or zeros.
"""

import json
import pathlib
import sys
import time
from typing import Any

import numpy as np

from keras_vit.utils.fields import required

from .all_formats import FORMATS
from .pillow_pixels import read_pixels, with_size
from .texts import read_facts

# First calls compile and fill caches.
WARM_UP_CALLS = 2

# Signatures of an export: for images, for encoded files, and of the file for transformers.js. A
# SavedModel has further ones with a suffix for another image size.
SIGNATURES = ("serve", "serve_bytes")


def main(format_name, export, images, files, answers):
    """Runs every image through every signature and writes the answers."""
    files = json.loads(pathlib.Path(files).read_text(encoding="utf-8"))
    opened = FORMATS[format_name].open(pathlib.Path(export))
    signatures = opened.signatures()
    arrays: dict[str, Any] = {}
    with np.load(images, allow_pickle=False) as pixels:
        for name in pixels:
            for kind in SIGNATURES:
                key = name.replace("serve", kind, 1)
                if key in signatures:
                    signature, inputs = signatures[key], pixels[name]
                    if not inputs.size and not (signature.takes_files or signature.takes_pixels):
                        inputs = preprocessed(files, opened.texts)
                    arrays |= answers_of(key, signature, inputs, files)
    np.savez(answers, **arrays)


def preprocessed(files, texts):
    """Returns image files as the input of a model, `(N, H, W, C)` float32."""
    from keras_vit.images.decoding import apply_preprocessing

    known = required(read_facts(texts)[0].preprocessing, "preprocessing")
    return np.stack([np.asarray(apply_preprocessing(read_pixels(file), known)) for file in files])


def answers_of(name, signature, images, files):
    """Returns the arrays of one signature."""
    probabilities, seconds = [], []
    for index in [0] * WARM_UP_CALLS + list(range(len(files))):
        if signature.takes_files:
            batch = np.array([pathlib.Path(files[index]).read_bytes()], dtype=object)
        elif signature.takes_pixels:
            batch = with_size(read_pixels(files[index]), signature.input_size)[np.newaxis]
        else:
            batch = images[index : index + 1]
        start = time.perf_counter()
        probabilities.append(signature.probabilities(batch)[0])
        seconds.append((time.perf_counter() - start) / signature.images_per_call)
    arrays = {
        f"{name}/probabilities": np.stack(probabilities[WARM_UP_CALLS:]),
        f"{name}/seconds": np.array(seconds[WARM_UP_CALLS:]),
    }
    if signature.takes_pixels:
        arrays[f"{name}/input_size"] = np.array(signature.input_size or (0, 0))
    return arrays


if __name__ == "__main__":
    main(*sys.argv[1:])
