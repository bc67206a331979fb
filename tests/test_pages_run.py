"""The examples of README, docs/ and docstrings, run with an installed wheel.

Every code block runs, small: the tables below list what stands in for large models, official
weights and data sets, and name each line that does not run here, with the reason.
"""

import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest
from fake_hub import TOKEN, FakeHub

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = sorted(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md"))
PAGES = ("README.md", "CONTRIBUTING.md", "skills/keras-vit/SKILL.md", *DOCS)

# Pages whose tables have calls of other libraries, and ours in the next columns.
MIGRATE = ("docs/migrate.md", "docs/migrate_more.md")

TINY = "image_size=(32, 32), steps=2, batch_size=4"
TRAINED = f'weights="vit_mini4_cifar10", {TINY}'
OUTPUT = r'(?m)((finetune|pretrain_masked_patches)\("\w+", "runs/.*)\)$'
OVERWRITE = (OUTPUT, r"\1, overwrite=True)")  # Outputs are written again.

# Stand-ins, regular expressions that are applied in order to every example of every page.
STAND_INS = [
    # The plain model with weights in the package, for 32 pixels and 10 classes.
    (r"(?<![\w+-])ViT-B/16(?! ImageNet)", "ViT-Mini/4"),
    (r"R50\+ViT-L/32", "R26+ViT-S/32"),
    (r'\bimagenet21k\b|(?<=weights=")imagenet(?=")', "vit_mini4_cifar10"),
    (r'(?<=load_classifier\(")imagenet(?=")', "vit_mini4_cifar10"),
    (r"google/vit-base-patch16-224|timm/vit_small_patch16_dinov3[.]lvd1689m", "OWNER/NAME"),
    (r"--weights imagenet\b", "--weights vit_mini4_cifar10"),
    (r"(?<!14, )\b384\b", "32"),  # Not the width of a shape.
    (r"\(224, 224\)", "(32, 32)"),
    (r"ViTB16\(\)", "ViTB16(weights=None)"),
    (r"ViTS16\(include_top=False\)", "ViTS16(weights=None, include_top=False)"),
    (r"check photos(?! --weights)", "check photos --weights vit_mini4_cifar10"),
    # Data in files that the program writes.
    (r"tfds:oxford_iiit_pet|tfds:oxford_flowers102", "photos"),
    (r"\btfrecords:vit_mini4_cifar10\b", "photos"),
    (r"\bSOURCE DEST --to classifier\b", "hf_folder converted --to classifier"),
    # Few steps of few images.
    (r"STEPS = (.*), 500", r"STEPS = \1, 5"),
    (r"gradient_accumulation_steps=16\)  # 16 x 32", "gradient_accumulation_steps=2)  # 2 x 4"),
    (r"batch_size=(32|64)\b", "batch_size=4"),
    (r"split_batch\(512,(.*)most_per_replica=32", r"split_batch(8,\1most_per_replica=4"),
    (r"steps_per_epoch=500", "steps_per_epoch=10"),
    (r"ViT-S/16\", steps=10_000, batch_size=512", 'ViT-Mini/4", steps=2, batch_size=4'),
    (r'weights="runs/body"\)', f'weights="runs/body", {TINY})'),
    (r'model="ViT-L/16", batch_size=256', TRAINED),
    (r"photos IMAGES", "photos holiday"),
    (r"--group-by ('cow\S+'|animal)", r"--group-by '(\\d)[.]png'"),
    # Bounds that a few images of a model that was hardly trained can carry.
    (r"--calibration 0.1 --max", "--calibration 0.5 --max"),
    (r"--max-error 0.(02|1)\b", "--max-error 0.95"),
    (r"--calibration 0.4\b", "--calibration 0.6"),
    (r"(calibrate runs/photos --data photos) --max-error 0.95", r"\1"),
    (r"calibrate runs/june --data june", "calibrate runs/pets --data pets"),
    (r"0, 200\), (.*), 200, 300\), (.*), 300, 500\)", r"0, 30), \1, 30, 60), \2, 60, 66)"),
    (r'calibrate\("pets", max_error=0.02\)', 'calibrate("pets", max_error=0.95)'),
    (
        r'keras_vit.finetune\("photos", "runs/photos"\)',
        f'keras_vit.finetune("photos", "runs/photos", {TRAINED})',
    ),
    (r'"runs/lora", train="lora"\)', f'"runs/lora", train="lora", {TRAINED})'),
    (r"\(3, 7, 11\)", "(1, 2, 4)"),
    (r"# \(B, 768\)", "# (B, 128)"),
    (r"TrainingBatches\(\.\.\.", "TrainingBatches(**options"),
    (r"--shots 1 5 10 25", "--shots 1 5"),
    (r"--model ViT-S/16 --image-size 224", "--model ViT-Mini/4 --image-size 32"),
    (r"--model ViT-S/16 --teacher", "--model ViT-Mini/4 --teacher"),
    OVERWRITE,
]

DOCSTRING_STAND_INS = [
    (r"runs/(old|first)", "runs/pets"),
    (r"runs/new", "runs/july"),
    (r'"ViT-B/16", weights="imagenet21k"', '"ViT-Mini/4", weights="vit_mini4_cifar10"'),
    (r'"ViT-B/16", classes=10, input_shape=\(384, 384, 3\)', '"ViT-Mini/4", classes=10'),
    (r'build\("ViT-[BS]/16"', 'build("ViT-Mini/4"'),
    (r"tfds:oxford_iiit_pet|tfds:oxford_flowers102", "photos"),
    (
        r'MaskedPatches\(model="ViT-S/16", .*\)',
        'MaskedPatches(model="ViT-Mini/4", steps=2, batch_size=4)',
    ),
    (r'weights="runs/body"\)', f'weights="runs/body", {TINY})'),
    (r'FineTuning\(model="ViT-S/16", steps=500\)', f"FineTuning({TRAINED})"),
    (r'"Oxford Flowers-102", model="ViT-B/16"', f'"Oxford Flowers-102", {TRAINED}'),
    (r"sweep\((.*), settings\)", r"sweep(\1, settings, learning_rates=[0.01], seeds=[0])"),
    OVERWRITE,
]

# Flags that make a command small; they replace the flags of the page.
SMALL = "--steps 2 --batch-size 4 --accumulate 1 --image-size 32 --warmup-steps 0"
FLAGS = {
    "finetune": SMALL,
    "pretrain": SMALL,
    "sweep": f"{SMALL} --weights vit_mini4_cifar10 --learning-rates 0.01 --seeds 0",
}

# Lines that do not run here: how they begin, and the reason.
NOT_RUN = {
    "make ": "a target of the Makefile, run by hand",
    "git clone ": "another copy of this checkout",
    "python3 -m venv ": "installs packages",
    "pip install ": "installs packages",
    ".venv/bin/pre-commit ": "changes the checkout",
    "python examples/": "tests/test_examples.py runs them",
    "python benchmarks/": "a program that runs for minutes or needs other data",
    "RAY_PYTHON=": "a program that runs for minutes and needs Ray",
    "python paper/": "tests/paper/ run them",
    "python train.py": "the reader's own program",
    "TPU_NAME=": "needs a TPU",
    "gcloud ": "needs a TPU",
    "export TF_CONFIG=": "needs several machines",
    "docker ": "needs Docker",
    "keras-vit check cloth ": "photos of another package; benchmarks/field.py",
    "keras-vit check photos --weights vit_mini4_cifar10 --strict": "exit code 1; test_check.py",
    "keras-vit finetune --data photos --output runs/photos --split ": "takes files of a project",
    "keras-vit finetune --data photos --weights kaggle://": "downloads from Kaggle",
    "keras-vit export runs/pets --to html ": "downloads a runtime; tests/export/test_browser.py",
    "python examples/beam_predict.py": "needs Beam; tests/test_examples.py",
    "python examples/ray_predict.py": "needs Ray; tests/test_examples.py",
    "curl ": "needs TensorFlow Serving",
    "python -m pytest ": "runs tests",
    "keras-vit evaluate ViT-Mini/4 --weights vit_mini4_cifar10 --protocol ": "downloads ImageNet",
    "TF_ENABLE_ONEDNN_OPTS=1 python train.py": "a program of the reader",
    "for seed in 0 1 2; do": "takes hours",
    "KERAS_BACKEND=jax keras-vit ": "another backend; tests/test_backends.py",
    "export KERAS_BACKEND=jax": "several processes; tests/training/run/test_processes_of_jax.py",
    "keras-vit finetune --data photos --output /shared/photos ": "as the line above",
}

# Languages of other programs, which each page explains; "py" is the code of other libraries.
LANGUAGES_NOT_RUN = ("kotlin", "py")

# Python blocks that do not run here: a line of each, and the reason.
BLOCKS_NOT_RUN = {
    "decode_predictions(scores, top=5)": "needs ImageNet's classes; tests/test_first_tasks.py",
    "datasets.load_dataset(": "downloads data; tests/training/data/test_source.py",
    "jax.distributed.initialize(": "several processes; tests/training/run/test_processes_of_jax.py",
    "# training/settings/declared.py": "parts of two files",
    "class Count(Command)": "a part of a file",
}

# Outputs in docstrings that depend on weights or files that are not here.
OTHER_OUTPUTS = ["'frog'", "('beagle', 'boxer')", "0.9731", "(1710, 90)"]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("keras_vit", "training", "export"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, source], check=True, cwd=folder)
    (wheel,) = folder.glob("keras_vit_applications-*.whl")
    install = runpy.run_path(str(ROOT / "tests" / "check_wheel.py"))["install"]
    return install(wheel, folder / "environment")


