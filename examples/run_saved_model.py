"""Program that classifies image files with a SavedModel, without importing keras_vit.

Arguments: the SavedModel's folder. Standard input: paths, one a line. Standard output: the
most likely class of each, a JSON list.
"""

import json
import pathlib
import sys

import tensorflow as tf


def main() -> None:
    """Reads paths and prints class names."""
    paths = sys.stdin.read().splitlines()
    model = tf.saved_model.load(sys.argv[1])
    encoded = tf.constant([pathlib.Path(path).read_bytes() for path in paths])
    answer = model.signatures["serve_bytes"](images=encoded)
    if any(name.partition(".")[0] == "keras_vit" for name in sys.modules):
        raise SystemExit("The SavedModel must run without keras_vit, which was imported.")
    print(json.dumps([name.decode() for name in answer["classes"][:, 0].numpy()]))


if __name__ == "__main__":
    main()
