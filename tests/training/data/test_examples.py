import numpy as np
import pytest

from keras_vit.training.data.image_files import FileExamples
from keras_vit.training.data.parts import draw


def numbered(labels):
    return FileExamples([str(number) for number in range(len(labels))], np.array(labels))


def test_taking_keeps_order_labels_and_names():
    part = numbered([3, 1, 4, 1, 5]).take([4, 0, 3])
    assert part.names == ["0", "3", "4"]
    assert part.labels.tolist() == [3, 1, 5]
    assert part.take([1]).names == ["3"]
    assert len(part.take([])) == 0


@pytest.mark.parametrize("indices", [[5], [-1], [1, 1]])
def test_a_place_that_is_not_there_once_is_refused(indices):
    with pytest.raises(ValueError, match="Indices must be from 0 to 4, each once"):
        numbered([0] * 5).take(indices)


def test_a_split_takes_its_share_of_every_class():
    labels = [0] * 50 + [1] * 10 + [2] * 2 + [3]
    rest, part = draw(numbered(labels), 0.1, 0, "test", None)
    assert np.bincount(part.labels, minlength=4).tolist() == [5, 1, 1, 0]
    assert sorted(rest.names + part.names, key=int) == [str(n) for n in range(63)]
    assert part.names != draw(numbered(labels), 0.1, 1, "test", None)[1].names


def test_a_split_is_not_the_first_of_each_class():
    _, part = draw(numbered([0] * 1000), 0.5, 0, "test", None)
    assert 400 < np.mean([int(name) for name in part.names]) < 600
