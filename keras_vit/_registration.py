"""An import hook that registers the layers with Keras, whichever of the two is imported first.

`keras.saving.load_model` finds the layers of a file only if they were registered before, and
`import keras_vit` must be enough for that. If Keras is loaded, the layers are imported at once.
Otherwise importing them here would load Keras and TensorFlow: 10 s instead of 0.1 s, for
`keras-vit --help`, `keras_vit.list_models()` and every configuration file too; so the hook imports
them right after Keras. Keras has no entry point for registrations that would do this without a
hook. Nothing of it stays once Keras is imported.
"""

import importlib
import importlib.util
import sys
from typing import Any


def when_keras_is_imported(module: str) -> None:
    """Imports `module` after Keras has been imported; now, if it has been."""
    if "keras" in sys.modules:
        importlib.import_module(module)
    else:
        sys.meta_path.insert(0, _AfterKeras(module))


class _AfterKeras:
    """A finder; without the base class in importlib.abc, whose import takes a tenth of the rest."""

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
        if spec is not None and spec.loader is not None:
            loader: Any = _Loader(spec.loader, self)
            spec.loader = loader
        return spec


class _Loader:
    """The loader of Keras, which is followed by an import."""

    def __init__(self, loader, finder):
        self.loader, self.finder = loader, finder

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        importlib.import_module(self.finder.module)
