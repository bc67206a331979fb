"""The table of timm's models in docs/compatible_models.md, from a comparison of each with timm.

    python docs/timm_models.py                 # Needs pip install -e ".[peers]"; 5 minutes.
    python docs/timm_models.py --json FILE     # The results, and no table.
    python docs/timm_models.py PATTERN ...     # Prints the table of some names.

makes every Vision Transformer that timm lists with few blocks, small images and random
weights, writes the folder that timm puts on the Hub, and compares timm's answers with the answers
of the model that is built from the folder alone.
"""

import dataclasses
import json
import pathlib
import re
import sys
import tempfile

import keras
import numpy as np
import timm
import torch

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.timm import MISSING
from keras_vit.checkpoints.file_descriptions import of_file
from keras_vit.checkpoints.load import load_opened

PAGE = pathlib.Path(__file__).parent / "compatible_models.md"
START, END = "<!-- timm: docs/timm_models.py writes this table -->\n", "<!-- end of timm -->\n"

PATTERNS = (
    "vit_*", "deit*", "flexivit*", "eva*", "beit*", "aimv2*", "naflexvit*", "samvit*",
    "fastvit_mci*", "gemma4_vit*", "convnext_tiny", "convnext_small", "convnext_base",
    "convnext_large",
)  # fmt: skip
DEPTH, CLASSES = 2, 11

# Rows of the table: what the names have in common, and a pattern of the names. Those that are
# refused have the part that is missing here.
REFUSED = tuple((f"refused: no {part}", pattern) for pattern, part in MISSING)
FAMILIES = (
    *REFUSED,
    ("DINOv3, gated ones too, EUPE, LingBot", r"dinov3|lingbot"),
    ("EVA", r"^eva_"),
    ("SigLIP", r"siglip"),
    ("CLIP", r"clip"),
    ("DINOv2, TIPSv2", r"dinov2|tipsv2"),
    ("RADIO, InternViT: no last normalisation", r"radio|intern"),
    ("DeiT III", r"^deit3"),
    ("DeiT", r"^deit"),
    ("FlexiViT", r"^flexivit"),
    ("mean over the patches, with and without registers", r"gap|map"),
    ("the paper's and their sizes", r"."),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of a model: its largest difference relative to the largest answer, or the
    message that refuses it.
    """

    name: str
    difference: float = 0.0
    refusal: str = ""


def list_names() -> list[str]:
    """Returns the names that timm lists for `PATTERNS`."""
    return sorted({name for pattern in PATTERNS for name in timm.list_models(pattern)})


def family_of(name: str) -> str:
    """Returns the first of `FAMILIES` that a name belongs to."""
    return next(title for title, pattern in FAMILIES if re.search(pattern, name))


def make(name: str) -> torch.nn.Module:
    """Returns a model of timm by its name, with fewer blocks and random weights."""
    options = {} if timm.get_pretrained_cfg(name).num_classes == 0 else {"num_classes": CLASSES}
    torch.manual_seed(0)
    patch = int((re.search(r"patch(\d+)", name) or (0, 16))[1])
    # Not square, so that the grid is a fact.
    size = (2 * patch, 3 * patch)
    model = timm.create_model(name, depth=DEPTH, img_size=size, **options)
    return _randomized(model)


def _randomized(model):
    """Values by which every array matters: norms, biases, scales and tokens too."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            if parameter.ndim > 1 and "token" not in name and "pos_embed" not in name:
                parameter.copy_(noise * parameter[0].numel() ** -0.5)
            elif re.search(r"(norm|ls)\w*(\.\w+)?\.(weight|gamma)$", name):
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_(0.3 * noise)
    return model.eval()


def check(name: str) -> Result:
    """Returns whether a model's answers are timm's.

    Raises:
        AssertionError: If heads, nonlinearity or epsilon differ from timm's model.
    """
    if family_of(name).startswith("refused"):
        return Result(name, refusal=family_of(name))
    theirs = make(name)
    size = theirs.patch_embed.img_size
    images = np.random.default_rng(0).normal(size=(2, 3, *size)).astype("float32")
    with torch.no_grad():
        expected = theirs(torch.tensor(images)).numpy()
    with tempfile.TemporaryDirectory() as folder:
        timm.models.save_for_hf(theirs, folder, safe_serialization=True)
        facts = _facts(theirs)
        del theirs
        checkpoint = open_checkpoint(folder)
        arguments = of_file(checkpoint)
        found = {fact: getattr(arguments.config, fact) for fact in facts}
        assert found == facts, f"{name}: {found}, timm has {facts}"
        top = {"include_top": False, "pooling": arguments.config.pooling}
        if arguments.classes:
            top = {"classes": arguments.classes, "classifier_activation": None}
        ours = keras_vit.build(arguments.config, input_shape=(*size, 3), **top)
        load_opened(checkpoint, ours)
    answers = keras.ops.convert_to_numpy(ours(images.transpose(0, 2, 3, 1)))
    keras.backend.clear_session()
    assert answers.shape == expected.shape, (name, answers.shape, expected.shape)
    return Result(name, float(np.abs(answers - expected).max() / np.abs(expected).max()))


def _facts(model):
    """Heads, nonlinearity and epsilon of timm's model."""
    block = next(iter(getattr(model, "blocks", ())), None)
    if not hasattr(block, "mlp") or not hasattr(block, "attn") or not hasattr(block, "norm1"):
        return {}
    activation = type(block.mlp.act).__name__
    names = {"GELU": "exact", "GELUTanh": "tanh", "QuickGELU": "quick", "SiLU": "swiglu"}
    return {
        "num_heads": block.attn.num_heads,
        "gelu": names[activation],
        "norm_epsilon": block.norm1.eps,
    }


def table(results: list[Result]) -> str:
    """Returns the table of the page."""
    lines = ["| models | names | converted | largest difference, or why not |", "|---|---|---|---|"]
    for title, _ in FAMILIES:
        members = [result for result in results if family_of(result.name) == title]
        converted = [result.difference for result in members if not result.refusal]
        outcome = [f"{max(converted):.0e}"] if converted else []
        lines.append(f"| {title} | {len(members)} | {len(converted)} | {'; '.join(outcome)} |")
    done = sum(not result.refusal for result in results)
    lines.append(f"| all | {len(results)} | {done} ({done / len(results):.0%}) | |")
    return "\n".join(lines) + "\n"


def main():
    """Compares all names, or those that match the patterns given, and writes the results."""
    patterns = [] if sys.argv[1:2] == ["--json"] else sys.argv[1:]
    names = [name for name in list_names() if all(re.search(p, name) for p in patterns)]
    results = []
    for name in names:
        results.append(check(name))
        print(name, results[-1].refusal or f"{results[-1].difference:.1e}", flush=True)
    if patterns:
        print(table(results))
        return
    if sys.argv[1:]:
        rows = [dataclasses.asdict(result) for result in results]
        pathlib.Path(sys.argv[2]).write_text(json.dumps(rows), encoding="utf-8")
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{START}\n{table(results)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
