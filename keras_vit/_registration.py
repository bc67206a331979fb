"""Registration of the layers with Keras, as soon as anything has imported Keras.

`keras.saving.load_model` finds custom layers only if they were registered before. So that
`import keras_vit` is enough and stays cheap, the layers are imported now if Keras is
loaded already, else right after it is.
"""

import importlib
import importlib.abc
import importlib.util
import sys


def when_keras_is_imported(module: str) -> None:
    """Imports `module` after Keras has been imported; now, if it has been."""
    if "keras" in sys.modules:
        importlib.import_module(module)
    else:
        sys.meta_path.insert(0, _AfterKeras(module))


class _AfterKeras(importlib.abc.MetaPathFinder):
    def __init__(self, module):
        self.module = module

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec("keras")
        finally:
            # Back in its place: TensorFlow only asks where Keras is, and loads it later.
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_register(keras):
            load(keras)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            importlib.import_module(self.module)

        spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
