"""Answers of LiteRT's GPU accelerator, which runs all of a file or none of it."""

import pathlib
import sys

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel, HardwareAccelerator

folder = pathlib.Path(sys.argv[1])
model = CompiledModel.from_file(str(folder / "model.tflite"), HardwareAccelerator.GPU)
(images,), (answer,) = model.create_input_buffers(0), model.create_output_buffers(0)
classes = model.get_output_tensor_details("serve")["probabilities"]["shape"][-1]
answers = []
for image in np.load(folder / "images.npy"):
    images.write(image[np.newaxis])
    model.run_by_index(0, [images], [answer])
    answers.append(answer.read(int(classes), np.float32))
np.save(folder / "answers.npy", np.stack(answers))
