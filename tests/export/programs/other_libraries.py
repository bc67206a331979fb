"""Random models of other libraries, and their answers; run where those are installed.

    python other_libraries.py make FOLDER
    python other_libraries.py load FOLDER
    python other_libraries.py prepare FOLDER

`make` writes each model in its library's own format to FOLDER/<name>, with the images and the
answers in `answers.npz`; the models are as in the golden files. `load` reads what was converted
to FOLDER/to_<library> and writes the logits of FOLDER/images.npy to FOLDER/to_<library>.npz.
"""

import functools
import json
import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "torch"
sys.path.append(os.fspath(pathlib.Path(__file__).parents[2] / "checkpoints" / "programs"))

import any_torchvision  # noqa: F401, before what imports torchvision
import hugging_face_golden
import keras_hub
import numpy as np
import timm
import timm_golden
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from torchvision.models.vision_transformer import VisionTransformer

SIZE, PATCH, DEPTH, HEADS, WIDTH, MLP, CLASSES = 32, 8, 2, 3, 48, 96, 5


def make(folder):
    """Writes the models and their answers."""
    torch.manual_seed(0)
    np.save(folder / "images.npy", pictures(SIZE, SIZE))
    for name, (kind, fields, answer) in hugging_face_golden.MODELS.items():
        model = randomized(hugging_face_golden.build(kind, fields))
        path = folder / f"transformers, {name}"
        model.save_pretrained(path)
        answering = functools.partial(hugging_face_golden.answer_of, name, model, answer)
        write_answers(path, pictures(16, 16), answering)
    model = randomized(hugging_face_golden.build("ViTForImageClassification", {"num_labels": 3}))
    model.bfloat16().save_pretrained(folder / "bfloat16")
    write_answers(folder / "bfloat16", pictures(16, 16), logits_of(model.float()))
    for name, (known, changes) in timm_golden.MODELS.items():
        model = randomized(timm_golden.build(known, changes))
        path = folder / f"timm, {name}"
        timm.models.save_for_hf(model, path, safe_serialization=True)
        write_answers(path, pictures(16, 24), logits_of(model))
    model = randomized(VisionTransformer(SIZE, PATCH, DEPTH, HEADS, WIDTH, MLP, num_classes=5))
    (folder / "torchvision").mkdir()
    save_file(model.state_dict(), folder / "torchvision" / "model.safetensors")
    write_answers(folder / "torchvision", pictures(SIZE, SIZE), logits_of(model))
    for name, fields in {
        "KerasHub": {},
        "KerasHub without biases": dict.fromkeys(
            ("use_mha_bias", "use_mlp_bias", "use_patch_bias"), False
        ),
    }.items():
        backbone = keras_hub.models.ViTBackbone(
            image_shape=(SIZE, SIZE, 3), patch_size=PATCH, num_layers=DEPTH, num_heads=HEADS,
            hidden_dim=WIDTH, mlp_dim=MLP, **fields,
        )  # fmt: skip
        model = keras_hub.models.ViTImageClassifier(backbone, CLASSES)
        rng = np.random.default_rng(0)
        model.set_weights([rng.normal(size=weight.shape) / 6 for weight in model.weights])
        model.save_to_preset(folder / name)
        model.save(folder / name / "classifier.keras")
        model.save_weights(folder / name / "classifier.weights.h5")
        images = pictures(SIZE, SIZE)
        np.savez(folder / name / "answers.npz", images, model.predict(images, verbose=0))


def pictures(height, width):
    return np.random.default_rng(0).uniform(-1, 1, (4, height, width, 3)).astype("float32")


def randomized(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def logits_of(model):
    def answer(pixels):
        with torch.no_grad():
            found = model.eval()(pixels)
        return getattr(found, "logits", found).numpy()

    return answer


def write_answers(folder, images, answer):
    pixels = torch.tensor(images.transpose(0, 3, 1, 2))
    np.savez(folder / "answers.npz", images, answer(pixels))


def load(folder):
    """Writes the logits of what was converted."""
    images = np.load(folder / "images.npy")
    pixels = torch.tensor(images.transpose(0, 3, 1, 2))
    found = {}
    hub = transformers.AutoModelForImageClassification.from_pretrained(folder / "to_transformers")
    found["to_transformers"] = logits_of(hub)(pixels)
    # KerasHub reads folders of Hugging Face.
    task = keras_hub.models.ViTImageClassifier.from_preset(
        str(folder / "to_transformers"), num_classes=CLASSES, load_weights=True, preprocessor=None
    )
    head = hub.classifier
    task.output_dense.set_weights([head.weight.detach().numpy().T, head.bias.detach().numpy()])
    found["to_keras_hub"] = task.predict(images, verbose=0)
    np.savez(folder / "loaded.npz", **found)


def prepare(folder):
    """Writes how image processors prepare the pictures, and how they read their files of ours."""
    images = [Image.fromarray(array) for array in np.load(folder / "pictures.npz").values()]

    def write(path, prepare):
        np.savez(f"{path}.npz", *(np.asarray(prepare(image)) for image in images))

    def of_hugging_face(processor):
        return lambda image: processor(image, return_tensors="np")["pixel_values"][0]

    for kind in ("ViT", "DeiT", "CLIP", "Bit", "Siglip"):
        path = folder / f"theirs_{kind}"
        processor = getattr(transformers, f"{kind}ImageProcessorPil")()
        processor.save_pretrained(path)
        write(path, of_hugging_face(processor))
    seen = {}
    for name in timm.list_pretrained(["vit_*", "deit*", "flexivit*"]):
        wanted = timm.get_pretrained_cfg(name).to_dict()
        if max(wanted["input_size"]) <= 400:
            size, way = max(wanted["input_size"]), (wanted["crop_mode"], wanted["interpolation"])
            seen[size, wanted["crop_pct"], *way] = wanted
    for number, wanted in enumerate(seen.values()):
        path = folder / f"theirs_timm_{number}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"pretrained_cfg": wanted}))
        data = timm.data.resolve_data_config(pretrained_cfg=wanted)
        write(path, timm.data.create_transform(**data))
    for path in filter(pathlib.Path.is_dir, folder.glob("ours_*")):
        processor = transformers.AutoImageProcessor.from_pretrained(path, backend="pil")
        write(path, of_hugging_face(processor))


if __name__ == "__main__":
    {"make": make, "load": load, "prepare": prepare}[sys.argv[1]](pathlib.Path(sys.argv[2]))
