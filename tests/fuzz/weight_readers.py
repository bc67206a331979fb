"""Readers of weights; see `readers.py`."""

import contextlib
import pathlib
import shutil
import zipfile

import numpy as np
from good_files import GOLDEN, Reader, classifier, model

import keras_vit
from keras_vit import export
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.formats import read_values
from keras_vit.models.opening import open_model


def _values(checkpoint):
    return [np.shape(value) for value in read_values(checkpoint.arrays.values())]


def read_weights(path, **known):
    """Opens weights with the facts about them, reads the values, and builds the model."""
    opened = open_model(path, **known)
    if opened.checkpoint is not None:
        _values(opened.checkpoint)
    if (config := opened.description.config) is not None:
        assert config.width <= 4096, "a model of this size in a small file"
    with contextlib.suppress(ValueError):
        keras_vit.load_checkpoint(model(), path)
    assert opened.description.facts
    return opened.to_model()


def converted(name, to=None, **options):
    """A reader of what `convert` writes, a file or a folder."""

    def make(folder):
        folder.mkdir()
        classifier(folder / "classifier")
        place = folder / name if pathlib.Path(name).suffix else folder / "converted"
        export.convert(folder / "classifier", place, to=to, **options)
        shutil.rmtree(folder / "classifier")
        if place.is_dir():
            for path in place.iterdir():
                path.rename(folder / path.name)
            place.rmdir()

    is_file = bool(pathlib.Path(name).suffix)
    return Reader(make, lambda folder: read_weights(folder / name if is_file else folder))


def torch_folder(folder):
    import torch
    from safetensors.numpy import load_file

    converted("x", "huggingface").make(folder)
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    state = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    torch.save(state, folder / "pytorch_model.bin")


def copied(*parts):
    """A reader of a golden file."""

    def make(folder):
        folder.mkdir()
        shutil.copy(GOLDEN.joinpath(*parts), folder)

    return Reader(make, lambda folder: _values(open_checkpoint(folder / parts[-1])))


def saved(name, save, **known):
    def make(folder):
        folder.mkdir()
        save(folder / name)

    return Reader(make, lambda folder: read_weights(folder / name, **known))


def keras_hub_folder(folder):
    """KerasHub's folder is the archive's weights and the config of its backbone."""
    folder.mkdir()
    with zipfile.ZipFile(GOLDEN / "keras_hub" / "classifier.keras") as archive:
        for name in ("config.json", "model.weights.h5", "metadata.json"):
            (folder / name).write_bytes(archive.read(name))
