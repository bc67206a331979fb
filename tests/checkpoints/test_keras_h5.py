"""`.weights.h5` is read by the layers' names, not by Keras's counters."""

import h5py
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.checkpoints.hdf5 import read_keras_h5


@pytest.fixture
def saved(model_of, checkpoint_of, tmp_path):
    """The path of a `.weights.h5` of the golden weights."""
    model = model_of("vit_token", dropout_rate=0.1)
    keras_vit.load_checkpoint(model, checkpoint_of("vit_token"))
    model.save_weights(tmp_path / "saved.weights.h5")
    return tmp_path / "saved.weights.h5"


def test_weights_of_keras_load_by_name(saved, golden, model_of):
    expected = golden("vit_token").load()
    model = model_of("vit_token")
    report = keras_vit.load_checkpoint(model, saved)
    assert report.layout == "Keras"
    np.testing.assert_allclose(array(model(expected["images"])), expected["logits"], atol=1e-4)


def test_one_dense_layer_more_does_not_shift_the_others(saved, model_of):
    # Keras calls the head "dense" here and "dense_1" there.
    model = model_of("vit_token", representation_size=48)
    with pytest.raises(ValueError, match=r"missing .*\(2\): pre_logits/0.*pre_logits/1"):
        keras_vit.load_checkpoint(model, saved)
    keras_vit.load_checkpoint(model, saved, skip="pre_logits/*")
    with h5py.File(saved) as file:
        np.testing.assert_array_equal(
            model.get_layer("predictions").kernel, file["layers/dense/vars/0"]
        )


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (2**28, "arrays declare"),
        (2**40, "'1' declares 4.00 TB .*0.00 B"),  # Keras's own guard.
    ],
)
def test_absurd_shapes_are_refused_before_memory_is_taken(size, message, saved):
    with h5py.File(saved, "a") as file:
        del file["layers/dense/vars/1"]
        file["layers/dense/vars"].create_dataset("1", (size,), "float32", chunks=True)
    with pytest.raises(ValueError, match=message):
        read_keras_h5(saved)


def test_a_truncated_file_and_another_one_are_named(saved, tmp_path):
    content = saved.read_bytes()
    saved.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_keras_h5(saved)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    with pytest.raises(ValueError, match="the group 'layers'"):
        read_keras_h5(tmp_path / "a.h5")
