"""What a run takes from its weights: range of the pixels, GELU, image size, head."""

import json
import types

import keras
import numpy as np
import pytest
import runs
from PIL import Image

import keras_vit
from keras_vit.checkpoints.catalogue import RELEASED
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.checkpoints.formats import write_safetensors
from keras_vit.checkpoints.save import stored_arrays
from keras_vit.classifier import save_classifier
from keras_vit.command_line import main
from keras_vit.configs import IMAGE_SIZES
from keras_vit.opening import open_model
from keras_vit.preprocessing import NORMALIZATIONS, Preprocessing, value_range
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation import predictions as evaluation_predictions
from keras_vit.training.run.finetune import finetune, plan_of as planned
from keras_vit.training.settings import FineTuning
from keras_vit.training.trainer.devices import Place
from keras_vit.utils.files import UNFINISHED
from makers import tiny_config, write_classes

pytest.importorskip("safetensors.numpy")

IMAGENET = value_range(*NORMALIZATIONS["imagenet"])
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NAMES = ("cat", "dog", "fox")
FAST = {"steps": 2, "batch_size": 3, "accumulate": 1, "augmentation": "none", "validation": 0.34}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Random pictures of 8x8 pixels, `{train,test}/CLASS/*.png`: three and two of each."""
    folder, counts = tmp_path_factory.mktemp("photos"), {"train": 3, "test": 2}
    return write_classes(folder, counts, dict.fromkeys(NAMES), size=(8, 8))


def built(config=None, classes=3, size=8):
    keras.utils.set_random_seed(0)
    config = config or tiny_config(mlp_dim=32, gelu="exact")
    model = keras_vit.build(config, input_shape=(size, size, 3), classes=classes)
    for weight in model.trainable_weights:
        if "head" in weight.path or "predictions" in weight.path:
            weight.assign(np.random.standard_normal(weight.shape))
    return model


@pytest.fixture(scope="module")
def timm(tmp_path_factory):
    """A folder as of DeiT: ImageNet's mean and deviation, exact GELU, class names."""
    folder = tmp_path_factory.mktemp("timm")
    write_safetensors(folder / "model.safetensors", stored_arrays(built(), TIMM))
    config = {
        "architecture": "deit_tiny_patch16_224",
        "num_classes": 3,
        "model_args": {"num_heads": 2, "act_layer": "gelu"},
        "label_names": list(NAMES),
        "pretrained_cfg": {
            "mean": MEAN, "std": STD, "interpolation": "bilinear", "crop_pct": 1.0,
            "crop_mode": "squash", "input_size": [3, 8, 8],
        },
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier's folder that has ImageNet's mean and deviation."""
    folder = tmp_path_factory.mktemp("runs") / "pets"
    save_classifier(folder, built(), NAMES, Preprocessing((8, 8), "resize", IMAGENET))
    return folder


@pytest.fixture(scope="module", params=["timm", "classifier"])
def imagenet_weights(request):
    return request.getfixturevalue(request.param)


def expected_input(file):
    """A picture in ImageNet's range, pixel by pixel."""
    pixels = np.asarray(Image.open(file))
    result = np.zeros(pixels.shape, "float32")
    for row, column, channel in np.ndindex(pixels.shape):
        value = pixels[row, column, channel] / 255
        result[row, column, channel] = (value - MEAN[channel]) / STD[channel]
    return result


def is_one_of(image, files):
    return any(np.allclose(image, expected_input(file), atol=1e-5) for file in files)


@pytest.fixture(scope="module")
def trained(imagenet_weights, photos, tmp_path_factory):
    """A run, its lines and folder, and the batches that models got in training and evaluation."""
    batches = {"training": [], "evaluation": []}
    predict, make_batches = evaluation_predictions.predict_batch, Place.batches

    def recorded_predict(model, images, **options):
        batches["evaluation"].append(np.array(images))
        return predict(model, images, **options)

    def recorded_batches(place, *arguments, **options):
        made = make_batches(place, *arguments, **options)
        batches["training"] += [np.array(images) for images, _ in made.take(1)]
        return made

    lines, output = [], tmp_path_factory.mktemp("trained") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation_predictions, "predict_batch", recorded_predict)
        patch.setattr(Place, "batches", recorded_batches)
        settings = FineTuning(weights=str(imagenet_weights), **FAST)
        done = finetune(DataSpec(str(photos)), output, settings, log=lines.append)
    return types.SimpleNamespace(
        batches=batches, classifier=done.classifier, text="\n".join(lines), folder=output
    )


@pytest.mark.slow
def test_images_reach_the_model_in_the_range_of_its_weights(trained, photos):
    for part, files in (
        ("training", list((photos / "train").rglob("*.png"))),
        ("evaluation", list(photos.rglob("*.png"))),
    ):
        images = np.concatenate(trained.batches[part])
        assert len(images) >= 3
        assert all(is_one_of(image, files) for image in images), part


