"""The public `Classifier`: opened from anything, called with photos, and what it does itself."""

import copy
import json
import pickle
import shutil

import numpy as np
import PIL.Image
import pytest

import keras_vit
from keras_vit.checkpoints.catalogue import RELEASED
from keras_vit.classifier import Classifier
from keras_vit.command_line import main
from keras_vit.images.transcoding import read_image
from keras_vit.predictor import Predictor
from keras_vit.utils.synonyms import ATTRIBUTES
from makers import write_classes

SAMPLES = RELEASED[0].folder / "samples"  # The photos of "cifar10".
PHOTO = SAMPLES / "06.jpg"
PUBLIC = [
    *("calibrate", "class_names", "evaluate", "export", "model"),
    *("predict", "preprocess", "push", "save"),
]


@pytest.fixture(scope="module")
def classifier():
    return keras_vit.load_classifier("cifar10")


@pytest.fixture
def onnx(classifier, once):
    """An export of the small classifier of the package, made once."""

    def make(folder):
        classifier.export(folder / "cifar10.onnx")
        return folder / "cifar10.onnx"

    return once("load_classifier_onnx", make)


def close(one, other):
    """Whether two answers are the same up to the rounding of float32."""
    names, values = zip(*one.top, strict=True)
    assert one.label == other.label
    assert names == tuple(name for name, _ in other.top)
    np.testing.assert_allclose(values, [value for _, value in other.top], atol=1e-5)


def test_a_classifier_has_these_public_names_alone(classifier):
    assert [name for name in dir(classifier) if not name.startswith("_")] == PUBLIC


def test_a_classifier_prints_what_it_is(classifier):
    expected = (
        "<Classifier: R7+ViT-Nano/8, 10 classes (airplane, automobile, bird, ...), photos of 32x32 "
        'pixels, may answer "unknown", the last of the model\'s 11 outputs, from cifar10>'
    )
    assert repr(classifier) == str(classifier) == expected


def test_a_photo_has_one_answer(classifier):
    answer = classifier(PHOTO)
    scores = classifier.model.predict(classifier.preprocess(PIL.Image.open(PHOTO)), verbose=0)[0]
    assert answer.label == classifier.class_names[scores[:10].argmax()]
    assert (answer.label, answer.probability) == answer.top[0]
    assert answer.probability == pytest.approx(scores[:10].max() / (1 - scores[10]), abs=1e-5)
    assert not answer.is_unknown
    assert len(answer.top) == 5


@pytest.mark.parametrize(
    "kind", [str, read_image, PIL.Image.open, lambda path: path.read_bytes()], ids=range(4)
)
def test_a_photo_is_a_path_an_array_a_picture_or_bytes(classifier, kind):
    close(classifier(kind(PHOTO)), classifier(PHOTO))


def test_several_photos_have_a_list_of_answers(classifier):
    pixels = read_image(PHOTO)
    answers = classifier([pixels, PHOTO, PIL.Image.open(PHOTO)], top=2)
    for answer in answers:
        close(answer, classifier(PHOTO, top=2))
    assert len(classifier(np.stack([pixels, pixels]))) == 2


def test_a_folder_has_a_list_of_answers(classifier, tmp_path):
    shutil.copy(PHOTO, tmp_path)
    (answer,) = classifier(tmp_path)
    close(answer, classifier(PHOTO))


def test_a_photo_that_is_none_of_the_classes_is_unknown(classifier):
    noise = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), np.uint8)
    unknown = [answer for answer in classifier(noise) if answer.is_unknown]
    assert unknown
    for answer in unknown:
        name, probability = answer.top[0]
        assert (answer.label, answer.probability) == ("unknown", probability)
        assert repr(answer).endswith(f": unknown ({probability:.2f} {name})>")


