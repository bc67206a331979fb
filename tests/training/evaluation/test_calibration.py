import csv

import numpy as np
import pytest

from keras_vit.training.evaluation import calibration


def binary(confidences, correct):
    """Returns probabilities and labels of two classes with these first choices."""
    confidences = np.array(confidences)
    probabilities = np.stack([confidences, 1 - confidences], axis=1)
    return probabilities, np.where(correct, 0, 1)


def test_the_error_is_the_weighted_gap_between_confidence_and_accuracy():
    probabilities, labels = binary([0.95, 0.95, 0.95, 0.55], [True, True, False, False])
    result = calibration.calibration_of(probabilities, labels, num_bins=10)
    # Bin (0.9, 1]: 3 of 4 images, accuracy 2/3; bin (0.5, 0.6]: 1 of 4, accuracy 0.
    assert result.expected_error == pytest.approx(3 / 4 * (0.95 - 2 / 3) + 1 / 4 * 0.55)
    assert result.maximum_error == pytest.approx(0.55)
    assert result.overconfidence == pytest.approx((3 * 0.95 + 0.55 - 2) / 4)
    assert result.count == 4


def test_a_confidence_on_an_edge_belongs_below_it():
    result = calibration.calibration_of(*binary([0.6, 0.75, 1.0], [True] * 3), num_bins=4)
    np.testing.assert_array_equal(result.counts, [0, 0, 2, 1])


def test_calibrated_predictions_have_little_error():
    rng = np.random.default_rng(0)
    confidences = rng.uniform(0.5, 1, 100_000)
    probabilities, labels = binary(confidences, rng.uniform(size=100_000) < confidences)
    assert calibration.calibration_of(probabilities, labels).expected_error < 0.01


def test_parts_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet([1, 1, 1], 50), rng.integers(0, 3, 50)
    parts = calibration.calibration_of(probabilities[:7], labels[:7])
    parts += calibration.calibration_of(probabilities[7:], labels[7:])
    whole = calibration.calibration_of(probabilities, labels)
    assert parts.expected_error == pytest.approx(whole.expected_error, abs=1e-12)
    np.testing.assert_array_equal(parts.counts, whole.counts)


def test_the_table_and_the_diagram_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    result = calibration.calibration_of(*binary([0.95, 0.55], [True, False]), num_bins=10)
    result.write_csv(tmp_path / "calibration.csv")
    result.draw(tmp_path / "calibration.png")
    rows = list(csv.DictReader((tmp_path / "calibration.csv").open()))
    assert len(rows) == 10
    assert rows[0]["accuracy"] == ""
    assert rows[9] == {
        "above": "0.9",
        "up_to": "1",
        "images": "1",
        "confidence": "0.95",
        "accuracy": "1",
    }
    assert (tmp_path / "calibration.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[2.0, 3.0]], [0], "sum to 1"),
        ([[0.5, 0.5]], [0, 1], "shapes"),
        (np.zeros((0, 2)), np.zeros(0, int), "at least 1"),
    ],
)
def test_other_numbers_than_probabilities_are_refused(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        calibration.calibration_of(probabilities, labels)
