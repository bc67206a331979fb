"""Signatures: what is found by `verify --signature`, and the errors of keys and files."""

import pathlib

import pytest

pytest.importorskip("model_signing")

from keras_vit import command_line
from keras_vit.utils.signing import check_signature, sign
from makers import write_keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two pairs of keys: private and public."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "other"):
        write_keys(folder, name)
    return folder


@pytest.fixture
def signed(keys, tmp_path):
    folder = tmp_path / "runs" / "pets"
    (folder / "samples").mkdir(parents=True)
    files = {"model.keras": b"weights" * 100, "classes.txt": b"cat\ndog\n", ".gitignore": b"*"}
    for name, content in {**files, "samples/00.png": b"pixels"}.items():
        (folder / name).write_bytes(content)
    sign(folder, keys / "own.pem")
    return folder


def message(folder, key, **options):
    with pytest.raises(ValueError, match=".") as error:
        check_signature(folder, key, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_signed_folder_is_verified(signed, keys):
    line = check_signature(signed, keys / "own.pub.pem")
    assert line.startswith("Signature: every file is as it was signed")


@pytest.mark.parametrize("name", ["model.keras", "classes.txt", ".gitignore", "samples/00.png"])
def test_one_changed_byte_in_any_file_fails(name, signed, keys):
    content = bytearray((signed / name).read_bytes())
    content[len(content) // 2] ^= 1
    (signed / name).write_bytes(content)
    assert message(signed, keys / "own.pub.pem").endswith(f"own.pub.pem. Received: changed {name}")


def test_a_further_a_missing_and_a_renamed_file_fail(signed, keys):
    (signed / "new.txt").write_text("x")
    assert message(signed, keys / "own.pub.pem").endswith("Received: new new.txt")
    (signed / "new.txt").unlink()
    (signed / "classes.txt").rename(signed / "labels.txt")
    found = message(signed, keys / "own.pub.pem")
    assert found.endswith("Received: new labels.txt; missing classes.txt")
    (signed / "labels.txt").unlink()
    assert message(signed, keys / "own.pub.pem").endswith("Received: missing classes.txt")
    for number in range(5):
        (signed / f"{number}.txt").write_text("x")
    assert "new 0.txt, 1.txt, 2.txt and 2 further;" in message(signed, keys / "own.pub.pem")


def test_another_key_fails(signed, keys):
    assert "must be as it was signed" in message(signed, keys / "other.pub.pem")


def test_a_file_is_signed_alone(keys, tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"weights")
    sign(tmp_path / "model.tflite", keys / "own.pem")
    check_signature(tmp_path / "model.tflite", keys / "own.pub.pem")
    (tmp_path / "model.tflite").write_bytes(b"Weights")
    assert message(tmp_path / "model.tflite", keys / "own.pub.pem").endswith("other bytes")


def test_a_missing_and_a_damaged_signature_are_one_line(signed, keys):
    signature = pathlib.Path(f"{signed}.sig")
    content = signature.read_bytes()
    for damaged in (b"", b"{}", content[: len(content) // 2], content.replace(b'"', b"'", 9)):
        signature.write_bytes(damaged)
        assert "must be as it was signed" in message(signed, keys / "own.pub.pem")
    signature.unlink()
    assert "which keras-vit sign writes" in message(signed, keys / "own.pub.pem")


def test_keys_that_do_not_fit_are_one_line(signed, keys, tmp_path):
    (tmp_path / "key.pem").write_text("no key")
    for key in (tmp_path / "key.pem", tmp_path / "none.pem", keys / "own.pub.pem"):
        with pytest.raises(ValueError, match="must be a private elliptic-curve key"):
            sign(signed, key, tmp_path / "x.sig")
    for key in (tmp_path / "key.pem", tmp_path / "none.pem", keys / "own.pem"):
        assert "must be a public elliptic-curve key" in message(signed, key)
    assert "needs the signer's public key" in message(signed, None)
    assert not (tmp_path / "x.sig").exists()


def test_a_signature_is_not_replaced_nor_within_the_folder(signed, keys):
    with pytest.raises(ValueError, match="must be new"):
        sign(signed, keys / "own.pem")
    sign(signed, keys / "own.pem", overwrite=True)
    with pytest.raises(ValueError, match="outside of what it signs"):
        sign(signed, keys / "own.pem", signed / "own.sig")


def test_a_symbolic_link_is_not_signed(signed, keys, tmp_path):
    (signed / "link").symlink_to(keys / "own.pem")
    with pytest.raises(ValueError, match="must be files that can be signed"):
        sign(signed, keys / "own.pem", tmp_path / "x.sig")
    assert not (tmp_path / "x.sig").exists()


def test_the_commands_sign_and_verify(signed, keys, capsys):
    again = ["sign", str(signed), "--key", str(keys / "own.pem"), "--overwrite"]
    assert command_line.main(again) == 0
    assert f"written {signed}.sig" in capsys.readouterr().out
    check = ["verify", str(signed), "--signature", "--key", str(keys / "own.pub.pem")]
    assert command_line.main(check) == 0
    (signed / "classes.txt").write_text("cat\ncow\n")
    assert command_line.main(check) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "classes.txt" in error