def test_a_photo_that_cannot_be_read_is_an_error_of_a_call_and_a_line_of_predict(
    classifier, tmp_path
):
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a\.jpg cannot be classified: ") as error:
        classifier(tmp_path / "a.jpg")
    assert "\n" not in str(error.value)
    (answer,) = classifier.predict(tmp_path / "a.jpg")
    assert answer.error
    assert (answer.label, answer.probability, answer.top) == (None, None, [])


def test_a_saved_classifier_gives_the_same_answers(classifier, tmp_path):
    saved = classifier.save(tmp_path / "folder")
    again = keras_vit.load_classifier(tmp_path / "folder")
    photos = sorted(SAMPLES.iterdir())[:4]
    assert again(photos) == saved(photos) == classifier(photos)
    assert repr(again) == repr(classifier).replace("from cifar10", f"from {tmp_path / 'folder'}")


def test_a_saved_classifier_has_the_files_of_the_one_it_was_loaded_from(classifier, tmp_path):
    classifier.save(tmp_path / "folder")
    names = {path.name for path in RELEASED[0].folder.iterdir()}
    assert {path.name for path in (tmp_path / "folder").iterdir()} == names
    for name in ("README.md", "history.csv", "classes.txt", "samples/00.jpg"):
        saved = (tmp_path / "folder" / name).read_bytes()
        assert saved == (RELEASED[0].folder / name).read_bytes()
    recipes = [json.loads((folder / "recipe.json").read_text()) for folder in (
        tmp_path / "folder", RELEASED[0].folder
    )]  # fmt: skip
    assert recipes[0] == recipes[1]


def test_another_classifier_is_replaced_only_if_asked(classifier, tmp_path):
    classifier.save(tmp_path / "folder")
    with pytest.raises(ValueError, match="folder"):
        classifier.save(tmp_path / "folder")
    classifier.save(tmp_path / "folder", overwrite=True)


def test_a_classifier_is_evaluated_as_by_the_command(tiny, colors, capsys):
    classifier = keras_vit.load_classifier(tiny)
    report = classifier.evaluate(colors)
    assert main(["evaluate", str(tiny), "--data", str(colors)]) == 0
    assert str(report) in capsys.readouterr().out
    test_folder = colors / "test"
    answers = classifier.predict(test_folder)
    right = np.mean([f"/{answer.label}/" in answer.path for answer in answers])
    assert report.top_1 == pytest.approx(right)


def test_an_export_is_chosen_by_its_suffix_and_answers_the_same(classifier, onnx):
    opened = keras_vit.load_classifier(onnx)
    assert isinstance(opened, Classifier)
    assert [name for name in dir(opened) if not name.startswith("_")] == PUBLIC
    close(opened(PHOTO), classifier(PHOTO))
    assert opened.class_names == classifier.class_names


