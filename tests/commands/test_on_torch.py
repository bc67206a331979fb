"""Commands, and what Keras exports, on PyTorch; started by tests/test_backends.py."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.catalogue import RELEASED

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="on PyTorch"),
]


def test_images_are_predicted_and_evaluated(command, tiny, colors, tmp_path):
    (folder,) = (weights.folder for weights in RELEASED if "mini4" in weights.folder.name)
    images = sorted((folder / "samples").iterdir())[:6]
    predicted = command("predict", folder, *images, "--top", 3, "--format", "json")
    evaluated = command("evaluate", tiny, "--data", colors, "--output", tmp_path / "report")
    assert predicted.code == evaluated.code == 0, predicted.err + evaluated.err
    (tmp_path / "predicted.txt").write_text(f"{folder}\n{predicted.out}")
    (tmp_path / "evaluated.txt").write_text(f"{tiny}\n{colors}\n{evaluated.out}")


@pytest.mark.parametrize("name", ["finetune", "pretrain", "sweep", "export"])
def test_commands_that_train_or_export_name_their_backends(name, refused, tiny, colors, tmp_path):
    data = {"pretrain": ["--data", colors], "export": [tiny, "--to", "onnx"]}
    given = data.get(name, ["--data", colors, "--weights", tiny])
    known = "tensorflow" if name == "export" else "tensorflow or jax"
    line = refused(name, *given, "--output", tmp_path / "output")
    assert f"backend {known} (KERAS_BACKEND=" in line
    assert line.endswith("Received: torch")


def test_the_trainer_and_the_functions_that_export_name_theirs(tiny, tmp_path):
    trainer = keras_vit.training.Trainer(keras_vit.load_classifier(tiny).model)
    trainer.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="TensorFlow or JAX .*BACKEND=torch$"):
        trainer.fit(np.zeros((2, 8, 8, 3)), np.zeros(2), verbose=0)
    with pytest.raises(ValueError, match="TensorFlow backend, .*=torch$"):
        keras_vit.export.tflite(tiny, tmp_path / "tiny.tflite")


def test_a_program_of_pytorch_gives_the_same_answers(tiny, tmp_path):
    import torch

    model, path = keras_vit.load_classifier(tiny).model, tmp_path / "model.pt2"
    images = np.random.RandomState(1).standard_normal((3, 8, 8, 3)).astype("float32")
    model.export(path, format="torch", dynamic_shapes={0: torch.export.Dim("batch")})
    answers = torch.export.load(path).module()(torch.from_numpy(images))
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(answers.detach().numpy(), expected, atol=1e-6)
