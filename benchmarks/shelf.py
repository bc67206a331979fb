"""The shelf: published models, each opened, compared with its own library and evaluated.

    python benchmarks/shelf.py                         # The 200 names below; needs a network.
    python benchmarks/shelf.py FOLDER hf:OWNER/NAME    # Folders and names; a row each.
    python benchmarks/shelf.py --image cat.jpg --data imagenette --output shelf.jsonl

A model is opened by its name alone and predicts one image, beside transformers, timm or KerasHub on
the same pixels; with `--data` it is evaluated. Each model has a process, so that a failure is a
row, too. A row is written as soon as it is known, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from own_process import run_program

from keras_vit.reports.report import markdown_table

HEADINGS = ("name", "model", "parameters", "license", "library", "difference", "first", "accuracy")
_TOKEN = ("vit", "deit", "vit_msn", "vit_mae")  # Their pooler is another layer.

# Names that many people use, by what stands in front of them.
NAMES = {
    "hf:google/": """
        vit-base-patch16-224 vit-base-patch16-224-in21k vit-base-patch16-384 vit-base-patch32-384
        vit-base-patch32-224-in21k vit-large-patch16-224 vit-large-patch16-224-in21k
        vit-large-patch16-384 vit-large-patch32-384 vit-large-patch32-224-in21k
        vit-huge-patch14-224-in21k siglip-base-patch16-224 siglip-base-patch16-256
        siglip-base-patch16-384 siglip-base-patch16-512 siglip-base-patch16-256-multilingual
        siglip-large-patch16-256 siglip-large-patch16-384 siglip-so400m-patch14-224
        siglip-so400m-patch14-384 siglip-so400m-patch16-256-i18n siglip2-base-patch16-224
        siglip2-base-patch16-256 siglip2-base-patch16-384 siglip2-base-patch16-512
        siglip2-base-patch32-256 siglip2-large-patch16-256 siglip2-large-patch16-384
        siglip2-large-patch16-512 siglip2-so400m-patch14-224 siglip2-so400m-patch14-384
        siglip2-so400m-patch16-256 siglip2-so400m-patch16-384 siglip2-so400m-patch16-512
        siglip2-giant-opt-patch16-256 siglip2-giant-opt-patch16-384 siglip2-base-patch16-naflex
        siglip2-so400m-patch16-naflex medsiglip-448
    """,
    "hf:facebook/": """
        deit-tiny-patch16-224 deit-small-patch16-224 deit-base-patch16-224 deit-base-patch16-384
        deit-tiny-distilled-patch16-224 deit-small-distilled-patch16-224
        deit-base-distilled-patch16-224 deit-base-distilled-patch16-384 dino-vits16 dino-vits8
        dino-vitb16 dino-vitb8 vit-mae-base vit-mae-large vit-mae-huge vit-msn-small vit-msn-base
        vit-msn-large dinov2-small dinov2-base dinov2-large dinov2-giant
        dinov2-small-imagenet1k-1-layer dinov2-base-imagenet1k-1-layer
        dinov2-large-imagenet1k-1-layer dinov2-giant-imagenet1k-1-layer dinov2-with-registers-small
        dinov2-with-registers-base dinov2-with-registers-large dinov2-with-registers-giant
        dinov3-vits16-pretrain-lvd1689m dinov3-vits16plus-pretrain-lvd1689m
        dinov3-vitb16-pretrain-lvd1689m dinov3-vitl16-pretrain-lvd1689m
        dinov3-vith16plus-pretrain-lvd1689m dinov3-vit7b16-pretrain-lvd1689m
        dinov3-vitl16-pretrain-sat493m dinov3-convnext-tiny-pretrain-lvd1689m ijepa_vith14_1k
        ijepa_vith14_22k ijepa_vith16_1k ijepa_vitg16_22k metaclip-b32-400m metaclip-b16-fullcc2.5b
        metaclip-l14-fullcc2.5b metaclip-h14-fullcc2.5b
    """,
    "hf:openai/": """
        clip-vit-base-patch32 clip-vit-base-patch16 clip-vit-large-patch14
        clip-vit-large-patch14-336
    """,
    "hf:laion/": """
        CLIP-ViT-B-32-laion2B-s34B-b79K CLIP-ViT-B-16-laion2B-s34B-b88K
        CLIP-ViT-L-14-laion2B-s32B-b82K CLIP-ViT-H-14-laion2B-s32B-b79K
        CLIP-ViT-g-14-laion2B-s12B-b42K CLIP-ViT-bigG-14-laion2B-39B-b160k
    """,
    "hf:": """
        Falconsai/nsfw_image_detection nateraw/vit-age-classifier trpakov/vit-face-expression
        dima806/facial_emotions_image_detection dima806/fairface_age_image_detection
        rizvandwiki/gender-classification AdamCodd/vit-base-nsfw-detector
        umm-maybe/AI-image-detector Organika/sdxl-detector prithivMLmods/Deep-Fake-Detector-v2-Model
        prithivMLmods/Age-Classification-SigLIP2 prithivMLmods/Gender-Classifier-Mini
        prithivMLmods/Augmented-Waste-Classifier-SigLIP2
        prithivMLmods/Alphabet-Sign-Language-Detection prithivMLmods/deepfake-detector-model-v1
        prithivMLmods/Food-101-93M prithivMLmods/Fire-Detection-Siglip2
        Ateeqq/ai-vs-human-image-detector strangerguardhf/nsfw_image_detection nateraw/food
        nateraw/vit-base-beans microsoft/beit-base-patch16-224 microsoft/rad-dino
        StanfordAIMI/dinov2-base-xray-224
    """,
    "kaggle://keras/": """
        dinov2/keras/dinov2_small dinov2/keras/dinov2_base dinov2/keras/dinov2_with_registers_base
        dinov3/keras/dinov3_vit_small_lvd1689m dinov3/keras/dinov3_vit_small_plus_lvd1689m
        dinov3/keras/dinov3_vit_base_lvd1689m dinov3/keras/dinov3_vit_large_lvd1689m
        siglip/keras/siglip_base_patch16_224 siglip/keras/siglip_so400m_patch14_384
        siglip/keras/siglip2_base_patch16_224 siglip/keras/siglip2_so400m_patch16_384
        clip/keras/clip_vit_base_patch16 clip/keras/clip_vit_base_patch32
        clip/keras/clip_vit_large_patch14 vit/keras/vit_base_patch16_224_imagenet
        vit/keras/vit_large_patch16_384_imagenet
    """,
    "hf:timm/": """
        vit_base_patch16_224.augreg2_in21k_ft_in1k vit_base_patch16_224.augreg_in21k_ft_in1k
        vit_base_patch16_224.augreg_in21k vit_base_patch16_224.augreg_in1k
        vit_base_patch16_224.orig_in21k_ft_in1k vit_base_patch16_224.mae vit_base_patch16_224.dino
        vit_base_patch16_224.sam_in1k vit_base_patch16_224_miil.in21k_ft_in1k
        vit_base_patch8_224.augreg_in21k_ft_in1k vit_base_patch16_384.augreg_in21k_ft_in1k
        vit_base_patch32_224.augreg_in21k_ft_in1k vit_base_patch32_384.augreg_in21k_ft_in1k
        vit_tiny_patch16_224.augreg_in21k_ft_in1k vit_tiny_patch16_384.augreg_in21k_ft_in1k
        vit_small_patch16_224.augreg_in21k_ft_in1k vit_small_patch16_384.augreg_in21k_ft_in1k
        vit_small_patch32_224.augreg_in21k_ft_in1k vit_large_patch16_224.augreg_in21k_ft_in1k
        vit_large_patch16_384.augreg_in21k_ft_in1k deit_tiny_patch16_224.fb_in1k
        deit_small_patch16_224.fb_in1k deit_base_patch16_224.fb_in1k
        deit_base_distilled_patch16_224.fb_in1k deit3_small_patch16_224.fb_in22k_ft_in1k
        deit3_base_patch16_224.fb_in22k_ft_in1k deit3_large_patch16_384.fb_in22k_ft_in1k
        flexivit_small.1200ep_in1k flexivit_base.1200ep_in1k vit_small_patch14_dinov2.lvd142m
        vit_base_patch14_dinov2.lvd142m vit_large_patch14_dinov2.lvd142m
        vit_small_patch14_reg4_dinov2.lvd142m vit_base_patch14_reg4_dinov2.lvd142m
        vit_large_patch14_reg4_dinov2.lvd142m vit_small_patch16_dinov3.lvd1689m
        vit_small_plus_patch16_dinov3.lvd1689m vit_base_patch16_dinov3.lvd1689m
        vit_large_patch16_dinov3.lvd1689m vit_huge_plus_patch16_dinov3.lvd1689m
        vit_base_patch16_dinov3_qkvb.lvd1689m vit_tiny_patch16_dinov3_qkvb.eupe_lvd1689m
        vit_base_patch16_dinov3_qkvb.eupe_lvd1689m vit_base_patch16_lingbot.robbyant
        vit_base_patch16_clip_224.openai vit_base_patch16_clip_224.openai_ft_in1k
        vit_base_patch16_clip_224.laion2b_ft_in12k_in1k
        vit_base_patch32_clip_224.laion2b_ft_in12k_in1k
        vit_large_patch14_clip_224.openai_ft_in12k_in1k
        vit_large_patch14_clip_336.openai_ft_in12k_in1k vit_base_patch16_siglip_224.webli
        vit_base_patch16_siglip_224.v2_webli vit_base_patch16_siglip_384.v2_webli
        vit_so400m_patch14_siglip_384.webli vit_so400m_patch16_siglip_384.v2_webli
        vit_so150m2_patch16_reg1_gap_256.sbb_e200_in12k_ft_in1k
        vit_mediumd_patch16_reg4_gap_256.sbb2_e200_in12k_ft_in1k
        vit_betwixt_patch16_reg4_gap_256.sbb2_e200_in12k_ft_in1k
        vit_little_patch16_reg4_gap_256.sbb_in1k vit_base_patch16_radio_v3.c_radio
        eva_large_patch14_196.in22k_ft_in22k_in1k eva_large_patch14_336.in22k_ft_in22k_in1k
        eva_giant_patch14_224.clip_ft_in1k eva02_base_patch14_448.mim_in22k_ft_in22k_in1k
        vit_pe_core_base_patch16_224.fb
    """,
}


def names() -> list[str]:
    """Returns the names of the list."""
    return [start + name for start, text in NAMES.items() for name in text.split()]


def check(name: str, image: str | None) -> dict:
    """Returns the row of a model: what it is, and how far its answers are from its library's.

    Args:
        name: Anything that `keras_vit.load_classifier` takes, also without names of classes.
        image: An image file; by default smooth random colours.
    """
    from keras_vit.hub.repositories import repository_folder
    from keras_vit.images.transcoding import read_image
    from keras_vit.models.outputs import array_of
    from keras_vit.opening import open_model
    from keras_vit.preprocessing import Preprocessing

    opened = open_model(name)
    description = opened.description
    model = opened.model()
    rng = np.random.default_rng(0)
    photo = read_image(image) if image else rng.integers(0, 256, (240, 320, 3), "uint8")
    preprocessing = description.preprocessing or Preprocessing(description.image_size)
    pixels = np.asarray(preprocessing(photo[None]), "float32")
    answers = array_of(model(pixels))
    folder = repository_folder(opened.source) or pathlib.Path(name)
    library, expected = answer_of_library(folder, pixels, description)
    difference = np.abs(answers - expected).max() / np.abs(expected).max()
    return {
        "model": description.name,
        "parameters": f"{model.count_params():,}",
        "license": description.license,
        "library": library,
        "difference": f"{difference:.1e}",
        "first": "same" if answers.argmax() == expected.argmax() else "another",
    }


def answer_of_library(folder: pathlib.Path, pixels: np.ndarray, description):
    """Returns the library that a folder is of, and its probabilities or features.

    Args:
        folder: The folder with `config.json`.
        pixels: A prepared image, `(1, H, W, 3)`.
        description: The model's description.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if "class_name" in config:
        return "KerasHub", _of_keras_hub(folder, pixels)
    import torch

    given = torch.tensor(pixels.transpose(0, 3, 1, 2))
    with torch.no_grad():
        if "architecture" in config:
            library, answers = "timm", _of_timm(folder, given)
        else:
            library, answers = "transformers", _of_transformers(folder, config, given)
    answers = answers.numpy().astype("float64")
    if not description.classes:
        return library, answers
    if description.labels.is_multilabel:
        return library, 1 / (1 + np.exp(-answers))
    exponentials = np.exp(answers - answers.max())
    return library, exponentials / exponentials.sum()