def test_an_export_takes_the_options_of_its_format(classifier, tmp_path):
    report = classifier.export(tmp_path / "x.tflite", precision="float16", input="float")
    assert (tmp_path / "x.tflite").stat().st_size < 0.6 * 4 * classifier.model.count_params()
    assert "tflite" in str(report)
    close_enough = keras_vit.load_classifier(tmp_path / "x.tflite")(PHOTO)
    assert close_enough.label == classifier(PHOTO).label


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("x", {}, r"end in .*\.onnx.*format.*saved_model"),
        ("x.pt", {}, "x.pt, format=None"),
        ("x.onnx", {"format": "torch"}, "format='torch'"),
        ("x.onnx", {"precison": "int8"}, "precison .*onnx.*precision"),
        ("x.onnx", {"precision": "int3"}, "precision='int3'"),
        ("x", {"format": "saved_model", "precision": "int8"}, "no option of saved_model"),
    ],
)
def test_a_wrong_format_or_option_is_answered_with_what_there_is(
    classifier, tmp_path, path, options, message
):
    with pytest.raises(ValueError, match=message) as error:
        classifier.export(tmp_path / path, **options)
    assert "\n" not in str(error.value)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "use",
    [
        lambda export, folder: export.save(folder / "x"),
        lambda export, folder: export.push("owner/name"),
        lambda export, folder: export.export(folder / "x.tflite"),
        lambda export, folder: export.calibrate(SAMPLES),
        lambda export, folder: keras_vit.inspection.attention_maps(export, []),
        lambda export, folder: keras_vit.export.onnx(export, folder / "x.onnx"),
    ],
    ids=["save", "push", "export", "calibrate", "inspection", "keras_vit.export"],
)
def test_what_needs_a_keras_model_refuses_an_export_by_name(onnx, tmp_path, use):
    with pytest.raises(ValueError, match="export") as error:
        use(keras_vit.load_classifier(onnx), tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("with_name", [False, True])
def test_build_refuses_the_weights_of_an_export_by_name(onnx, with_name):
    name = "R7+ViT-Nano/8" if with_name else None
    with pytest.raises(ValueError, match=r"load_classifier.*cifar10\.onnx"):
        keras_vit.build(name, weights=onnx)


def test_a_keras_file_that_holds_its_names_is_a_classifier(classifier):
    opened = keras_vit.load_classifier(RELEASED[0].folder / "model.keras")
    assert opened.class_names == classifier.class_names
    close(opened(PHOTO), classifier(PHOTO))


def test_a_folder_whose_model_holds_its_names_is_a_classifier(classifier, tmp_path):
    shutil.copy(RELEASED[0].folder / "model.keras", tmp_path)
    close(keras_vit.load_classifier(tmp_path)(PHOTO), classifier(PHOTO))


def test_a_classifier_is_loaded_as_it_is(classifier):
    assert keras_vit.load_classifier(classifier) is classifier


@pytest.mark.parametrize(
    ("anything", "facts", "message"),
    [
        ("imagenet21k", {}, "names.*imagenet .*1,000 names"),
        ("nothing", {}, "No such .*: nothing"),
        ("ViT-B/16", {}, r'load_classifier\("imagenet", model="ViT-B/16"\)'),
        ("hf:nothing", {}, "hf:OWNER/NAME"),
        ("cifar10", {"gelu": "tanh", "num_heads": 5}, "num_heads is for"),
    ],
)
def test_what_is_no_classifier_is_refused_in_one_line(anything, facts, message):
    with pytest.raises(ValueError, match=message) as error:
        keras_vit.load_classifier(anything, **facts)
    assert "\n" not in str(error.value)


def test_a_keras_model_is_refused_with_the_call_that_takes_it(classifier):
    with pytest.raises(TypeError, match=r"keras_vit\.Classifier\(model, class_names\)"):
        keras_vit.load_classifier(classifier.model)


def test_a_loaded_classifier_has_its_facts(classifier):
    with pytest.raises(ValueError, match="Received: image_s"):
        keras_vit.load_classifier(classifier, image_size=(64, 64))


def test_a_classifier_of_another_image_size_computes_with_it():
    opened = keras_vit.load_classifier("vit_mini4_cifar10", image_size=(48, 48))
    assert opened.model.input_shape == (None, 48, 48, 3)
    assert "photos of 48x48 pixels" in repr(opened)


def test_a_keras_model_with_names_is_a_classifier(tmp_path):
    model = keras_vit.build("ViT-Mini/4", weights="cifar10")
    names = [f"class {number}" for number in range(10)]
    made = Classifier(model, names)
    assert repr(made).endswith('never answers "unknown", from memory>')
    saved = made.save(tmp_path / "made")
    assert saved(PHOTO) == keras_vit.load_classifier(tmp_path / "made")(PHOTO) == made(PHOTO)
    with pytest.raises(ValueError, match="range of pixels"):
        Classifier(keras_vit.build("ViT-Mini/4", classes=10), names)


def test_a_classifier_is_copied_and_sent_to_other_processes(classifier):
    sent = pickle.loads(pickle.dumps(classifier))  # noqa: S301
    for again in (sent, copy.deepcopy(classifier)):
        assert again(PHOTO) == classifier(PHOTO)
        assert repr(again) == repr(classifier)


def test_functions_that_take_a_classifier_take_what_load_classifier_takes(tiny, colors, tmp_path):
    from keras_vit.training.evaluation.classification import evaluate_classifier
    from keras_vit.training.trust import compare_classifiers

    classifier = keras_vit.load_classifier(tiny)
    assert str(evaluate_classifier(tiny, colors)) == str(classifier.evaluate(colors))
    assert "0" in str(compare_classifiers(classifier, tiny, colors))
    assert keras_vit.describe(classifier) == keras_vit.describe(tiny)
    assert keras_vit.features(classifier).output_shape == keras_vit.features(tiny).output_shape
    keras_vit.export.onnx(tiny, tmp_path / "x.onnx")
    assert keras_vit.load_classifier(tmp_path / "x.onnx").class_names == classifier.class_names


def test_a_classifier_in_a_folder_is_calibrated_there(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "tiny")
    colors = {"blue": (30, 30, 220), "green": (30, 220, 30), "red": (220, 30, 30)}
    photos = write_classes(tmp_path / "photos", {"train": 30, "test": 30}, colors, rng=5)
    calibrated = keras_vit.load_classifier(folder).calibrate(photos)
    assert 'may answer "unknown"' in repr(calibrated)
    again = keras_vit.load_classifier(folder)
    assert calibrated.predict(photos) == again.predict(photos)
    with pytest.raises(ValueError, match="must be a folder"):
        Classifier(
            keras_vit.build("ViT-Mini/4", weights="cifar10"), [str(n) for n in range(10)]
        ).calibrate(photos)


def test_rooms_below_take_the_narrower_object(tiny):
    from keras_vit.opening import open_predictor

    predictor = open_predictor(keras_vit.load_classifier(tiny))
    assert type(predictor) is Predictor
    assert predictor.folder == tiny


@pytest.mark.parametrize("name", ["a.keras", "a.weights.h5"])
def test_a_classifier_is_not_saved_to_the_name_of_a_file(tmp_path, name):
    classifier = keras_vit.load_classifier("vit_mini4_cifar10")
    with pytest.raises(ValueError, match="as a folder"):
        classifier.save(tmp_path / name)
    assert not (tmp_path / name).exists()


# What was meant, where something else is given.


def test_an_export_has_no_features(onnx, tmp_path):
    message = "an export gives answers alone: give the folder of the classifier.*cifar10.onnx"
    with pytest.raises(ValueError, match=message):
        keras_vit.features(onnx)
    with pytest.raises(ValueError, match=message):
        keras_vit.features(keras_vit.load_classifier(onnx))
    with pytest.raises(ValueError, match=message):
        keras_vit.embed(onnx, PHOTO, tmp_path / "features.npz", log=None)


@pytest.mark.parametrize("opened", [keras_vit.load_classifier, keras_vit.describe])
def test_a_folder_of_photos_is_no_classifier(tmp_path, opened):
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    shutil.copy(PHOTO, tmp_path / "photos" / "cat")
    with pytest.raises(ValueError, match=r"holds no model: keras_vit.finetune\('.*photos', output"):
        opened(tmp_path / "photos")


def test_a_table_of_photos_is_no_classifier(tmp_path):
    (tmp_path / "labels.csv").write_text("path,label\ncat.jpg,cat\n")
    with pytest.raises(ValueError, match=r"A table of photos holds no model: keras_vit.finetune"):
        keras_vit.load_classifier(tmp_path / "labels.csv")


def test_a_photo_is_no_classifier():
    with pytest.raises(ValueError, match=r"A photo is no model: .*load_classifier\(name\)\(photo"):
        keras_vit.load_classifier(PHOTO)


def test_a_classifier_in_place_of_its_model_is_answered(classifier, tmp_path):
    message = "here classifier.model.output_shape"
    with pytest.raises(AttributeError, match=message):
        keras_vit.with_new_head(classifier, 3)
    with pytest.raises(AttributeError, match=message):
        keras_vit.save_checkpoint(classifier, tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a path \(classifier.save\(folder\) writes one\)"):
        keras_vit.build("ViT-Mini/4", weights=classifier)


def test_a_folder_of_other_files_is_not_called_photos(tmp_path):
    (tmp_path / "notes.txt").write_text("no photo")
    with pytest.raises(ValueError, match="A folder must hold one of"):
        keras_vit.load_classifier(tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "imagenet", "vit_b16_augreg_imagenet21k", "hf:a/b"])
def test_weights_in_place_of_a_model_are_named(name):
    with pytest.raises(ValueError, match=rf"is weights: keras_vit.build\(weights='{name}'\)"):
        keras_vit.build(name)


def test_a_folder_in_place_of_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"is weights: keras_vit.build\(weights="):
        keras_vit.build(str(tmp_path))


