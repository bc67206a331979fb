"""Official weights: what they are, and their download into Keras's cache."""

from __future__ import annotations

import os
import pathlib
import socket

import keras

from keras_vit.checkpoints.catalogue import OfficialWeights
from keras_vit.checkpoints.formats import check_npz
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.description import Description
from keras_vit.description.description_texts import APACHE
from keras_vit.preprocessing import Preprocessing

TIMEOUT = 60.0  # Seconds without a byte from the server.
_FACTS = ("pixels", "evaluation", "gelu", "norm_epsilon", "position_resize")


def describe_official(row: OfficialWeights, config: ViTConfig | BiTConfig) -> Description:
    """Returns the description of official weights; nothing is downloaded.

    Args:
        row: A row of the catalogue.
        config: The config of the model that they are for.
    """
    side = row.resolution
    return Description(
        name=row.model,
        config=config,
        input_shape=(side, side, 3),
        classes=row.classes,
        preprocessing=Preprocessing((side, side)),
        origins=dict.fromkeys(_FACTS, "the official code"),
        licence=APACHE,
    )


def download(weights: OfficialWeights) -> pathlib.Path:
    """Returns the path of an official file, downloaded if the cache has no whole copy.

    It is in the folder of `keras.utils.get_file`. At every use it is read to its end with the
    checksums of its arrays, and compared with the catalogue's hash where that is known. A copy
    that is damaged, as by a download that was killed, is removed and downloaded once more.

    Args:
        weights: A row of the catalogue.

    Raises:
        OSError: If the file cannot be downloaded; the message names the URL and the cache, for a
            file that was fetched by other means.
    """
    name, reason = f"{weights.key}.npz", ""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)  # `get_file` has none.
    try:
        for _ in range(2):
            path = pathlib.Path(
                keras.utils.get_file(
                    name,
                    weights.url,
                    cache_subdir="models",
                    file_hash=weights.sha256 or None,
                    cache_dir=os.environ.get("KERAS_HOME"),
                )
            )
            try:
                check_npz(path)
                return path
            except ValueError as error:
                reason = str(error)
                path.unlink()
    except Exception as error:  # `get_file` raises bare ones.
        reason = str(error)
    finally:
        socket.setdefaulttimeout(before)
    raise OSError(
        f"The weights {weights.key} could not be downloaded: fetch {weights.url} by other means "
        f"and put it at ~/.keras/models/{name} (or below KERAS_HOME). "
        f"Received: {' '.join(reason.split())}"
    )
