"""OpenVINO models side by side, and a signal after they have gone."""

import subprocess
import sys

import pytest

pytest.importorskip("openvino")

PROGRAM = """
import gc, os, pathlib, signal, sys
import numpy as np
import openvino
from openvino import opset13
from keras_vit.export.openvino import OpenVINO

images = opset13.parameter([1, 3], np.uint8, name="images")
images.output(0).set_names({"images"})
doubled = opset13.add(images, images)
doubled.output(0).set_names({"probabilities"})
openvino.save_model(openvino.Model([doubled], [images], "model"), sys.argv[1] + "/model.xml")


def opened():
    return OpenVINO.open(pathlib.Path(sys.argv[1])).signatures()["serve"].call


first, second = opened(), opened()
ones = np.ones((1, 3), np.uint8)
print(first(ones), second(ones))
del first
gc.collect()
del second
gc.collect()
signal.signal(signal.SIGINT, lambda *_: print("caught"))
os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_signal_is_caught_after_two_models_have_gone_in_their_order(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[[2 2 2]] [[2 2 2]]", "caught"]
