"""Answers of LiteRT's GPU accelerator, which runs all of a file or none of it."""

import pathlib
import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator

folder = pathlib.Path(sys.argv[1])
model = CompiledModel.from_file(
    str(folder / "model.tflite"), hardware_accel=HardwareAccelerator.GPU
)
assert model.is_fully_accelerated()
inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
details = model.get_output_tensor_details("serve")["probabilities"]
answers = []
for image in np.load(folder / "images.npy"):
    inputs[0].write(image[np.newaxis])
    model.run_by_index(0, inputs, outputs)
    answers.append(outputs[0].read(int(details["shape"][-1]), np.float32))
np.save(folder / "answers.npy", np.stack(answers))
