"""Wrong input of every command: one line, exit code 2, and nothing is written."""

import os
import shlex
import shutil

import pytest

FINETUNE = (
    "finetune --data {colors} --output {tmp}/out --weights {tiny} --image-size 12 --batch-size 4 "
    "--accumulate 1 --steps 6 --learning-rate 0.05 --validation 0 "
)
FEW_SHOT = "few-shot {tiny} --data {colors} "
COMPARE = "compare {tiny} {tiny} --data {colors} --output {tmp}/out.csv "
PRETRAIN = "pretrain --data {colors} --output {tmp}/out --model ViT-Ti/16 "
IN_DATA = "outside of the data"
NO_FOLDER = "No such folder"

ROWS = [
    ("check {tmp}/none", "none"),
    ("check {colors} --weights nothing", "nothing"),
    ("check {colors} --weights cifar10 --output {colors}/out", IN_DATA),
    ("check {tmp}/several.csv --weights cifar10", "Received: multi-label data"),
    (COMPARE + "--gate 'top1 > 3'", "must be one of top_1"),
    (COMPARE + "--gate 'top_1 is good'", "< or >"),
    (COMPARE + "--gate 'coverage > -1'", "needs a classifier"),
    ("embed {tiny} {colors} --output {tmp}/out.csv", "must end in .npz"),
    ("evaluate {tmp}/none --data {colors}", NO_FOLDER),
    ("evaluate {tiny} --data {tmp}/none", "no such folder"),
    ("evaluate {tiny} --data {colors} --split dev --output {tmp}/out", "one of the data's"),
    ("evaluate {tiny} --data {colors} --batch-size 0", "batch_size must"),
    ("evaluate {tiny} --data {colors} --output {colors}/out", IN_DATA),
    (FEW_SHOT + "--shots 0", "shots must"),
    (FEW_SHOT + "--output {colors}/out", IN_DATA),
    (FEW_SHOT + "--weights imagenet", "of keras_vit.list_models()"),
    (
        "few-shot BiT-R50x1 --weights none --image-size 32 --feature token --data {colors}",
        "Vision Transformer",
    ),
    ("finetune --output {tmp}/out --weights none", "Data must be given"),
    ("finetune --data-dir photos --output {tmp}/out", "photos are --data photos"),
    (FINETUNE + "--data {tmp}/none", "no such folder"),
    (FINETUNE + "--data {tmp}/empty", "images for each class"),
    (FINETUNE + "--data {colors} --seed 4294967296", "at most 4294967295"),
    (
        "records --data {colors} --output {tmp}/r --seed 4294967296",
        "seed must",
    ),
    (FINETUNE + "--data {tmp}/one", "at least two classes"),
    (FINETUNE + "--data {tmp}/missing", "test without red"),
    (FINETUNE + "--output {colors}/out", IN_DATA),
    (FINETUNE + "--model ViT-Ti/16 --image-size 32 --weights {tmp}/text.npz", "text.npz"),
    (FINETUNE + "--model ViT-Ti/16 --weights {tmp}/none.npz", "classifier's folder"),
    (FINETUNE + "--model ViT-B/61", "Nearest: "),
    (FINETUNE + "--model ViT-Ti/16", "given model"),
    (FINETUNE + "--image-size 3", "4x4 pixels"),
    (FINETUNE + "--steps 0", "steps must be positive"),
    (FINETUNE + "--accumulate 3", "divide the batch size"),
    (FINETUNE + "--augmentation foo --dry-run", "('inception_crop'"),
    (FINETUNE + "--layers RandomErase", "Nearest: RandomErasing"),
    (FINETUNE + "--lora-rank 4", "without --train lora"),
    (FINETUNE + "--holdout 2", "holdout"),
    (FINETUNE + "--recipe 'ViT-B/16 ImageNet'", "keras-vit pretrain"),
    (FINETUNE + "--strategy multiworker", "TF_CONFIG"),
    (FINETUNE + "--coordinator host:1", "--processes and --process"),
    (FINETUNE + "--coordinator host:1 --processes 2 --process 0", "set KERAS_BACKEND=jax"),
    (FINETUNE + "--patience 3", "patience needs"),
    (FINETUNE + "--loss sigmoid --label-smoothing 0.1", "label_smoothing is for"),
    ("inspect {tiny} {tmp}/none.png --output {tmp}/out", "existing file"),
    ("inspect {tiny} {tmp}/broken.png --output {tmp}/out", "broken.png cannot be read"),
    ("inspect {tiny} {tmp}/cat.png --num-pictures 0 --output {tmp}/out", "at least 1"),
    ("inspect {tiny} --output {colors}", "new or empty"),
    ("models ViT-B16", "ViT-B/16"),
    ("models ViT-Z*", "A pattern must match a model"),
    ("models ViT-B/16 --image-size 8", "16x16 pixels"),
    ("predict {tiny} {tmp}/none.png", "existing file"),
    ("predict {tmp}/none {colors}", NO_FOLDER),
    ("predict {tiny} {tmp}/empty", "have images"),
    ("predict {tiny} {tmp}/broken.png --strict", "broken.png: "),
    ("predict {tiny} {colors} --top 0", "top must"),
    (PRETRAIN + "--target patch", "--target needs --objective masked-patches"),
    (PRETRAIN + "--objective masked-patches --augmentation light2", "without mixup"),
    (PRETRAIN + "--objective masked-patches --model R50+ViT-B/16", "without a ResNet"),
    ("recipes CIFAR", "CIFAR-10, CIFAR-100"),
    ("records --data {colors} --output {tmp}/one", "new or empty"),
    ("records --data {tmp}/none --output {tmp}/out", "folder"),
    ("records --data {colors} --output {tmp}/out --seed -1", "seed must"),
    ("records --data {colors} --output {colors}/out", IN_DATA),
    ("sweep --weights {tiny} --data {colors} --output {colors}/out", IN_DATA),
]


@pytest.fixture(scope="module")
def places(tiny, colors, tmp_path_factory):
    """Folders and files that commands refuse, and the ones that they take."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "empty").mkdir()
    shutil.copytree(colors / "train" / "red", folder / "one" / "red")
    shutil.copytree(colors, folder / "missing")
    shutil.rmtree(folder / "missing" / "test" / "red")
    shutil.copy(colors / "test" / "red" / "0.png", folder / "cat.png")
    (folder / "broken.png").write_bytes(b"no image")
    (folder / "text.npz").write_text("no archive")
    rows = [f"{path},x;y\n" for path in (folder / "missing").rglob("*.png")]
    (folder / "several.csv").write_text("".join(["path,label\n", *rows]))
    return {"tmp": folder, "tiny": tiny, "colors": colors}


@pytest.mark.parametrize(("words", "message"), ROWS, ids=range(len(ROWS)))
def test_wrong_input_is_one_line_and_nothing_is_written(words, message, refused, places):
    before = sorted(os.listdir(places["tmp"]))
    given = [word.format(**places) for word in shlex.split(words)]
    assert message in refused(*given)
    assert sorted(os.listdir(places["tmp"])) == before
    assert sorted(os.listdir(places["colors"])) == ["test", "train"]
