"""Messages and names of TensorFlow Serving's REST protocol."""

from __future__ import annotations

import base64
import pathlib

from keras_vit.classifier import Classifier
from keras_vit.utils.files import model_in
from keras_vit.utils.json_files import parse_json

_SIGNATURE = "serve_bytes"


def served_name(classifier: Classifier, name: str | None = None) -> tuple[str, str]:
    """Returns name and version of a model in TensorFlow Serving's routes.

    An export in a folder of a number, such as `pets/3`, is version 3 of "pets"; any other model
    is version 1 under the name of its folder or file.

    Args:
        classifier: The classifier.
        name: Another name.

    Raises:
        ValueError: If the name cannot be part of a route.
    """
    path = (classifier.folder or pathlib.Path(classifier.model.name)).absolute()
    version = "1"
    if path.name.isdecimal() and path.parent.name and model_in(path) is None:
        path, version = path.parent, path.name
    name = name or (path.stem if path.is_file() else path.name)
    if not name or set(name) & set("/:?#%"):
        raise ValueError(
            f"The model's name (name, --name) must not hold / : ? # or %. Received: {name!r}"
        )
    return name, version


def files_of_json(body: bytes) -> tuple[list[bytes], bool]:
    """Returns the image files of a request in TensorFlow Serving's JSON.

    Args:
        body: The body of the request.

    Returns:
        Their contents, and whether the answer is by output ("inputs") instead of by image.

    Raises:
        ValueError: If it is none, or does not hold image files.
    """
    content = parse_json(body, "The request")
    if not isinstance(content, dict):
        content = {}
    signature = content.get("signature_name") or _SIGNATURE
    if signature != _SIGNATURE:
        raise ValueError(
            f'signature_name must be "{_SIGNATURE}", for image files. Received: {signature!r:.80}'
        )
    by_name = "inputs" in content
    entries = content.get("inputs" if by_name else "instances")
    if by_name and isinstance(entries, dict) and set(entries) == {"images"}:
        entries = entries["images"]
    if not isinstance(entries, list) or not entries or by_name == ("instances" in content):
        raise ValueError(
            'A request must have "instances" or "inputs", a list of image files in base64: '
            '{"instances": [{"b64": "..."}]}'
        )
    return [_file_of_entry(entry) for entry in entries], by_name


def _file_of_entry(entry):
    if isinstance(entry, dict) and set(entry) == {"images"}:
        entry = entry["images"]
    if not isinstance(entry, dict) or set(entry) != {"b64"} or not isinstance(entry["b64"], str):
        raise ValueError(
            f'An image must be {{"b64": "..."}}, a file in base64. Received: {str(entry)[:80]}'
        )
    try:
        return base64.b64decode(entry["b64"], validate=True)
    except ValueError as error:  # Also binascii.Error.
        raise ValueError(f"An image must be a file in base64. Received: {error}") from error
