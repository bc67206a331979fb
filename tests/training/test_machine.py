"""What is written of the machine."""

import platform

from keras_vit.training import machine


def test_a_machine_without_proc_is_named_by_its_processor_or_its_kind(monkeypatch):
    monkeypatch.setattr(machine.os.path, "exists", lambda path: False)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    for name, expected in (("", "arm64"), ("M2", "M2")):
        monkeypatch.setattr(platform, "processor", lambda name=name: name)
        assert machine.processor() == expected