def small(text, used):
    for old, new in STAND_INS:
        text, count = re.subn(old, new, text)
        used |= {old} if count else set()
    return text


def examples_of(page, used):
    """Returns the examples of a page; `used` receives the rows of the tables that were used."""
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.S | re.M):
        name = f"{page}, line {text[: match.start()].count(chr(10)) + 2}"
        language, block = match[1], small(match[2].replace("\\\n", " "), used)
        if language == "python":
            reason = [line for line in BLOCKS_NOT_RUN if line in block]
            used.update(reason)
            if not reason:
                examples.append((name, "python", block))
        elif language == "sh":
            examples += commands_of(name, block, used)
        else:
            known = ("text", *LANGUAGES_NOT_RUN)
            assert language in known, f"{name} is {language or 'without a language'}"
    if page in MIGRATE:  # Their tables have calls of ours, too.
        rows = [line.split("|", 2)[2] for line in text.splitlines() if line.startswith("| ")]
        for code in re.findall(r"`([^`]+)`", "\n".join(rows)):
            if code.startswith("keras_vit."):
                examples.append((f"{page}: {code}", "python", small(code, used)))
            elif code.startswith("keras-vit "):
                examples += commands_of(page, small(code, used), used)
    return examples


def commands_of(name, block, used):
    """Returns the calls of keras-vit in a block; other lines must be rows of `NOT_RUN`."""
    commands = []
    left_out = False
    for line in block.splitlines():
        line = re.sub(r"\s+# .*", "", line).strip()
        reason = [start for start in NOT_RUN if line.startswith(start)]
        if reason:
            used.update(reason)
            left_out = True
        elif line.startswith("keras-vit "):
            command = line.split()[1]
            words = f"{line.removeprefix('keras-vit ')} {FLAGS.get(command, '')}".strip()
            if command == "finetune" and "--weights" not in line:
                words += " --weights vit_mini4_cifar10"
            if command == "pretrain" and "CIFAR-10" not in line:  # These recipes have small models.
                words += " --model ViT-Mini/4"
            commands.append((f"{name}: {line}", "command", words))
            left_out = False
        else:  # The rest of a shell command of several lines.
            assert left_out or not line, f"{name}: {line} neither runs nor is in NOT_RUN"
    return commands