def test_saving_in_the_order_of_keras_is_answered_with_ours(classifier, tmp_path):
    message = r"folder comes first: keras_vit.save_classifier\(folder, model.* Received: Functional"
    with pytest.raises(TypeError, match=message):
        keras_vit.save_classifier(classifier.model, tmp_path / "folder", classifier.class_names)


def test_a_number_is_the_size_of_squares():
    weights = "vit_mini4_cifar10"
    inputs = [keras_vit.load_classifier(weights, image_size=size).model.input_shape
              for size in (40, (40, 40))]  # fmt: skip
    assert inputs == [(None, 40, 40, 3)] * 2
    with pytest.raises(ValueError, match=r"whole numbers \(height, width\).*image_size=32"):
        keras_vit.Preprocessing(32)


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_an_attribute_of_another_library_is_answered_and_is_none(classifier, name):
    assert not hasattr(classifier, name)
    with pytest.raises(AttributeError) as raised:
        getattr(classifier, name)
    text = f"'Classifier' object has no attribute {name!r}. {ATTRIBUTES[name].answer()}"
    assert str(raised.value) == text


def test_what_the_answers_about_attributes_name_is_there(classifier):
    images = np.zeros((2, 40, 40, 3), "uint8")
    outputs = classifier.model.predict(classifier.preprocess(images), verbose=0)
    assert outputs.shape == (2, len(classifier.class_names) + 1)
    described = keras_vit.describe(classifier)
    assert (described.labels.task, described.labels.thresholds) == ("multiclass", None)
    assert described.preprocessing.image_size == classifier.model.input_shape[1:3]
    plain = {row.here for row in ATTRIBUTES.values() if " " not in row.here}
    assert plain <= {*PUBLIC}


