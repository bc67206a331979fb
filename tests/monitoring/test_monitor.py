import dataclasses
import json
import math

import numpy as np
import pytest
from calibrated_colors import write_classifier, write_photos

import keras_vit
from keras_vit.classifier import Classifier
from keras_vit.classifier_folder import load_classifier
from keras_vit.export.artefacts import load_artefact
from keras_vit.monitoring.monitor import Monitor
from keras_vit.monitoring.signals import FAMILIARITY, SIGNALS, image_signals


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("run"))


@pytest.fixture
def inputs(folder, tmp_path):
    classifier = load_classifier(folder)
    files = sorted(write_photos(tmp_path / "new", 4, 7).rglob("*.png"))
    return [classifier.input_of(file.read_bytes()) for file in files]


def test_calibrate_keeps_a_reference_of_the_images_that_did_not_choose_the_temperature(folder):
    decision = load_classifier(folder).description.decision
    outputs = [f"output {number}" for number in range(3)]
    assert set(decision.reference.counts) == {*SIGNALS, *outputs}
    assert decision.reference.images == decision.images == 144


def test_answers_are_those_of_the_classifier_and_counted(folder, inputs):
    classifier = load_classifier(folder)
    monitor = Monitor(classifier)
    rows = monitor.probabilities(inputs)
    np.testing.assert_allclose(rows, classifier.answering.probabilities(inputs), atol=1e-6)
    assert sum(monitor.answers.values()) == len(inputs) == monitor.martingales.photos
    for name in SIGNALS:
        assert sum(monitor.stream_counts(name).values()) == len(inputs)


def test_brightness_and_sharpness_are_those_of_a_plain_loop():
    image = np.random.default_rng(0).uniform(-1, 1, (5, 6, 3)).astype("float32")
    grey = image.mean(axis=2)
    across = np.mean([abs(grey[i, j + 1] - grey[i, j]) for i in range(5) for j in range(5)])
    down = np.mean([abs(grey[i + 1, j] - grey[i, j]) for i in range(4) for j in range(6)])
    found = image_signals(image[np.newaxis])
    assert found["brightness"].tolist() == [round(64 * grey.mean())]
    assert found["sharpness"].tolist() == [round(8 * math.log2((across + down) / 2))]


def test_a_new_monitor_goes_on_from_the_state_file(folder, inputs, tmp_path):
    state = tmp_path / "state.json"
    first = Monitor(load_classifier(folder), state)
    first.probabilities(inputs)
    first.save()
    second = Monitor(load_classifier(folder), state)
    np.testing.assert_array_equal(second.martingales.logs, first.martingales.logs)
    assert second.answers == first.answers
    assert second.martingales.photos == len(inputs)


def test_the_state_of_another_model_is_refused_in_one_line(folder, tmp_path):
    state = tmp_path / "state.json"
    Monitor(load_classifier(folder), state)
    content = json.loads(state.read_text())
    state.write_text(json.dumps({**content, "reference": "0" * 64}))
    with pytest.raises(ValueError, match=r"must be of this classifier .*state\.json of another"):
        Monitor(load_classifier(folder), state)
    state.write_text(json.dumps({**content, "answers": {"red": "many"}}))
    with pytest.raises(ValueError, match=r"state\.json must hold a monitor's state. answers"):
        Monitor(load_classifier(folder), state)


def test_a_classifier_without_a_reference_says_what_to_run(folder):
    classifier = load_classifier(folder)
    decision = dataclasses.replace(classifier.description.decision, reference=None)
    description = dataclasses.replace(classifier.description, decision=decision)
    older = Classifier.of(classifier.model, description, None, classifier.folder)
    with pytest.raises(ValueError, match="keras-vit calibrate FOLDER --data DATA"):
        Monitor(older)


def test_the_reference_of_another_head_is_refused(folder, tmp_path):
    classifier = load_classifier(folder)
    head = classifier.model.get_layer("predictions")
    head.set_weights([1 + weight for weight in head.get_weights()])
    with pytest.raises(ValueError, match="for other weights"):
        Monitor(classifier)


def test_an_export_of_pixels_has_the_signals_of_its_classifier_but_familiarity(folder, tmp_path):
    path = tmp_path / "colors.onnx"
    keras_vit.export.onnx(folder, path, check_images=folder.parent / "photos" / "test")
    files = sorted(write_photos(tmp_path / "new", 2, 9).rglob("*.png"))
    monitors = [Monitor(load_classifier(folder)), Monitor(load_artefact(path))]
    for monitor in monitors:
        monitor.probabilities([monitor.input_of(file.read_bytes()) for file in files])
    assert list(monitors[1].martingales.bags) == [name for name in SIGNALS if name != FAMILIARITY]
    for name in monitors[1].martingales.bags:
        assert monitors[1].stream_counts(name) == monitors[0].stream_counts(name)