@pytest.mark.slow
def test_a_classifier_has_the_range_and_gelu_of_its_weights(trained, imagenet_weights):
    classifier, opened = trained.classifier, open_model(imagenet_weights)
    assert classifier.preprocessing == opened.description.preprocessing
    assert classifier.preprocessing.value_range == IMAGENET
    assert classifier.model.get_layer("encoder_block_0").gelu == "exact"


def file_of(weights):
    return "config.json" if weights.name.startswith("timm") else "description.json"


@pytest.mark.slow
def test_the_recipe_has_the_facts_of_the_weights(trained, imagenet_weights):
    recipe = trained.classifier.recipe
    assert recipe["facts"]["pixels"]["from"] == file_of(imagenet_weights)
    assert recipe["facts"]["gelu"]["value"] == "exact"
    assert recipe["preprocessing"]["value_range"] == [list(side) for side in IMAGENET]


@pytest.mark.slow
def test_the_plan_and_the_card_say_the_range_of_the_weights(trained, imagenet_weights):
    text, file = trained.text, file_of(imagenet_weights)
    assert "-2.118 to 2.249" in text
    assert f"by channel, ImageNet's mean and deviation ({file})" in text
    assert "8x8 (as in the weights)" in text
    card = (trained.folder / "README.md").read_text()
    assert "ImageNet's mean and deviation" in card


FACTS = ["--num-heads", "2", "--gelu", "exact"]


@pytest.fixture
def bare(timm, tmp_path):
    """Weights without their config.json."""
    path = tmp_path / "bare.safetensors"
    path.write_bytes((timm / "model.safetensors").read_bytes())
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        "finetune --weights BARE --data PHOTOS --output OUT",
        "sweep --weights BARE --data PHOTOS --output OUT",
        "few-shot BARE --data PHOTOS --output OUT",
        "inspect BARE PHOTOS --output OUT",
        "convert BARE OUT",
    ],
)
def test_an_unknown_range_stops_a_command_before_it_writes(command, bare, photos, tmp_path, capsys):
    paths = {"BARE": bare, "PHOTOS": str(photos), "OUT": str(tmp_path / "out")}
    arguments = [paths.get(word, word) for word in command.split()]
    assert main([*arguments, *FACTS]) == 2
    error = capsys.readouterr().err
    assert "--normalization half" in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bare.safetensors"]


def test_weights_alone_are_converted_without_a_range(bare, tmp_path):
    assert main(["convert", bare, str(tmp_path / "out.npz"), *FACTS]) == 0


def test_a_range_that_is_given_is_in_the_plan(bare, photos, tmp_path, capsys):
    given = ["--weights", bare, "--data", str(photos), "--output", str(tmp_path / "out")]
    assert main(["finetune", *given, *FACTS, "--dry-run", "--normalization", "imagenet"]) == 0
    printed = capsys.readouterr().out
    assert "(--normalization imagenet)" in printed
    assert "new (the weights do not name their classes)" in printed


def plan_of(weights, photos, tmp_path, **settings):
    given = FineTuning(weights=str(weights), **{**FAST, **settings})
    return runs.plan_of(photos, tmp_path / "out", given)


def model_of(plan):
    return runs.build_model(plan)[0]


def saved(folder, names, config=None, size=8, **recipe):
    model = built(config, len(names), size)
    save_classifier(folder, model, names, Preprocessing((size, size)), recipe=recipe)
    return model


IMAGES = np.random.default_rng(1).normal(size=(4, 8, 8, 3)).astype("float32")
HEADS = {
    "plain": None,
    "hidden": tiny_config(mlp_dim=32, representation_size=12),
    "distilled": tiny_config(mlp_dim=32, classifier="token+distillation"),
}