def test_another_attribute_is_an_error_as_of_any_object(classifier):
    with pytest.raises(AttributeError, match="^'Classifier' object has no attribute 'unheard_of'$"):
        classifier.unheard_of  # noqa: B018
    assert copy.copy(classifier).class_names == classifier.class_names


@pytest.mark.parametrize("options", [{"quantize": True}, {"int8": True}])
def test_an_option_of_another_exporter_is_answered(classifier, tmp_path, options):
    with pytest.raises(ValueError, match='here precision, such as precision="int8"'):
        classifier.export(tmp_path / "a.tflite", **options)
    with pytest.raises(TypeError, match="keras_vit.export.tflite has no argument .*: here precis"):
        keras_vit.export.tflite(classifier, tmp_path / "a.tflite", **options)


@pytest.mark.parametrize("path", ["frog.jpg", PHOTO, [str(PHOTO)]])
def test_pixels_are_no_paths(classifier, path):
    message = r"must be pixels .*load_classifier\(name\).predict\(paths\).*path '.*\.jpg'"
    attention_maps = keras_vit.inspection.attention_maps
    for takes_pixels in (
        keras_vit.preprocess_input,
        keras_vit.Preprocessing((32, 32)),
        classifier.preprocess,
        lambda images: attention_maps(classifier, images),
    ):
        with pytest.raises(ValueError, match=message):
            takes_pixels(path)
