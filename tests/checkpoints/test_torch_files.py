"""Files of `.safetensors` and of PyTorch."""

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.formats import read_values

safetensors_numpy = pytest.importorskip("safetensors.numpy")


@pytest.fixture
def write_safetensors(tmp_path):
    def write(arrays, name="model.safetensors"):
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        safetensors_numpy.save_file(arrays, tmp_path / name)
        return tmp_path / name

    return write


def test_a_body_without_prefix_has_its_pooler_as_pre_logits(golden, model_of, write_safetensors):
    arrays = {
        name.removeprefix("vit."): array
        for name, array in golden("hf_vit").checkpoint().items()
        if not name.startswith("classifier")
    }
    pooler = np.random.default_rng(0).normal(size=(48, 48)).astype("float32")
    arrays |= {"pooler.dense.weight": pooler, "pooler.dense.bias": pooler[0]}
    model = model_of("hf_vit", representation_size=48)
    report = keras_vit.load_checkpoint(model, write_safetensors(arrays), skip="predictions/*")
    assert report.kept == ("predictions/kernel", "predictions/bias")
    np.testing.assert_array_equal(model.get_layer("pre_logits").kernel, pooler.T)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_files_keep_their_values(dtype, golden, model_of, write_safetensors):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    arrays = {k: v.astype(dtype) for k, v in golden("timm_vit").checkpoint().items()}
    model = model_of("timm_vit")
    keras_vit.load_checkpoint(model, write_safetensors(arrays))
    np.testing.assert_array_equal(
        model.get_layer("predictions").kernel, arrays["head.weight"].T.astype("float32")
    )


def test_damaged_safetensors_are_refused(golden, write_safetensors, tmp_path):
    content = write_safetensors(golden("timm_vit").checkpoint()).read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "damaged.safetensors"
    header = 8 + int.from_bytes(content[:8], "little")
    for index in range(200):
        mutated = bytearray(content)
        if index % 2:
            mutated = mutated[: rng.integers(len(mutated))]
        else:
            mutated[rng.integers(header)] ^= 1 << rng.integers(8)
        path.write_bytes(mutated)
        try:
            arrays = open_checkpoint(path).arrays.values()
            values = list(read_values(arrays))
            assert [value.shape for value in values] == [array.shape for array in arrays]
            assert index % 2 == 0  # A letter of a name.
        except ValueError:
            pass


def test_pytorch_files_are_loaded_as_weights_alone(golden, model_of, tmp_path):
    torch = pytest.importorskip("torch")
    expected = golden("timm_vit").load()
    state = {name: torch.tensor(a) for name, a in golden("timm_vit").checkpoint().items()}
    torch.save({"state_dict": state}, tmp_path / "model.bin")
    model = model_of("timm_vit")
    keras_vit.load_checkpoint(model, tmp_path / "model.bin")
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=1e-4)
    torch.save({k: v.bfloat16() for k, v in state.items()}, tmp_path / "half.pth")
    keras_vit.load_checkpoint(model, tmp_path / "half.pth")
    np.testing.assert_array_equal(
        model.get_layer("predictions").kernel, state["head.weight"].bfloat16().float().numpy().T
    )


def test_code_in_a_pytorch_file_is_not_run(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"weights": _Malicious(tmp_path / "was_here")}, tmp_path / "model.bin")
    with pytest.raises(ValueError, match="whole state dict that weights-only loading takes"):
        open_checkpoint(tmp_path / "model.bin")
    assert not (tmp_path / "was_here").exists()


class _Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (type(self.path).touch, (self.path,))


def test_without_pytorch_its_files_say_what_to_install(monkeypatch, tmp_path):
    import sys
    import zipfile

    monkeypatch.setitem(sys.modules, "torch", None)
    with zipfile.ZipFile(tmp_path / "model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    with pytest.raises(ImportError, match=r"unlike a \.safetensors file .* needs .* torch"):
        open_checkpoint(tmp_path / "model.bin")


def test_without_the_package_safetensors_the_error_names_it(monkeypatch, write_safetensors):
    import sys

    path = write_safetensors({"a": np.zeros(2, "float32")})
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r'needs .* safetensors: pip install -e ".\[convert\]"'):
        open_checkpoint(path)
