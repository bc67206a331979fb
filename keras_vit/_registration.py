"""An import hook that registers the layers with Keras, whichever of the two is imported first.

`keras.saving.load_model` finds the layers of a file only if they were registered before, and
`import keras_vit` must be enough for that. If Keras is loaded, the layers are imported at once.
Otherwise importing them here would load Keras and TensorFlow, several seconds, for
`keras-vit --help` too; so the hook imports them right after Keras. Keras has no entry point
for registrations that would do this without a hook.
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