def _of_keras_hub(folder, pixels):
    import keras_hub

    model = keras_hub.models.Backbone.from_preset(str(folder))
    answers = np.asarray(getattr(model, "vision_encoder", model)(pixels))
    return answers[:, 0] if answers.ndim == 3 else answers


def _of_timm(folder, given):
    import timm

    return timm.create_model(f"local-dir:{folder}", pretrained=True).eval()(given)


def _of_transformers(folder, config, given):
    import transformers

    kind = getattr(transformers, config["architectures"][0])
    model = kind.from_pretrained(folder).eval()
    if "Classification" in kind.__name__:
        return model(given).logits
    tower = getattr(model, "vision_model", getattr(model, "vit", model))
    outputs = tower(given)
    if config["model_type"] == "ijepa":
        return outputs.last_hidden_state.mean(1)
    if config["model_type"] in _TOKEN:
        return outputs.last_hidden_state[:, 0]
    return outputs.pooler_output


def evaluate(name: str, data: str) -> str:
    """Returns the accuracy of a model on a folder of labelled images, as `evaluate` prints it."""
    with tempfile.TemporaryDirectory() as folder:
        start = "from keras_vit.command_line import main; main()"
        command = [sys.executable, "-c", start, "evaluate", name, "--data", data]
        done = subprocess.run(
            [*command, "--output", f"{folder}/result"], capture_output=True, text=True
        )
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["failed"])[-1]
        lines = [line for line in done.stdout.splitlines() if "top-1" in line.lower()]
        return lines[0].strip() if lines else "no top-1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="folders or names (default: the list)")
    parser.add_argument("--image", help="an image file")
    parser.add_argument("--data", help="labelled images, for an accuracy")
    parser.add_argument("--output", default="shelf.jsonl", help="the rows; a second call goes on")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(check(arguments.models[0], arguments.image)))
        return
    output = pathlib.Path(arguments.output)
    lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    rows = {row["name"]: row for row in map(json.loads, lines)}
    for name in arguments.models or names():
        if name in rows:
            continue
        more = ["--image", arguments.image] if arguments.image else []
        row = {"name": name}
        try:
            row |= run_program(__file__, "--one", name, *more)
            if arguments.data:
                row["accuracy"] = evaluate(name, arguments.data)
        except RuntimeError as error:
            row["model"] = (str(error).strip().splitlines() or ["failed"])[-1][:300]
        rows[name] = row
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(name, row.get("difference") or row["model"], flush=True)
    table = [[row.get(heading, "") for heading in HEADINGS] for row in rows.values()]
    print("\n" + markdown_table([HEADINGS, *table]))


if __name__ == "__main__":
    main()
