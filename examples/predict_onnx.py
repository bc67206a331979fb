"""Classes of a photo by an ONNX export, with ONNX Runtime, Pillow and NumPy alone.

    python predict_onnx.py pets.onnx garden.jpg

The file takes pixels of any size. A calibrated classifier has one name more, "unknown", which is
the most probable one where the classifier does not answer.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])
image = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB")
(probabilities,) = session.run(["probabilities"], {"images": np.asarray(image)[None]})[0]
for index in np.argsort(-probabilities)[:5]:
    print(f"{probabilities[index]:.2%}  {names[index]}")