@pytest.mark.parametrize("config", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize(
    ("names", "places", "reason"),
    [
        (NAMES, [0, 1, 2], "the classes are the same"),
        (("fox", "cat", "dog"), [1, 2, 0], "the classes are the same, reordered by name"),
        (
            ("fox", "cat"),
            [1, None, 0],
            "2 of 3 classes are in the weights; 1 start at zero (dog)",
        ),
    ],
    ids=["same", "reordered", "added"],
)
def test_rows_of_the_head_are_kept_by_name(names, places, reason, config, photos, tmp_path):
    source = saved(tmp_path / "weights", names, config)
    plan = plan_of(tmp_path / "weights", photos, tmp_path)
    assert plan.record.to_json()["facts"]["head"] == {"value": "keep", "from": reason}
    logits = np.array(model_of(plan)(IMAGES))
    known = [k for k, place in enumerate(places) if place is not None]
    scores = np.array(keras.ops.softmax(logits[:, known]))  # Among the classes of both.
    expected = np.array(source(IMAGES))[:, [places[k] for k in known]]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert np.ptp(scores) > 0.1
    assert not np.delete(logits, known, axis=1).any()


def test_the_head_of_a_file_of_another_code_base_is_kept_by_name(timm, photos, tmp_path):
    plan = plan_of(timm, photos, tmp_path)
    scores = keras.ops.softmax(model_of(plan)(IMAGES))
    np.testing.assert_allclose(scores, built()(IMAGES), atol=1e-6)


@pytest.mark.slow
def test_a_new_head_is_made_where_no_class_is_known_or_on_request(photos, tmp_path):
    saved(tmp_path / "letters", ("a", "b", "c"))
    plan = plan_of(tmp_path / "letters", photos, tmp_path)
    assert plan.record.to_json()["facts"]["head"]["from"].startswith("none of the 3 classes")
    assert not model_of(plan).get_layer("predictions").kernel.numpy().any()
    with pytest.raises(ValueError, match="--head new .*3 classes"):
        plan_of(tmp_path / "letters", photos, tmp_path, head="keep")
    saved(tmp_path / "same", NAMES)
    plan = plan_of(tmp_path / "same", photos, tmp_path, head="new")
    assert plan.record.to_json()["facts"]["head"] == {"value": "new", "from": "the settings"}
    saved(tmp_path / "numbers", ("0", "1", "2"), converted=True)
    plan = plan_of(tmp_path / "numbers", photos, tmp_path)
    assert plan.record.to_json()["facts"]["head"]["from"] == "the weights do not name their classes"
    plan = plan_of(tmp_path / "numbers", photos, tmp_path, head="keep")
    assert plan.head == (0, 1, 2)


@pytest.mark.slow
def test_the_image_size_is_that_of_the_weights_but_384_for_224(photos, tmp_path):
    config = tiny_config(patch_size=32, mlp_dim=32)

    def size_of(folder, **settings):
        plan = plan_of(tmp_path / folder, photos, tmp_path, **settings)
        return plan.settings.image_size, plan.record.to_json()["facts"]["image_size"]["from"]

    saved(tmp_path / "small", NAMES)
    saved(tmp_path / "pretrained", NAMES, config, 224, job="pretrain")
    saved(tmp_path / "tuned", NAMES, config, 224, job="finetune")
    assert size_of("small") == ((8, 8), "as in the weights")
    higher = "the paper's higher resolution, for weights of 224x224 pixels"
    assert size_of("pretrained") == ((384, 384), higher)
    assert size_of("tuned") == ((224, 224), "as in the weights")
    assert size_of("small", image_size=16) == ((16, 16), "the settings")
    recipe = FineTuning.from_recipe("CIFAR-10", weights=str(tmp_path / "small"))
    size = {"value": [384, 384], "from": "CIFAR-10"}
    plan = runs.plan_of(photos, tmp_path / "out", recipe)
    assert plan.record.to_json()["facts"]["image_size"] == size


def test_the_released_classifier_is_fine_tuned_at_its_own_size(photos, tmp_path):
    plan = plan_of("cifar10", photos, tmp_path)
    side = IMAGE_SIZES[RELEASED[0].model]
    assert plan.settings.image_size == (side, side)
    assert "cat, dog" not in plan.record.to_json()["facts"]["head"]["from"]
    assert plan.head == (3, 5, None)  # cat, dog; a fox is new.


def test_a_file_alone_gives_the_model(timm, photos, tmp_path):
    bare = tmp_path / "bare.safetensors"
    bare.write_bytes((timm / "model.safetensors").read_bytes())
    facts = {"normalization": "imagenet", "gelu": "exact"}
    plan = plan_of(bare, photos, tmp_path, num_heads=2, **facts)
    assert (plan.config.width, plan.config.num_heads) == (16, 2)
    settled = plan_of(bare, photos, tmp_path, model=tiny_config(mlp_dim=32), **facts)
    assert settled.config.num_heads == 2


def test_a_resumed_run_keeps_the_origin_of_its_facts(classifier, photos, tmp_path):
    settings = FineTuning(weights=str(classifier), **FAST)
    started = runs.run_of(photos, tmp_path / "out", settings)
    plan = planned(started)
    started.add(plan.record)
    recipe = tmp_path / "out.partial" / UNFINISHED
    recipe.parent.mkdir(parents=True)
    recipe.write_text(json.dumps(started.record.to_json()))
    again = planned(runs.run_of(None, tmp_path / "out", FineTuning(), resume=True))
    assert again.preprocessing == plan.preprocessing
    facts = json.dumps(plan.record.to_json()["facts"])
    assert json.dumps(again.record.to_json()["facts"]) == facts
    assert again.description == plan.description
    assert again.head == plan.head
