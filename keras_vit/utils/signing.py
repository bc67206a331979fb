"""Signatures of folders and files with a key, by OpenSSF's `model-signing`, without a network."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import shutil
import tempfile

from keras_vit.utils.files import atomic_write, check_file
from keras_vit.utils.optional_packages import import_optional
from keras_vit.utils.safe_text import for_line

SIGNATURE = ".sig"  # The end of a signature's name, a Sigstore bundle in JSON.


def signature_of(path: str | os.PathLike) -> pathlib.Path:
    """Returns the default path of a signature: PATH.sig, beside the folder or file."""
    path = pathlib.Path(os.path.abspath(path))
    return path.with_name(path.name + SIGNATURE)


def sign(
    path: str | os.PathLike,
    key: str | os.PathLike,
    signature: str | os.PathLike | None = None,
    *,
    overwrite: bool = False,
) -> pathlib.Path:
    """Signs all files of a folder, or one file, with their names.

    Args:
        path: A classifier's folder or an export.
        key: A private elliptic-curve key in PEM, without a password, as
            `openssl ecparam -name prime256v1 -genkey -noout` writes it.
        signature: The file to write; by default `signature_of(path)`.
        overwrite: Whether to replace an older signature.

    Returns:
        The path of the signature.

    Raises:
        ValueError: If there is no such path, the key cannot be read, a file is a symbolic link, or
            the signature exists.
        ImportError: If `model-signing` is not installed.
    """
    path = _existing(path)
    target = pathlib.Path(signature or signature_of(path))
    check_file(target, SIGNATURE, overwrite=overwrite)
    if target.absolute().is_relative_to(os.path.abspath(path)):
        raise ValueError(f"A signature must lie outside of what it signs. Received: {target}")
    signing = import_optional("model_signing.signing", "keras-vit sign", "sign")
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=_existing(key))
    except Exception as error:  # The library raises several types for what it reads.
        raise ValueError(
            "The key must be a private elliptic-curve key in PEM without a password (--key). "
            f"Received: {key}"
        ) from error
    try:
        with tempfile.TemporaryDirectory() as scratch:
            written = pathlib.Path(scratch) / "signature"
            config.set_hashing_config(_every_file()).sign(path, written)
            with atomic_write(target) as partial:
                shutil.copyfile(written, partial)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must be files that can be signed. {_reason(error)}") from error
    return target


def check_signature(
    path: str | os.PathLike,
    key: str | os.PathLike | None,
    signature: str | os.PathLike | None = None,
) -> str:
    """Raises an error unless all files are as they were signed; returns a line for the report.

    Args:
        path: The folder or file.
        key: The public key in PEM.
        signature: What `sign` wrote; by default `signature_of(path)`.

    Raises:
        ValueError: If a file was changed, added or removed, the signature is missing or damaged,
            or the key is another.
        ImportError: If `model-signing` is not installed.
    """
    path = _existing(path)
    signature = pathlib.Path(signature or signature_of(path))
    if not signature.is_file():
        raise ValueError(
            f"There must be a signature, which keras-vit sign writes. No such file: {signature}"
        )
    if key is None:
        raise ValueError(
            "A signature needs the signer's public key (--key pub.pem), from another place than "
            f"the files, as who changes them can sign them too. Received: {signature} alone"
        )
    verifying = import_optional("model_signing.verifying", "keras-vit verify --signature", "sign")
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=_existing(key))
    except Exception as error:
        raise ValueError(
            f"The key must be a public elliptic-curve key in PEM (--key). Received: {key}"
        ) from error
    try:
        config.set_hashing_config(_every_file()).verify(path, signature)
    except Exception as error:
        raise ValueError(
            f"{path} must be as it was signed in {signature} with the key of {key}. "
            f"Received: {_differences(str(error)) or _reason(error)}"
        ) from error
    return f"Signature: every file is as it was signed with the key of {key}."


def _every_file():
    """The rule of the library for which files count; by default not .gitignore and the like."""
    hashing = import_optional("model_signing.hashing", "keras-vit sign", "sign")
    return hashing.Config().set_ignored_paths(paths=[], ignore_git_paths=False)


def _existing(path):
    path = pathlib.Path(path)
    if not path.exists():
        raise ValueError(f"There must be a file or folder. Not found: {path}")
    return path


_DIFFERENCES = {
    "changed": r"Hash mismatch for '(.*)': Expected",
    "new": "Extra files found in model '.*?': (.*)",
    "missing": "Missing files in model '.*?': (.*)",
}


def _differences(text):
    """Names of the files that `model-signing` reports, without its digests; "" for other errors."""
    prefix, _, listed = text.partition("Signature mismatch: ")
    if prefix or not listed:
        return ""
    messages = ast.literal_eval(listed)
    parts = []
    for kind, pattern in _DIFFERENCES.items():
        found = [match[1] for match in map(re.compile(pattern, re.S).match, messages) if match]
        names = [name for joined in found for name in joined.split(", ")]
        further = f" and {len(names) - 3} further" if len(names) > 3 else ""
        if names == ["."]:  # A file that is signed alone.
            parts.append("other bytes")
        elif names:
            parts.append(f"{kind} {', '.join(map(for_line, names[:3]))}{further}")
    return "; ".join(parts)


def _reason(error):
    """The first words of an error in one line; `model-signing` gives some no text."""
    return " ".join(str(error).split())[:300] or type(error).__name__
