import collections

import numpy as np
import pytest

from keras_vit.training.data import batches, open_source, training_batches, write_records

OPTIONS = {"image_size": (8, 6), "batch_size": 4, "seed": 7}


@pytest.fixture(scope="module")
def sources(write_images, tmp_path_factory):
    """The same 21 images as files and as records."""
    folder, records = (tmp_path_factory.mktemp(name) for name in ("files", "records"))
    source = open_source(write_images(folder, {"a": 13, "b": 8}), holdout=0, verify=False)
    write_records(source, records)
    return {"files": source, "records": open_source(records, holdout=0)}


@pytest.fixture
def examples(sources, request):
    return sources[getattr(request, "param", "files")].splits["train"]


def of(first, second):
    """Runs a test with one kind of examples, and with another in the slow tests."""
    kinds = [first, pytest.param(second, marks=pytest.mark.slow)]
    return pytest.mark.parametrize("examples", kinds, indirect=True)


def taken(examples, address, count):
    """Returns epoch and index of examples as the service hands them out."""
    elements = examples.shuffled_pieces(7).map(lambda handle, epoch, index: (epoch, index))
    elements = elements.apply(batches._served(address, 7, 0)).take(count)
    return [(int(epoch), int(index)) for epoch, index in elements.as_numpy_iterator()]


@pytest.mark.parametrize("examples", ["files", "records"], indirect=True)
def test_pieces_are_whole_epochs_from_any_start(examples):
    def found(start, count):
        elements = examples.shuffled_pieces(7, start, count=4).take(count)
        return [(int(e), int(i)) for _, e, i in elements.as_numpy_iterator()]

    whole = found(0, 63)
    for epoch in range(3):
        assert {e for e, _ in whole[21 * epoch : 21 * (epoch + 1)]} == {epoch}
        assert len(set(whole[21 * epoch : 21 * (epoch + 1)])) == 21
    assert [i for _, i in whole[:21]] != [i for _, i in whole[21:42]]
    for start in (5, 6, 21, 40):  # Pieces begin at 0, 5, 10, 15 and 21.
        assert found(start, 63 - start) == whole[start:]


@of("records", "files")
def test_workers_share_every_epoch(examples, service):
    count = collections.Counter(taken(examples, service(2), 210))
    assert set(count.values()) == {1}
    epochs = collections.Counter(epoch for epoch, _ in count)
    # Pieces are under way at the end, of two workers and what they read ahead.
    assert all(epochs[epoch] == 21 for epoch in range(7))


@pytest.mark.slow
@of("files", "records")
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


@pytest.mark.slow
def test_mixup_is_as_without_a_service(examples, service):
    found = training_batches(
        examples, **OPTIONS, data_service=service(1), augmentation="none", mixup=0.2, num_classes=2
    )
    (_, labels) = next(iter(found))
    assert labels.shape == (4, 2)


@of("files", "records")
@pytest.mark.slow
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
