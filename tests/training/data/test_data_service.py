import collections

import numpy as np
import pytest

from keras_vit.training.data import batches, open_source, training_batches, write_records

OPTIONS = {"image_size": (8, 6), "batch_size": 4, "seed": 7}


@pytest.fixture(params=["files", "records"])
def examples(request, make_folder, tmp_path_factory):
    source = open_source(make_folder({"a": 13, "b": 8}), holdout=0, verify=False)
    if request.param == "records":
        folder = tmp_path_factory.mktemp("records")
        write_records(source, folder)
        source = open_source(folder, holdout=0)
    return source.splits["train"]


def taken(examples, address, count):
    """Returns epoch and index of examples as the service hands them out."""
    elements = examples.shuffled_pieces(7).map(lambda handle, epoch, index: (epoch, index))
    elements = elements.apply(batches._served(address, 7, 0)).take(count)
    return [(int(epoch), int(index)) for epoch, index in elements.as_numpy_iterator()]


def test_pieces_are_whole_epochs_from_any_start(examples):
    def found(start, count):
        elements = examples.shuffled_pieces(7, start, count=4).take(count)
        return [(int(e), int(i)) for _, e, i in elements.as_numpy_iterator()]

    whole = found(0, 63)
    for epoch in range(3):
        assert {e for e, _ in whole[21 * epoch : 21 * (epoch + 1)]} == {epoch}
        assert len(set(whole[21 * epoch : 21 * (epoch + 1)])) == 21
    assert [i for _, i in whole[:21]] != [i for _, i in whole[21:42]]
    for start in (0, 5, 6, 20, 21, 40):
        assert found(start, 63 - start) == whole[start:]


def test_workers_share_every_epoch(examples, service):
    count = collections.Counter(taken(examples, service(2), 210))
    assert set(count.values()) == {1}
    epochs = collections.Counter(epoch for epoch, _ in count)
    # Pieces are under way at the end, of two workers and what they read ahead.
    assert all(epochs[epoch] == 21 for epoch in range(7))


def test_one_worker_repeats_its_batches(examples, service):
    address = service(1)
    # Jobs of one name are one job: here two runs, one after the other.
    runs = []
    for _ in range(2):
        found = training_batches(examples, **OPTIONS, data_service=address).take(8)
        runs.append(list(found.as_numpy_iterator()))
        address = service(1)
    for (images, labels), (again, labels_again) in zip(*runs, strict=True):
        assert images.shape == (4, 8, 6, 3)
        np.testing.assert_array_equal(images, again)
        np.testing.assert_array_equal(labels, labels_again)


def test_mixup_is_as_without_a_service(examples, service):
    found = training_batches(
        examples, **OPTIONS, data_service=service(1), augmentation="medium1", num_classes=2
    )
    (_, labels) = next(iter(found))
    assert labels.shape == (4, 2)


def test_machines_share_the_batches(examples, service):
    address = service(1)
    machines = [
        iter(
            training_batches(
                examples,
                **{**OPTIONS, "augmentation": "none"},
                data_service=address,
                shard=(part, 2),
            )
        )
        for part in range(2)
    ]
    seen = [
        value
        for _ in range(10)
        for machine in machines
        for value in next(machine)[0][:, 0, 0, 0].numpy()
    ]
    assert len(seen) == 40
    # 40 of 21 images, each once in an epoch; a batch may wait with each machine.
    assert max(collections.Counter(seen).values()) <= 3


@pytest.mark.parametrize("address", ["host:5000", "grpc://host", ""])
def test_an_invalid_address_is_refused(examples, address):
    with pytest.raises(ValueError, match="an address such as grpc://host:5000"):
        training_batches(examples, **OPTIONS, data_service=address)
