"""Weights in repositories of the Hugging Face Hub, on a server in this process."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.hub.repositories import fixed_name
from keras_vit.opening import open_model

safetensors_numpy = pytest.importorskip("safetensors.numpy")

NAME = "owner/pets"
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 32, "width": 32},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
CARD = b"---\nlicense: mit\n---\n# A model\n"


@pytest.fixture
def of_transformers(golden):
    """The files of a model that transformers wrote, with a pickle beside the safetensors."""
    known = golden("hf_vit")
    arrays = safetensors_numpy.save(known.checkpoint(), {"format": "pt"})
    config = {**known.config, "architectures": ["ViTForImageClassification"], "model_type": "vit"}
    return {
        ".gitattributes": b"*.safetensors filter=lfs",
        "README.md": CARD,
        "config.json": json.dumps(config).encode(),
        "model.safetensors": arrays,
        "preprocessor_config.json": json.dumps(PROCESSOR).encode(),
        "pytorch_model.bin": b"\x80\x02" + arrays,
        "runs/events.out": b"events",
    }


def test_a_model_of_transformers_is_opened_by_its_name(hub, golden, of_transformers):
    commit = hub.add(NAME, of_transformers)
    opened = open_model(f"hf:{NAME}")
    assert opened.source == opened.description.origins["weights"] == f"hf:{NAME}@{commit}"
    assert open_model(f"hf://{NAME}").source == opened.source  # As other libraries write it.
    assert opened.description.license == "mit"
    known = golden("hf_vit").load()
    expected = keras.ops.softmax(known["logits"])
    probabilities = array(opened.model()(known["images"]))
    np.testing.assert_allclose(probabilities, array(expected), atol=1e-5)  # float32, depth 2
    # What is read was fetched once; no pickle, no other file.
    read = {"README.md", "config.json", "model.safetensors", "preprocessor_config.json"}
    assert hub.fetched() == dict.fromkeys(read, 1)


def test_build_takes_a_repository_by_its_name(hub, golden, of_transformers):
    commit = hub.add(NAME, of_transformers)
    model = keras_vit.build(weights=f"hf:{NAME}")
    known = golden("hf_vit").load()
    expected = array(keras.ops.softmax(known["logits"]))
    np.testing.assert_allclose(array(model(known["images"])), expected, atol=1e-5)
    assert keras_vit.describe(model).origins["weights"] == f"hf:{NAME}@{commit}"
    transferred = keras_vit.build(weights=f"hf:{NAME}@{commit}", classes=2)
    assert transferred.output_shape == (None, 2)


def test_a_classifier_of_transformers_is_loaded_by_its_name(hub, golden, of_transformers):
    config = json.loads(of_transformers["config.json"])
    names = [f"class {number}" for number in range(golden("hf_vit").load()["logits"].shape[1])]
    config["id2label"] = dict(enumerate(names))
    commit = hub.add(NAME, {**of_transformers, "config.json": json.dumps(config).encode()})
    classifier = keras_vit.load_classifier(f"hf:{NAME}")
    assert classifier.class_names == tuple(names)
    assert repr(classifier).endswith(f"from hf:{NAME}@{commit}>")
    photo = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    scores = array(classifier.model(classifier.preprocess(photo)))[0]
    assert classifier(photo).label == names[scores.argmax()]


def test_a_branch_that_moves_is_one_commit_for_a_process_and_a_commit_stays(hub, of_transformers):
    first = hub.add(NAME, of_transformers)
    assert fixed_name(f"hf:{NAME}@main") == f"hf:{NAME}@{first}"
    changed = {**of_transformers, "README.md": CARD.replace(b"mit", b"gpl-3.0")}
    second = hub.repositories["model", NAME].commit(changed)
    assert fixed_name(f"hf:{NAME}@main") == f"hf:{NAME}@{first}"
    hub.forget()
    assert fixed_name(f"hf:{NAME}@main") == f"hf:{NAME}@{second}"
    assert open_model(f"hf:{NAME}").description.license == "gpl-3.0"
    assert open_model(f"hf:{NAME}@{first}").description.license == "mit"
    assert hub.fetched()["model.safetensors"] == 1  # Both commits have the same.


def test_without_a_network_what_is_cached_works_and_the_rest_is_a_line(
    hub, of_transformers, capsys, monkeypatch
):
    commit = hub.add(NAME, of_transformers)
    open_model(f"hf:{NAME}")
    hub.forget()
    hub.close()
    assert open_model(f"hf:{NAME}").source == f"hf:{NAME}@{commit}"
    assert f"hf:{NAME} is commit {commit}, as cached" in capsys.readouterr().err
    assert open_model(f"hf:{NAME}@{commit}").source == f"hf:{NAME}@{commit}"
    assert capsys.readouterr().err == ""  # A commit needs no network.
    with pytest.raises(OSError, match="hf:owner/other .* not in the cache"):
        open_model("hf:owner/other")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.forget()
    assert open_model(f"hf:{NAME}").source == f"hf:{NAME}@{commit}"
    with pytest.raises(OSError, match="hf:owner/other .* not in the cache"):
        open_model("hf:owner/other")


def test_a_download_that_breaks_goes_on(hub, of_transformers):
    hub.add(NAME, of_transformers)
    hub.broken["model.safetensors"] = (1000, 1)
    open_model(f"hf:{NAME}")  # The rest came by the same call.
    assert hub.fetched()["model.safetensors"] == 2


def test_each_refusal_of_the_hub_is_a_line(hub, of_transformers, monkeypatch):
    hub.add(NAME, of_transformers)
    hub.add("owner/photos", {"a.png": b"1"}, "dataset")
    hub.add("owner/gated", of_transformers, gated=True)
    hub.add("owner/secret", of_transformers, private=True)
    pickle = {name: of_transformers[name] for name in ("config.json", "pytorch_model.bin")}
    hub.add("owner/pickle", pickle)
    hub.add("owner/text", {**of_transformers, "config.json": b'{"model_type": "bert"}'})
    for name, error, words in (
        ("hf:pets", ValueError, "must be hf:OWNER/NAME"),
        ("hf:owner/pets@../x", ValueError, "must be hf:OWNER/NAME"),
        ("hf:owner/none", OSError, "hf:owner/none .*no such repository"),
        (f"hf:{NAME}@gone", OSError, "no such revision"),
        (f"hf:{NAME}@{'0' * 40}", OSError, "no such revision"),
        ("hf:owner/photos", OSError, "hf:owner/photos .*no such repository"),
        ("hf:owner/gated", OSError, "chosen users"),
        ("hf:owner/pickle", ValueError, "pickles .*pytorch_model.bin"),
        ("hf:owner/text", ValueError, "model_type .*'bert'"),
    ):
        with pytest.raises(error, match=words) as caught:
            open_model(name)
        assert "\n" not in str(caught.value)
    assert not {"model.safetensors", "pytorch_model.bin"} & hub.fetched().keys()
    open_model("hf:owner/secret")
    hub.forget()
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    hub.add("owner/new", of_transformers, private=True)
    with pytest.raises(OSError, match="hf:owner/new.*log in with"):
        open_model("hf:owner/new")


@pytest.mark.parametrize(
    ("name", "lie", "message"),
    [
        ("sha", "../../../x", "commit .*40 hex digits.*'../../../x'"),
        ("sha", "A" * 40, "commit .*40 hex digits"),
        ("sha", None, "commit .*40 hex digits.*: None"),
        ("X-Repo-Commit", "../../../x", "commit .*40 hex digits.*'../../../x'"),
        ("ETag", '"{outside}/x"', "ETag .*40 or 64 .*'\"/"),
        ("ETag", 'W/"../../../x"', "ETag .*40 or 64 hex"),
        ("X-Linked-Etag", '"../x"', "ETag .*40 or 64 hex"),
        ("padding", 9 * 2**20, "8,388,608 bytes"),
    ],
)
def test_a_hostile_server_writes_nothing(name, lie, message, hub, of_transformers, tmp_path):
    hub.add(NAME, of_transformers)
    hub.lies = {name: lie.format(outside=tmp_path) if isinstance(lie, str) else lie}
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match=f"hf:{NAME} .*{message}"):
        open_model(f"hf:{NAME}")
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    if name == "X-Linked-Etag":  # The small files, which are not of LFS, came before.
        assert "model.safetensors" not in {path.name for path in written}
        assert all(path.is_relative_to(tmp_path / "hub_cache") for path in written)
    else:
        assert written == set()


def test_a_client_that_huggingface_hub_makes_anew_is_checked_as_well(hub, of_transformers):
    import huggingface_hub

    hub.add(NAME, of_transformers)
    open_model(f"hf:{NAME}")
    hub.forget()
    huggingface_hub.close_session()  # As after an error of a connection.
    hub.repositories["model", NAME].commit({**of_transformers, "README.md": b"changed"})
    hub.lies = {"X-Repo-Commit": "../x"}
    with pytest.raises(OSError, match="commit .*40 hex digits.*'../x'"):
        open_model(f"hf:{NAME}")


def test_a_commit_that_was_asked_for_is_the_one_that_is_read(hub, of_transformers):
    first = hub.add(NAME, of_transformers)
    hub.lies = {"sha": "0" * 40}
    with pytest.raises(OSError, match=f"commit .*{first}.*'0000"):
        open_model(f"hf:{NAME}@{first}")