@pytest.fixture
def hub(tmp_path):
    """The environment of a program whose Hugging Face Hub has a classifier, OWNER/NAME."""
    server = FakeHub()
    classifier = ROOT / "keras_vit" / "weights" / "vit_mini4_cifar10"
    files = [path for path in classifier.rglob("*") if path.is_file()]
    contents = {path.relative_to(classifier).as_posix(): path.read_bytes() for path in files}
    commit = server.add("OWNER/NAME", contents)
    server.repositories["model", "OWNER/NAME"].refs["v1.0"] = commit
    cache = str(tmp_path / "hub_cache")
    yield {
        **{"HF_ENDPOINT": server.address, "HF_TOKEN": TOKEN},
        **{"HF_HUB_CACHE": cache, "HF_HUB_DISABLE_XET": "1"},
    }
    server.close()


def run(python, examples, folder, hub):
    (folder / "examples.json").write_text(json.dumps(examples))
    program = ROOT / "tests" / "programs" / "run_examples.py"
    done = subprocess.run(
        [python, program, "examples.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **hub},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, python, tmp_path, hub):
    examples = examples_of(page, set())
    if examples:
        run(python, examples, tmp_path, hub)


def docstrings():
    """Returns an example for each module that has some in its docstrings."""
    examples = []
    packages = {"keras_vit": "keras_vit"}
    packages |= {name: f"keras_vit.{name}" for name in ("training", "export")}
    for folder, package in packages.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                module = ".".join([package, *parts])
                examples.append((module, "docstring", (module, DOCSTRING_STAND_INS, OTHER_OUTPUTS)))
    return examples


@pytest.mark.slow
def test_the_examples_of_docstrings_run(python, tmp_path, hub):
    run(python, docstrings(), tmp_path, hub)


def test_nothing_is_left_out_without_need():
    used = set()
    for page in PAGES:
        examples_of(page, used)
    assert used == {*NOT_RUN, *BLOCKS_NOT_RUN, *(old for old, _ in STAND_INS)}
